"""A look at a network in a few steps names what takes no part, and nothing of what does."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from tests.support.networks_to_look_at import Linear, step_of
from tuner.config import Architecture, Hyperparameters, ModelShapes
from tuner.data.windows import DeviceData
from tuner.models.names import builtin_names
from tuner.models.registry import build_model
from tuner.training.inspection.look import Findings, look


def findings(model: nn.Module, data: DeviceData) -> Findings:
    return look(step_of(model, data), data, 16)


def dead(model: nn.Module, data: DeviceData) -> list[str]:
    return [each.name for each in findings(model, data).dead_parameters]


def test_nothing_is_said_of_a_network_that_uses_everything(data: DeviceData) -> None:
    assert findings(Linear(data.shapes), data) == Findings(
        constant_forecasts=findings(Linear(data.shapes), data).constant_forecasts
    )
    assert findings(Linear(data.shapes), data).notices("net.py:Linear") == ()


@pytest.mark.parametrize("name", builtin_names())
def test_nothing_is_said_of_the_built_in_networks(name: str, data: DeviceData) -> None:
    sizes = Hyperparameters(
        learning_rate=1e-3, weight_decay=0.0, dropout=0.1, hidden_size=8, batch_size=16
    )
    model = build_model(Architecture(model=name), data.shapes, sizes)
    assert findings(model, data).notices(name) == ()


class Unused(Linear):
    def __init__(self, shapes: ModelShapes) -> None:
        super().__init__(shapes)
        self.body = nn.Sequential(nn.Linear(1, 64), nn.Linear(64, 64))
        self.cut = nn.Parameter(torch.ones(3))
        self.frozen = nn.Parameter(torch.ones(3), requires_grad=False)

    def forward(self, *given: Tensor) -> Tensor:
        unheard = self.cut.detach().sum() + 0 * self.body(given[0][0, :1, :1]).sum()
        forecast: Tensor = super().forward(*given) + unheard
        return forecast


def test_a_parameter_without_a_gradient_is_named_and_a_frozen_one_is_not(data: DeviceData) -> None:
    names = dead(Unused(data.shapes), data)
    assert names == ["cut", "body.0.weight", "body.0.bias", "body.1.weight", "body.1.bias"]
    (notice,) = findings(Unused(data.shapes), data).notices("net.py:Unused")
    assert notice.startswith(
        "net.py:Unused: parameters cut (3), body.0.weight (64 x 1), body.0.bias (64) and 2 more "
        "never get a gradient"
    )


class Sleeping(Linear):
    """Three gates behind each other, all of which begin at 0."""

    def __init__(self, shapes: ModelShapes) -> None:
        super().__init__(shapes)
        self.gates = nn.ParameterList(nn.Parameter(torch.zeros(1)) for _ in range(3))
        self.within = nn.Linear(shapes.input_size, 1)

    def forward(self, *given: Tensor) -> Tensor:
        x: Tensor = self.within(given[0].transpose(1, 2)).mean()
        for gate in self.gates:
            x = gate * (x + 1.0)
        return super().forward(*given) + x


def test_what_begins_at_zero_is_not_taken_for_dead(data: DeviceData) -> None:
    assert dead(Sleeping(data.shapes), data) == []


def test_a_parameter_is_not_dead_because_of_a_column_that_is_zero(data: DeviceData) -> None:
    assert data.train.static is not None
    train = replace(data.train, static=torch.zeros_like(data.train.static))
    assert dead(Linear(data.shapes), replace(data, train=train)) == []


class ConstantQuantile(Linear):
    def forward(self, *given: Tensor) -> Tensor:
        parts = super().forward(*given).unbind(-1)
        return torch.stack([*parts[:2], parts[2] * 0, *parts[3:]], -1)


class ConstantStep(Linear):
    def forward(self, *given: Tensor) -> Tensor:
        out = super().forward(*given)
        return torch.cat([out[:, :1] * 0 + 0.5, out[:, 1:]], 1)


class Constant(Linear):
    def forward(self, *given: Tensor) -> Tensor:
        return super().forward(*given).clamp(2.0, 2.0)


class OneConstant(Linear):
    def forward(self, *given: Tensor) -> Tensor:
        mask = torch.ones(self.shapes.horizon, self.shapes.n_targets, self.shapes.n_quantiles)
        mask[0, 0, 0] = 0
        return super().forward(*given) * mask


class BiasOnly(Linear):
    """The same for every window, but training changes it."""

    def forward(self, *given: Tensor) -> Tensor:
        return super().forward(*(torch.ones_like(each) for each in given))


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        (ConstantQuantile, "all forecasts of quantile 0.5 are the same for every window"),
        (ConstantStep, "all forecasts of time step 1 are the same"),
        (Constant, "all forecasts are the same"),
        (OneConstant, "a window's forecasts: 1 of 60 are the same"),
    ],
)
def test_forecasts_that_never_change_are_said_in_few_words(
    kind: type[Linear], says: str, data: DeviceData
) -> None:
    said = findings(kind(data.shapes), data).notices("m")
    assert len([line for line in said if says in line]) == 1, said


def test_forecasts_that_training_changes_are_not_dead(data: DeviceData) -> None:
    found = findings(BiasOnly(data.shapes), data)
    assert found.constant_forecasts.count == 0
    assert found.ignored_inputs == (
        "the targets' past",
        "future covariates",
        "static covariates",
    )


class Deaf(Linear):
    def forward(self, past: Tensor, future: Tensor, static: Tensor) -> Tensor:
        return super().forward(past, torch.zeros_like(future), static)


class PastOfFutureOnly(Linear):
    """Future covariates count though the horizon's are not used."""

    def forward(self, past: Tensor, future: Tensor, static: Tensor) -> Tensor:
        s = self.shapes
        known = past[:, -s.horizon :, -s.n_future :]
        return super().forward(past, known, static)


def test_an_input_that_changes_nothing_is_named(data: DeviceData) -> None:
    assert findings(Deaf(data.shapes), data).ignored_inputs == ("future covariates",)
    assert findings(PastOfFutureOnly(data.shapes), data).ignored_inputs == ()


class Diverging(Linear):
    def __init__(self, shapes: ModelShapes) -> None:
        super().__init__(shapes)
        self.steps = 0

    def forward(self, *given: Tensor) -> Tensor:
        self.steps += self.training
        return super().forward(*given) * (float("nan") if self.steps == 3 else 1.0)


def test_a_loss_that_becomes_no_number_ends_the_look(data: DeviceData) -> None:
    (notice,) = findings(Diverging(data.shapes), data).notices("m")
    assert notice.startswith("m: the loss is nan after 3 steps; begin with a lower learning_rate")


def test_a_look_leaves_the_random_state_as_it_was(data: DeviceData) -> None:
    model = Linear(data.shapes)
    before = torch.get_rng_state()
    findings(model, data)
    assert torch.equal(torch.get_rng_state(), before)
