"""Modules with the interface of darts' TSMixer: darts' own, a rewritten file, an old form."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import torch
from darts.models.forecasting import tsmixer_model
from torch import Tensor, nn

from tests.support.weight_map import darts_to_original
from tuner.api import load_data
from tuner.config import Architecture, Hyperparameters, ModelShapes, RunConfig, TrainingSettings
from tuner.errors import UsageError
from tuner.models.darts_interface import DartsNetwork
from tuner.models.registry import build_model
from tuner.spec.study_file import load_study_file
from tuner.training import fit

DARTS = "darts.models.forecasting.tsmixer_model:_TSMixerModule"
PROTOCOL = ModelShapes(
    input_size=168, horizon=24, n_targets=7, n_past=0, n_future=6, n_static=1, n_quantiles=17
)
SMALL = ModelShapes(
    input_size=12, horizon=4, n_targets=2, n_past=1, n_future=2, n_static=1, n_quantiles=3
)
ALONE = ModelShapes(
    input_size=12, horizon=4, n_targets=2, n_past=0, n_future=0, n_static=0, n_quantiles=3
)

OLDER = """
import torch
from torch import nn

class RIN(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.affine_weight = nn.Parameter(torch.ones(n))
    def forward(self, x):
        self.mean = x.mean(dim=1, keepdim=True).detach()
        return (x - self.mean) * self.affine_weight
    def inverse(self, x):
        return x / self.affine_weight.unsqueeze(-1) + self.mean.unsqueeze(-1)

class OlderModule(nn.Module):
    \"\"\"As older darts called it: a triple in, a tensor out, its own reversible norm unused.\"\"\"
    def __init__(self, input_dim, output_dim, past_cov_dim, future_cov_dim, static_cov_dim,
                 nr_params, hidden_size, ff_size, num_blocks, activation, dropout, norm_type,
                 normalize_before, **kwargs):
        super().__init__()
        self.use_reversible_instance_norm = kwargs["use_reversible_instance_norm"]
        self.rin = RIN(kwargs["train_sample_shape"][0][1])
        self.sizes = (kwargs["output_chunk_length"], output_dim, nr_params)
        columns = input_dim + past_cov_dim + future_cov_dim
        self.layer = nn.Linear(kwargs["input_chunk_length"] * columns, hidden_size)
        n_outputs = output_dim * nr_params * self.sizes[0]
        self.out = nn.Linear(hidden_size + future_cov_dim + static_cov_dim, n_outputs)
    def forward(self, x_in):
        x, x_future, x_static = x_in
        assert not self.use_reversible_instance_norm
        parts = [torch.relu(self.layer(x.flatten(1)))]
        parts += [x_future.mean(dim=1)] if x_future is not None else []
        parts += [x_static[:, 0]] if x_static is not None else []
        return self.out(torch.cat(parts, dim=-1)).view(-1, *self.sizes)

class NoKeywords(OlderModule):
    def __init__(self, input_dim, output_dim, past_cov_dim, future_cov_dim, static_cov_dim,
                 nr_params, hidden_size, ff_size, dropout, input_chunk_length, output_chunk_length,
                 depth=1):
        super().__init__(input_dim, output_dim, past_cov_dim, future_cov_dim, static_cov_dim,
                         nr_params, hidden_size, ff_size, 1, "ReLU", dropout, None, False,
                         use_reversible_instance_norm=False,
                         train_sample_shape=((1, input_dim),),
                         input_chunk_length=input_chunk_length,
                         output_chunk_length=output_chunk_length)
        self.depth = depth
"""


def build(model: str, shapes: ModelShapes, *, hidden_size: int = 8, **settings: Any) -> nn.Module:
    hyperparameters = Hyperparameters(
        learning_rate=1e-3, weight_decay=0.0, dropout=0.1, hidden_size=hidden_size, batch_size=4
    )
    return build_model(Architecture(model=model, settings=settings), shapes, hyperparameters)


def inputs(shapes: ModelShapes, batch: int = 3) -> tuple[Tensor, Tensor | None, Tensor | None]:
    s = shapes
    past = 5 + torch.rand(batch, s.input_size, s.n_targets + s.n_past + s.n_future)
    future = torch.rand(batch, s.horizon, s.n_future) if s.n_future else None
    return past, future, torch.rand(batch, s.n_static) if s.n_static else None


def test_darts_own_module_class_is_the_original(tmp_path: Path) -> None:
    theirs, ours = (
        build(DARTS, PROTOCOL, hidden_size=64),
        build("original", PROTOCOL, hidden_size=64),
    )
    assert isinstance(theirs, DartsNetwork)
    assert sum(p.numel() for p in theirs.parameters()) == 116_173
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    ours.load_state_dict(darts_to_original(theirs.module.state_dict()))
    given = inputs(PROTOCOL)
    torch.testing.assert_close(theirs.eval()(*given), ours.eval()(*given), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shapes", [SMALL, ALONE], ids=["all columns", "targets alone"])
@pytest.mark.parametrize("name", ["OlderModule", "NoKeywords"])
def test_a_class_in_the_form_of_an_older_darts_works(
    name: str, shapes: ModelShapes, tmp_path: Path
) -> None:
    (tmp_path / "older.py").write_text(OLDER, encoding="utf-8")
    network = build(f"{tmp_path}/older.py:{name}", shapes)
    past, future, static = inputs(shapes)
    forecast = network(past, future, static)
    assert forecast.shape == (3, 4, 2, 3)
    moved = past.clone()
    moved[..., :2] += 100.0
    shift = network(moved, future, static) - forecast
    if name == "OlderModule":  # its norm takes the level out and puts it back, once
        torch.testing.assert_close(shift, torch.full_like(shift, 100.0), rtol=1e-3, atol=1e-3)


def test_a_rewritten_file_of_darts_is_a_variant_and_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The team's habit: their tsmixer_model.py over darts'. Here with a norm that darts lacks."""
    source = inspect.getsource(tsmixer_model)
    rewritten = source.replace(
        "norm_type = getattr(layer_norm_variants, norm_type)", "norm_type = FeatureNorm"
    )
    rewritten += (
        "\n\nclass FeatureNorm(nn.LayerNorm):\n"
        "    def __init__(self, sizes):\n"
        "        super().__init__(sizes[-1])\n"
    )
    assert rewritten.count("FeatureNorm") == 2
    (tmp_path / "tsmixer_model.py").write_text(rewritten, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    file = load_study_file("tsmixer_model.py:_TSMixerModule")
    assert file.name == "tsmixer_model.TSMixerModule"
    data = load_data("demo")
    config = RunConfig(
        architecture=file.architecture(),
        hyperparameters=Hyperparameters(
            learning_rate=1e-3, weight_decay=0.0, dropout=0.1, hidden_size=8, batch_size=256
        ),
        training=TrainingSettings(max_epochs=1),
    )
    result = fit(config, data)
    assert result.epochs == 1
    assert result.model is not None
    norm = result.model.get_submodule("module.conditional_mixer.0.time_mixing.norm_after")
    assert type(norm).__name__ == "FeatureNorm"


def test_a_setting_that_such_a_class_does_not_take_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "older.py").write_text(OLDER, encoding="utf-8")
    inner = build(f"{tmp_path}/older.py:NoKeywords", SMALL, depth=3).get_submodule("module")
    assert vars(inner)["depth"] == 3
    with pytest.raises(UsageError, match=r"cannot be called as Class\(input_dim, .*'width'"):
        build(f"{tmp_path}/older.py:NoKeywords", SMALL, width=3)
