"""Readings: today's networks by default, and what each choice builds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import pytest
import torch
from torch import nn

from tuner.config import Architecture, Backend, Hyperparameters, ModelShapes, RunConfig
from tuner.config import TrainingSettings as Settings
from tuner.errors import UsageError
from tuner.models.names import builtin_names
from tuner.models.read_mixer import AxesNorm, ReadTSMixer
from tuner.models.readings import CHOICES, Reading
from tuner.models.registry import build_model
from tuner.models.tsmixer import DESIGNS, TSMixer
from tuner.training.engines.choose import choose_backend

SHAPES = ModelShapes(
    input_size=12, horizon=4, n_targets=3, n_past=1, n_future=2, n_static=1, n_quantiles=5
)
USUAL = {each.name: each.default for each in fields(Reading)}


def hyperparameters(**own: Any) -> Hyperparameters:
    return Hyperparameters(
        learning_rate=1e-3, weight_decay=0.0, batch_size=4, dropout=0.1, hidden_size=8, own=own
    )


def built(variant: str, settings: Mapping[str, Any], **own: Any) -> TSMixer:
    torch.manual_seed(3)
    architecture = Architecture(model=variant, settings=settings)
    model = build_model(architecture, SHAPES, hyperparameters(**own))
    assert isinstance(model, TSMixer)
    return model


def batch() -> tuple[torch.Tensor, ...]:
    return torch.randn(5, 12, 6), torch.randn(5, 4, 2), torch.randn(5, 1)


@pytest.mark.parametrize("variant", builtin_names())
def test_the_usual_reading_is_the_variant_bit_for_bit(variant: str) -> None:
    torch.manual_seed(3)
    expected = TSMixer(SHAPES, DESIGNS[variant], hidden_size=8, dropout=0.1)
    drawn = torch.get_rng_state()
    model = built(variant, USUAL)
    assert torch.equal(torch.get_rng_state(), drawn)
    assert type(model) is TSMixer
    for (name, weight), (same, mine) in zip(
        expected.state_dict().items(), model.state_dict().items(), strict=True
    ):
        assert name == same
        assert torch.equal(weight, mine)


CHANGES = [
    (name, value)
    for name, told in CHOICES.items()
    for value in told.metadata.get("choices", (1.0, 0.5))[1:]
]


@pytest.mark.parametrize("variant", ["rmsnorm", "layernorm", "simple"])
@pytest.mark.parametrize(("name", "value"), CHANGES)
def test_a_step_of_each_choice_has_finite_gradients(variant: str, name: str, value: Any) -> None:
    model = built(variant, {name: value})
    out = model(*batch())
    assert out.shape == (5, 4, 3, 5)
    out.square().mean().backward()
    for each in model.parameters():
        assert each.grad is not None
        assert each.grad.isfinite().all()
    model.eval()
    with torch.no_grad():
        assert model(*batch()).isfinite().all()


def test_a_read_network_of_the_same_choices_computes_the_same() -> None:
    usual = built("rmsnorm", {}).eval()
    read = built("rmsnorm", {"hidden_dropout": False}).eval()
    state = usual.state_dict()
    for name in [name for name in state if name.endswith(".enter.weight")]:
        for kind in ("weight", "bias"):
            key = name.replace("weight", kind)
            if len(state[key]) > 8:  # mixing and residual in one
                state[key], state[key.replace("enter", "projection")] = state[key].split(8)
    read.load_state_dict(state)
    given = batch()
    torch.testing.assert_close(read(*given), usual(*given))


def test_a_choice_can_be_searched() -> None:
    model = built("simple", {"n_blocks": 1}, norm="none", kernel_size=3)
    assert isinstance(model, ReadTSMixer)
    assert model.reading.changed == {"norm": "none", "kernel_size": 3}


def test_a_norm_is_that_of_torch_over_the_same_axes() -> None:
    plane = torch.randn(2, 8, 4)
    ours = AxesNorm((1, 2), (8, 1), centred=True, biased=True)
    torch.testing.assert_close(ours(plane), nn.GroupNorm(1, 8)(plane))


def test_no_bias_is_trained_where_there_is_none() -> None:
    named = [name for name, _ in built("rmsnorm", {"biases": "none"}).named_parameters()]
    biases = [name for name in named if name.endswith("bias")]
    assert biases == ["reversible_norm.bias", "time_projection.bias"]


def test_other_initial_weights_stay_a_network_that_every_engine_serves() -> None:
    model = built("rmsnorm", {"initialisation": "he_normal", "biases": "zero"})
    assert type(model) is TSMixer
    assert not any(each.any() for name, each in model.state_dict().items() if "bias" in name)


def test_kernels_do_not_serve_other_layers_and_the_reason_is_told() -> None:
    settings = Settings(backend=Backend.COMPILE)
    architecture = Architecture(model="rmsnorm", settings={"norm": "none"})
    config = RunConfig(
        architecture=architecture, hyperparameters=hyperparameters(), training=settings
    )
    model = built("rmsnorm", architecture.settings)
    backend, reason = choose_backend(config, SHAPES, model, torch.device("cpu"))
    assert (backend, reason) == (
        Backend.EAGER,
        "the kernels for a CPU serve the built-in networks only",
    )


@pytest.mark.parametrize(
    ("variant", "settings", "said"),
    [
        ("rmsnorm", {"norm": "nine"}, "norm must be one of 'variant', 'none', 'rms', 'layer', not"),
        ("rmsnorm", {"kernel_size": True}, "kernel_size must be one of 1, 3, 5, 7, not True"),
        ("rmsnorm", {"gain": 0.0}, r"gain must be a number of at least 0.01, not 0.0"),
        ("original", {"kernel_size": 3}, "this variant has no convolutions"),
        ("batchnorm", {"norm_axes": "plane"}, "BatchNorm has its own"),
    ],
)
def test_what_a_variant_cannot_have_is_told(
    variant: str, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(UsageError, match=said):
        built(variant, settings)
