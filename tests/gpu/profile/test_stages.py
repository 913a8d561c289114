"""The stages of eager and captured steps on a GPU: they add up, in each engine."""

from __future__ import annotations

import dataclasses
import itertools
import statistics
from collections.abc import Iterator

import pytest
import torch

from tuner.config import Architecture, Backend, Hyperparameters, RunConfig
from tuner.data.windows import DeviceData
from tuner.devices import list_gpus
from tuner.estimate.driven import running
from tuner.profile.profile_records import BY_REPLAY, Advice, ReplayRecorder
from tuner.profile.stage_times import measure, of_capture
from tuner.profile.step_operations import operations
from tuner.profile.tried_advice import Candidate, Trials, candidates
from tuner.profile.variant_profile import profile_variant
from tuner.training import fit
from tuner.training.stage_marks import Stage

SIZES = Hyperparameters(
    learning_rate=1e-3, weight_decay=0.0, dropout=0.1, hidden_size=64, batch_size=128
)
STEP = (Stage.DATA, Stage.FORWARD, Stage.BACKWARD, Stage.OPTIMISER)


def config(backend: Backend) -> RunConfig:
    plain = RunConfig(architecture=Architecture(model="original"), hyperparameters=SIZES)
    return dataclasses.replace(plain, training=plain.training.but(backend=backend))


@pytest.mark.parametrize("backend", [Backend.EAGER, Backend.GRAPH, Backend.TRITON])
def test_the_stages_of_each_engine_add_up(backend: Backend, cuda_data: DeviceData) -> None:
    found = measure(config(backend), cuda_data, steps=100)
    assert found.pace.backend == backend.value
    assert found.stages.epoch_s == pytest.approx(found.pace.epoch_s, rel=0.05)
    assert found.stages.share(Stage.OTHER) < 0.10, found.stages
    for stage in STEP:
        assert found.stages.seconds[stage] > 0, found.stages
    if backend is not Backend.EAGER:
        assert "timing events" in found.stages.how


def test_a_compiled_step_has_all_stages(cuda_data: DeviceData) -> None:
    """It compiles beside other tests, so their times are not added up."""
    found = measure(config(Backend.COMPILE), cuda_data, steps=20)
    assert found.pace.backend == Backend.COMPILE.value
    assert "timing events" in found.stages.how
    for stage in STEP:
        assert found.stages.seconds[stage] > 0, found.stages


@pytest.mark.parametrize("backend", [Backend.GRAPH, Backend.TRITON])
def test_the_epoch_is_that_of_a_training(backend: Backend, cuda_data: DeviceData) -> None:
    """Sum of the stages beside the clock of `fit`, in turns. By itself, what lies between epochs
    waits for the device; in a training the host goes on: up to half a millisecond. Plain steps are
    not compared: on a virtual machine their pace changes by a fifth from one second to the next.
    """
    several = config(backend)
    several = dataclasses.replace(
        several, training=several.training.but(max_epochs=12, patience=12)
    )
    times = []
    for _ in range(3):
        foretold_s = measure(several, cuda_data, steps=100).stages.epoch_s
        elapsed = [record.elapsed_s for record in fit(several, cuda_data).history]
        epoch_s = statistics.median(b - a for a, b in itertools.pairwise(elapsed))
        times.append((foretold_s, epoch_s))
    ratio = statistics.median(foretold_s / epoch_s for foretold_s, epoch_s in times)
    assert ratio == pytest.approx(1, abs=0.10 + 5e-4 / times[-1][1]), times


def test_the_stages_of_a_capture_are_told_by_events(cuda_data: DeviceData) -> None:
    found, how = of_capture(config(Backend.GRAPH), cuda_data)
    assert how == BY_REPLAY
    assert all(found.seconds[stage] > 0 for stage in STEP)


def test_a_capture_without_a_recorder_holds_nothing_of_it(cuda_data: DeviceData) -> None:
    """As many kernels, whether stages are recorded or not: events are no kernels."""

    def kernels(mark: object) -> float | None:
        named = {} if mark is None else {"mark": mark}
        with running(config(Backend.GRAPH), cuda_data, **named) as found:  # type: ignore[arg-type]
            found.steps(4)
            launched = operations(lambda: found.steps(2), torch.device("cuda"), steps=2, trace=None)
        return launched.kernels

    kernels(None)  # the first graph of a process copies by a kernel that no later one has
    assert kernels(None) == kernels(ReplayRecorder())


def test_a_whole_profile_with_advice_names_kernels_memory_and_utilisation(
    cuda_data: DeviceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what it would try, a captured step alone: the rest is compiled for a minute."""

    def captured_step(now: Trials) -> Iterator[Candidate | Advice]:
        for each in candidates(now):
            advice = each.advice if isinstance(each, Candidate) else each
            if advice.change.startswith("backend graph"):
                yield each

    monkeypatch.setattr("tuner.profile.variant_profile.candidates", captured_step)
    gpu = list_gpus({})[0]
    found = profile_variant("original", config(Backend.EAGER), cuda_data, gpu, steps=60)
    assert found.operations.kernels
    assert found.operations.kernel_s
    assert all(each.peak_bytes for each in found.memory)
    captured = next(each for each in found.advice if each.change.startswith("backend graph"))
    assert captured.gain is not None
    assert captured.gain > 1.5  # an eager step of a small network waits for the host
