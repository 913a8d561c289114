"""Faults that are planted in networks: found, and what their repair gives is measured."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor, nn

from tuner.config import Architecture, ModelShapes, RunConfig
from tuner.data.windows import DeviceData
from tuner.estimate.driven import Running, running
from tuner.profile.profile_records import (
    Advice,
    Operations,
    Pace,
    Profile,
    Stages,
    bottleneck,
    ranked,
)
from tuner.profile.stage_times import measure_pace
from tuner.profile.tried_advice import Candidate, Trials
from tuner.profile.variant_faults import Faults, batched_gain, dead_parts, faults_in, loops_in
from tuner.training.stage_marks import Stage


class Planted(nn.Module):
    """One linear layer, and a fault."""

    def __init__(self, shapes: ModelShapes, *, fault: str) -> None:
        super().__init__()
        self.shapes, self.fault = shapes, fault
        self.layer = nn.Linear(shapes.input_size, shapes.horizon * shapes.n_quantiles)
        if fault == "dead":
            wide = [nn.Linear(shapes.input_size, 1500), nn.Linear(1500, 1500), nn.Linear(1500, 1)]
            self.pooling = nn.Sequential(*wide)
        if fault == "loop":
            sizes = shapes.input_size, shapes.input_size
            self.encoders = nn.ModuleList(nn.Linear(*sizes) for _ in range(24))

    def forward(self, past: Tensor, future: Tensor, static: Tensor) -> Tensor:
        s = self.shapes
        own = past[..., : s.n_targets].transpose(1, 2)
        if self.fault == "dead":
            own = own + 0.0 * self.pooling(own)
        if self.fault == "loop":
            own = own + torch.stack([encoder(own) for encoder in self.encoders]).mean(0)
        if self.fault == "wait" and own.mean().item() > 1e9:
            own = -own
        out: Tensor = self.layer(own).unflatten(-1, (s.horizon, s.n_quantiles)).transpose(1, 2)
        return out


def planted(config: RunConfig, fault: str) -> RunConfig:
    sizes = dataclasses.replace(config.hyperparameters, dropout=None, hidden_size=None)
    return dataclasses.replace(
        config,
        architecture=Architecture(model=f"{__file__}:Planted", settings={"fault": fault}),
        hyperparameters=sizes,
    )


@pytest.fixture(scope="module")
def found(config: RunConfig, data: DeviceData) -> dict[str, Faults]:
    kinds = ("none", "dead", "loop", "wait")
    return {kind: faults_in(planted(config, kind), data) for kind in kinds}


def test_a_sound_network_has_no_fault(found: dict[str, Faults]) -> None:
    assert found["none"] == Faults(), found["none"]


def test_each_fault_is_found_in_its_network_alone(found: dict[str, Faults]) -> None:
    assert found["dead"].dead == ("pooling",)
    assert not found["loop"].dead
    (loop,) = found["loop"].loops
    assert (loop.name, loop.kind, len(loop.calls)) == ("encoders.*", "Linear", 24)
    assert not found["dead"].loops
    (wait,) = found["wait"].waits.found
    assert wait.what == ".item()"


PACE = Pace(batch_size=32, windows=100, step_s=0.01, epoch_s=0.1)
STAGES = Stages(seconds={Stage.FORWARD: 1.0}, how="", difference=0.0)


def trials(
    config: RunConfig, data: DeviceData, faults: Faults, pace: Pace, beside: Running | None = None
) -> Trials:
    return Trials(
        config=config,
        data=data,
        seen=Profile(subject="", device="", settings={}, pace=pace, stages=STAGES),
        steps=15,
        announce=lambda _line: None,
        faults=faults,
        beside=beside,
    )


def test_what_a_dead_branch_costs_is_measured_without_it(
    config: RunConfig, data: DeviceData, found: dict[str, Faults]
) -> None:
    dead = planted(config, "dead")
    present, _ = measure_pace(dead, data, steps=15)
    (advice,) = trials(dead, data, found["dead"], present).of_faults()
    assert advice.fault
    assert "pooling" in advice.change
    assert advice.gain is not None
    assert advice.gain > 1.5
    said = bottleneck(ranked([advice]), STAGES, Operations(), present)
    assert said.startswith("No parameter of pooling ever gets a gradient")


def test_a_wait_is_a_fault_though_a_cpu_has_no_gain_of_it(
    config: RunConfig, data: DeviceData, found: dict[str, Faults]
) -> None:
    wait = planted(config, "wait")
    (advice,) = trials(wait, data, found["wait"], PACE).of_faults()
    assert advice.fault
    assert advice.gain is None
    assert "GPU" in advice.outcome


def test_calls_of_parts_with_weights_of_their_own_are_timed_as_one(
    found: dict[str, Faults],
) -> None:
    (loop,) = found["loop"].loops
    apart, together = batched_gain(loop, torch.device("cpu"), fused=True)
    assert apart > together > 0


def test_calls_of_one_part_are_timed_as_one_batch() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder = nn.Linear(8, 8)

        def forward(self, given: Tensor) -> Tensor:
            return torch.stack([self.encoder(each) for each in given.unbind(1)])

    model, given = Shared(), torch.randn(4, 16, 8)
    (loop,) = loops_in(model, lambda: model(given), torch.device("cpu"))
    assert (loop.name, len(loop.calls)) == ("encoder", 16)
    apart, together = batched_gain(loop, torch.device("cpu"), fused=True)
    assert apart > together > 0


class Chain(nn.Module):
    """Twelve layers, each of which is given what the one before it gave."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(64, 64) for _ in range(12)])

    def forward(self, given: Tensor) -> Tensor:
        for layer in self.layers:
            given = torch.relu(layer(given)) + given
        return given


