"""The skeleton and its five variants."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from tests.support.present import present
from tests.support.weight_map import original_to_simple
from tuner.config import Architecture, Hyperparameters, ModelShapes
from tuner.models.names import builtin_names
from tuner.models.registry import build_model
from tuner.models.tsmixer import DESIGNS

SHAPES = ModelShapes(
    input_size=20, horizon=6, n_targets=3, n_past=1, n_future=4, n_static=1, n_quantiles=5
)
B = 4


def _model(
    name: str, shapes: ModelShapes = SHAPES, hidden_size: int = 8, **settings: Any
) -> nn.Module:
    hyperparameters = Hyperparameters(
        learning_rate=1e-3, weight_decay=0.0, dropout=0.3, hidden_size=hidden_size, batch_size=B
    )
    return build_model(Architecture(model=name, settings=settings), shapes, hyperparameters)


def _inputs(shapes: ModelShapes = SHAPES) -> tuple[Tensor, Tensor | None, Tensor | None]:
    return (
        torch.randn(B, shapes.input_size, shapes.n_targets + shapes.n_past + shapes.n_future),
        torch.randn(B, shapes.horizon, shapes.n_future) if shapes.n_future else None,
        torch.randn(B, shapes.n_static) if shapes.n_static else None,
    )


@pytest.mark.parametrize("name", builtin_names())
@pytest.mark.parametrize(
    "missing", [(), ("n_past",), ("n_future",), ("n_static",), ("n_past", "n_future", "n_static")]
)
def test_every_variant_forecasts_with_any_set_of_covariates(
    name: str, missing: tuple[str, ...]
) -> None:
    sizes = {field: getattr(SHAPES, field) for field in SHAPES.__slots__}
    shapes = ModelShapes(**{**sizes, **dict.fromkeys(missing, 0)})
    output = _model(name, shapes)(*_inputs(shapes))
    assert output.shape == (B, 6, 3, 5)
    assert torch.isfinite(output).all()


@pytest.mark.parametrize("name", builtin_names())
def test_every_parameter_of_every_variant_is_trained(name: str) -> None:
    model = _model(name)
    model(*_inputs()).square().sum().backward()
    assert not [n for n, p in model.named_parameters() if p.grad is None]


def test_names_and_designs_are_the_same_list() -> None:
    assert tuple(DESIGNS) == builtin_names()


def test_one_seed_starts_original_and_simple_as_the_same_function() -> None:
    torch.manual_seed(0)
    original = _model("original").eval()
    torch.manual_seed(0)
    simple = _model("simple").eval()
    for name, value in original_to_simple(original.state_dict()).items():
        assert torch.equal(value, simple.state_dict()[name]), name
    inputs = _inputs()
    torch.testing.assert_close(simple(*inputs), original(*inputs))


AT_THE_DOORS = 5
"""Transposes outside the channel-first planes: two around the projection over the window's hours
(its CPU form), past and future on their way in, the forecast on its way out."""


class _Transposes(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.count: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("name", ["rmsnorm", "simple", "batchnorm"])
def test_channel_first_variants_permute_only_at_the_doors(name: str) -> None:
    model, inputs = _model(name).eval(), _inputs()
    with _Transposes() as seen, torch.no_grad():
        model(*inputs)
    assert seen.count["transpose"] == AT_THE_DOORS
    assert seen.count["permute"] == 0


def test_the_layernorm_variant_pays_two_transposes_for_each_norm() -> None:
    model, inputs = _model("layernorm").eval(), _inputs()
    with _Transposes() as seen, torch.no_grad():
        model(*inputs)
    # Past and future mixing, then static, time and feature mixing in each of two blocks.
    n_norms = 2 + 3 * 2
    assert seen.count["transpose"] == AT_THE_DOORS + 2 * n_norms


def test_the_feed_forward_size_follows_the_hidden_size_unless_set() -> None:
    contract = "past_mixing.contract.weight"
    assert _model("original", hidden_size=12).get_parameter(contract).shape[1] == 12
    model = _model("original", hidden_size=12, feed_forward_size=20)
    assert model.get_parameter(contract).shape[1] == 20


def _n_blocks(model: nn.Module) -> int:
    return len(list(model.get_submodule("blocks").children()))


def test_n_blocks_is_the_number_of_mixer_blocks() -> None:
    assert _n_blocks(_model("original")) == 2
    model = _model("rmsnorm", n_blocks=3)
    assert _n_blocks(model) == 3
    assert model(*_inputs()).shape == (B, 6, 3, 5)


@pytest.mark.parametrize("name", builtin_names())
def test_dropout_is_drawn_in_training_and_absent_in_evaluation(name: str) -> None:
    model, inputs = _model(name), _inputs()
    assert not torch.equal(model(*inputs), model(*inputs))
    model.eval()
    assert torch.equal(model(*inputs), model(*inputs))


@pytest.mark.parametrize("name", ["original", "rmsnorm", "layernorm", "simple"])
@pytest.mark.parametrize("n_static", [1, 8])
def test_evaluation_is_training_without_dropout(name: str, n_static: int) -> None:
    """Static covariates are mixed for every hour in training, for one otherwise; hidden is 8."""
    shapes = replace(SHAPES, n_static=n_static)
    model, inputs = _model(name, shapes), _inputs(shapes)
    evaluated = model.eval()(*inputs)
    for module in model.modules():
        if "dropout" in vars(module):
            vars(module)["dropout"] = 0.0
    torch.testing.assert_close(model.train()(*inputs), evaluated)


@pytest.mark.parametrize("name", ["original", "rmsnorm", "layernorm", "simple"])
def test_a_forecast_depends_on_its_own_window_alone(name: str) -> None:
    model, (past, future, static) = _model(name).eval(), _inputs()
    together = model(past, future, static)
    alone = model(past[:1], present(future)[:1], present(static)[:1])
    torch.testing.assert_close(together[:1], alone)


def test_a_window_moved_and_stretched_moves_and_stretches_its_forecast() -> None:
    torch.manual_seed(1)
    shapes = ModelShapes(
        input_size=20, horizon=6, n_targets=2, n_past=0, n_future=0, n_static=0, n_quantiles=3
    )
    model, (past, _, _) = _model("original", shapes).double().eval(), _inputs(shapes)
    past = past.double() * 50
    torch.testing.assert_close(model(past * 3 + 10), model(past) * 3 + 10, rtol=1e-6, atol=1e-6)