class Recurrent(nn.Module):
    """One layer, which is given its own output, with a copy of the input."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(64, 64)

    def forward(self, given: Tensor) -> Tensor:
        state = given
        for _ in range(12):
            state = torch.tanh(self.cell(state)).add_(given)
        return state


class Heads(nn.Module):
    """Two layers of twelve heads: those of the second need all of the first. They are large: what
    lies between their calls takes no share of the time, on a busy machine either.
    """

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [nn.ModuleList([nn.Linear(256, 256) for _ in range(12)]) for _ in range(2)]
        )

    def forward(self, given: Tensor) -> Tensor:
        for heads in self.layers:
            assert isinstance(heads, nn.ModuleList)
            given = torch.stack([head(given) for head in heads]).mean(0)
        return given


@pytest.mark.parametrize("model", [Chain(), Recurrent()], ids=["chain", "recurrent"])
def test_calls_that_need_each_other_are_no_loop(model: nn.Module) -> None:
    given = torch.randn(256, 64)
    assert loops_in(model, lambda: model(given), torch.device("cpu")) == []


def test_what_could_be_called_at_once_is_a_loop_though_others_need_it() -> None:
    model, given = Heads(), torch.randn(512, 256)
    (loop,) = loops_in(model, lambda: model(given), torch.device("cpu"))
    assert (loop.name, len(loop.calls)) == ("layers.*.*", 12)
    assert len({call.part for call in loop.calls}) == 12


def test_the_largest_dead_part_stands_for_what_is_in_it() -> None:
    model = nn.Sequential(nn.Linear(1, 1), nn.Sequential(nn.Linear(1, 1), nn.Linear(1, 1)))
    names = [name for name, _ in model.named_parameters() if name.startswith("1.")]
    assert dead_parts(model, names) == ("1",)
    assert dead_parts(model, [*names[:-1]]) == ("1.0",)
    assert dead_parts(model, []) == ()


def test_a_gain_is_by_the_present_training_as_it_runs_beside_what_is_tried(
    config: RunConfig, data: DeviceData
) -> None:
    """Not by what it took before, when nobody else used the machine: steps, and all of an epoch."""
    present, _ = measure_pace(config, data, steps=15)
    quiet = dataclasses.replace(present, step_s=present.step_s / 8)
    with running(config, data) as beside:
        tried = trials(config, data, Faults(), quiet, beside)
        (same,) = tried.of_settings([Candidate(Advice(change="nothing"), config)])
    assert same.gain is not None
    assert 0.4 < same.gain < 2.5
    assert same.epoch_s == pytest.approx(present.epoch_s / same.gain)
