"""A trial, from configuration to result: train it alone
on its device, evaluate it, and record everything seen.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch
from optuna.trial import TrialState

from tuner.config import Hyperparameters, RunConfig, StopReason
from tuner.data.prepare import TestWindows
from tuner.data.windows import DeviceData
from tuner.devices import Carried, CpuCores, Gpu, Observation, Watch
from tuner.devices.backend_rules import BackendChoice
from tuner.devices.watch import BusyMeter, used_cpu_s
from tuner.files.checkout import head, is_edited
from tuner.models.own import methods_not_used
from tuner.models.registry import cell_of
from tuner.record import Recorded
from tuner.spec.definition import StudyDefinition
from tuner.spec.objectives import Ended, TimeObjective, measured_times, values_of
from tuner.spec.program import ClockLabel
from tuner.storage.records import TrialResult
from tuner.study.throughput import with_fall
from tuner.training import EpochRecord, Evaluation, FitResult, evaluate, fit
from tuner.training.checkpoint import Checkpoint, CheckpointFiles
from tuner.training.engines.pool import EnginePool
from tuner.training.engines.ranks import Ranks
from tuner.trial.job import TimeLeft, on_device, turn_on, with_energy

# What code a result comes from: versions of packages, and the revision of the checkout.


@functools.cache
def versions() -> dict[str, str | None]:
    """Versions of what a result depends on."""
    found: dict[str, str | None] = {"python": platform.python_version(), "cuda": torch.version.cuda}
    for package in ("tuner", "torch", "optuna", "numpy", "neuralforecast"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    found["torch"] = torch.__version__
    return found


@functools.cache
def git_revision() -> str | None:
    """The revision of the checkout that this code runs from,
    `+changes` when edited; None when installed.
    """
    revision = head()
    if revision is None:
        return None
    return revision + ("+changes" if is_edited() else "")


# A trial's turn on its device.


@contextmanager
def alone_on(
    device: Gpu | CpuCores,
    should_stop: Callable[[], StopReason | None],
    on_phase: Callable[[str], None],
    left: TimeLeft,
) -> Iterator[bool]:
    """The device for oneself, once it is free; False for who is to stop before that. Until then
    nothing is taken of the time that is `left`.

    Raises:
        DeviceLockError: devices cannot be locked.
    """
    with ExitStack() as stack:
        with left.waiting():
            turn = turn_on(device, on_phase, lambda: should_stop() is not None)
            held = stack.enter_context(turn)
        yield held


# A trial that came to its end, as a result: with its two values, or why it has none.


def valued(recorded: Recorded, definition: StudyDefinition) -> TrialResult:
    """The result of a training that ended by itself or at a limit, with its scores and times
    recorded.
    """
    values = values_of(recorded, definition.objectives)
    if values is not None:
        return TrialResult(TrialState.COMPLETE, values, recorded.storable())
    if _missed_target(recorded, definition):
        target, best = definition.target_val_loss, recorded.val_loss
        why = f"the validation loss never came down to {target:g} (its lowest was {best:.6g})"
        missed = dataclasses.replace(recorded, target_missed=True, failure=why)
        return TrialResult(TrialState.PRUNED, None, missed.storable())
    named = ", ".join(f"{name} {recorded.named(name)}" for name in definition.objectives)
    diverged = dataclasses.replace(
        recorded, stopped_by=StopReason.DIVERGED.value, converged=False, failure=f"values {named}"
    )
    return TrialResult(TrialState.FAIL, None, diverged.storable())


def _missed_target(recorded: Recorded, definition: StudyDefinition) -> bool:
    """A sound training that never reached the registered loss: its time is censored, and no number
    stands for it.
    """
    if definition.objectives[0] != TimeObjective.TO_TARGET or recorded.time_to_target_s != math.inf:
        return False
    figures = recorded.val_loss, recorded.named(definition.objectives[1])
    return all(figure is not None and math.isfinite(figure) for figure in figures)


# How good a trial's forecasts are, as it is recorded.


def with_scores(
    recorded: Recorded, evaluation: Evaluation, definition: StudyDefinition
) -> Recorded:
    """With how good the forecasts are. The two MQLs are those of the task's objective series, else
    the means over all forecasts: both rank configurations of the same thing.
    """
    series = definition.task.get("objective_series")
    test_mql, val_mql = evaluation.of_series(series)
    return dataclasses.replace(
        recorded,
        test_mql=test_mql,
        val_mql=val_mql,
        test_mql_mean=evaluation.test_mql_mean,
        series_test_mql=evaluation.test_mql,
        series_val_mql=evaluation.val_mql,
        column_test_mql=evaluation.test_columns,
        column_val_mql=evaluation.val_columns,
        mql_runs=_runs(evaluation, definition),
        block_test_mql={
            str(number): scores.by_series[series] if series else scores.mean
            for number, scores in evaluation.test_blocks.items()
        },
    )


def _runs(evaluation: Evaluation, definition: StudyDefinition) -> list[float] | None:
    """Of the windows that the study's objective is of; None where one is no number."""
    of_test = definition.objectives[1] == "test_mql"
    found = list(evaluation.test_runs if of_test else evaluation.val_runs)
    return found if all(map(math.isfinite, found)) else None


StopCheck = Callable[[], StopReason | None]


def run_config(
    definition: StudyDefinition,
    hyperparameters: Hyperparameters,
    seed: int,
    backend: BackendChoice | None = None,
) -> RunConfig:
    """What a training of one configuration of a study gets; `backend` is what `auto` came to."""
    training = definition.training
    if backend is not None:
        training = training.but(backend=backend.backend)
    return RunConfig(
        architecture=definition.architecture,
        hyperparameters=hyperparameters,
        training=training,
        seed=seed,
    )


def run_trial(
    definition: StudyDefinition,
    hyperparameters: Hyperparameters,
    seed: int,
    data: DeviceData,
    device: Gpu | CpuCores,
    *,
    on_epoch: Callable[[EpochRecord], StopReason | None],
    should_stop: StopCheck,
    on_phase: Callable[[str], None] = lambda _phase: None,
    checkpoints: CheckpointFiles | None = None,
    on_resume: Callable[[Checkpoint], None] = lambda _checkpoint: None,
    engines: EnginePool | None = None,
    windows: TestWindows = TestWindows.ALL,
    backend: BackendChoice | None = None,
    left: TimeLeft | None = None,
    ranks: Ranks | None = None,
) -> TrialResult | None:
    """Train one configuration to convergence, alone on its device; None if it was interrupted.

    The values are those of the study's two objectives, by default the seconds until early stopping
    and the mean quantile loss on `windows` of the task's objective series, else of all.
    Where the time is over that is `left`, once it has the device, it ends as at a time limit. With
    `ranks` these train it together.
    """
    data = data.seeing(hyperparameters.input_size)
    carried, asked, left = Carried(), time.perf_counter(), left or TimeLeft()
    with (
        alone_on(device, should_stop, on_phase, left) as held,
        BusyMeter(device) as meter,
        nullcontext() if ranks is None or not held else ranks.at_work(),
    ):
        if not held:
            return None
        wait_s = time.perf_counter() - asked
        on_phase("set-up")
        watch, left_s = _watch(device, ranks), left.seconds
        if checkpoints is not None:
            checkpoints.notes = _notes_of(carried, watch, time.time(), on_phase)
        result = fit(
            run_config(definition, hyperparameters, seed, backend),
            data,
            on_epoch=lambda each: on_epoch(dataclasses.replace(each, gpu_busy=meter.seen().gpu)),
            should_stop=should_stop,
            checkpoints=checkpoints,
            on_resume=_taking(carried, on_resume),
            engines=engines,
            on_clock=_told_of_clock(watch, meter),
            deadline=None if left_s is None else time.perf_counter() + left_s,
            ranks=ranks,
        )
        observation = carried.merged(watch.finish())
        if result.stopped_by is StopReason.INTERRUPTED:
            return None
        result, evaluation, evaluation_s = _evaluated(result, data, windows, on_phase, engines)
        recorded = _recorded(result, observation, device, seed, backend)
        recorded = dataclasses.replace(recorded, data_streamed=data.streamed or None)
        cell = cell_of(definition.architecture, hyperparameters)
        busy = meter.seen()
        recorded = dataclasses.replace(recorded, gpu_busy=busy.gpu, cpu_busy=busy.cpu)
        recorded = with_fall(
            recorded, result.history, windows=len(data.train), after=result.resumed_from
        )
        if isinstance(device, Gpu) and not result.context_lost:
            recorded = dataclasses.replace(recorded, **_engines_kept(engines), **_memory_held())
    earlier = carried.parts or None
    recorded = dataclasses.replace(recorded, timed_earlier=earlier, wait_s=wait_s, cell=cell)
    whole_trial = _with_totals(recorded, result, definition, evaluation_s)
    whole_trial = with_energy(whole_trial, observation.energy_j)
    return _to_trial_result(result, evaluation, whole_trial, definition)


def _watch(device: Gpu | CpuCores, ranks: Ranks | None) -> Watch:
    """Of the device, where none of the ranks is a stranger."""
    if ranks is None:
        return Watch(device)
    return Watch(device, own_cpu_s=lambda: used_cpu_s() + ranks.cpu_s(), ranks=ranks.pids)


def _told_of_clock(watch: Watch, meter: BusyMeter) -> Callable[[bool], None]:
    """What a training's clock tells. Joules are read before its first start and, by `watch`, once
    it has stopped: between two epochs a training waits for nothing that it need not.
    """
    first = True

    def told(runs: bool) -> None:
        nonlocal first
        if runs and first:
            first = False
            watch.clock_starts()
        meter.clock_runs(runs)

    return told


def _taking(carried: Carried, told: Callable[[Checkpoint], None]) -> Callable[[Checkpoint], None]:
    """What a checkpoint that is continued from is told to."""

    def resumed(checkpoint: Checkpoint) -> None:
        carried.take(checkpoint.notes)
        told(checkpoint)

    return resumed


def _notes_of(
    carried: Carried, watch: Watch, since: float, on_phase: Callable[[str], None]
) -> Callable[[], dict[str, Any]]:
    """What a checkpoint notes of the device, from `since` until it is written."""

    def notes() -> dict[str, Any]:
        on_phase("checkpoint")
        return carried.notes(watch.finish(), since, time.time())

    return notes


def _evaluated(
    result: FitResult,
    data: DeviceData,
    windows: TestWindows,
    on_phase: Callable[[str], None],
    engines: EnginePool | None,
) -> tuple[FitResult, Evaluation | None, float]:
    """What is left of a training without its network, the scores of one that came to its end, and
    the seconds that they took.
    """
    on_phase("evaluation")
    began = time.perf_counter()
    make_room = None if engines is None else engines.empty
    evaluation = (
        evaluate(result.model, data, make_room=make_room, windows=windows)
        if result.stopped_by.completed and result.model is not None
        else None
    )
    return dataclasses.replace(result, model=None), evaluation, time.perf_counter() - began


def _to_trial_result(
    result: FitResult,
    evaluation: Evaluation | None,
    recorded: Recorded,
    definition: StudyDefinition,
) -> TrialResult:
    if evaluation is not None:
        ended = valued(with_scores(recorded, evaluation, definition), definition)
        if ended.state is not TrialState.FAIL:
            return ended
        recorded = ended.recorded
    if result.message:
        recorded = dataclasses.replace(recorded, failure=result.message)
    state = TrialState.PRUNED if result.stopped_by is StopReason.PRUNED else TrialState.FAIL
    return TrialResult(state, None, recorded.storable())


def windows_of(definition: StudyDefinition, *, confirms: bool) -> TestWindows:
    """The test windows that a run of a study forecasts: all, or, where the study keeps a last
    block, that one in a confirmation and the others in whatever else runs.
    """
    if not definition.keeps_last_block:
        return TestWindows.ALL
    return TestWindows.LAST_BLOCK if confirms else TestWindows.SEARCHED


_OF_FIT = (
    *("epochs", "best_epoch", "s_per_epoch", "setup_s", "samples_per_s"),
    *("peak_memory_bytes", "n_parameters", "timed_from", "timed_until"),
    "checkpoint_load_s",
)
"""What a record has as the training says it."""


def _recorded(
    result: FitResult,
    observation: Observation,
    device: Gpu | CpuCores,
    seed: int,
    choice: BackendChoice | None = None,
) -> Recorded:
    recorded = Recorded(
        stopped_by=result.stopped_by.value,
        converged=result.stopped_by is StopReason.CONVERGED,
        val_loss=result.best_val_loss,
        backend=result.backend.value,
        backend_fallback=result.backend_fallback or (choice.reason if choice else "") or None,
        backend_measured=choice.measured or None if choice else None,
        precision=result.precision.value,
        seed=seed,
        contaminated=observation.contaminated,
        contamination=observation.why,
        device_watch=observation.details,
        versions=versions(),
        git_revision=git_revision(),
        clock=ClockLabel.TUNER.value,
        resumed_from_epoch=result.resumed_from or None,
        context_lost=result.context_lost or None,
        n_frozen=result.n_frozen or None,
        **{name: getattr(result, name) for name in _OF_FIT},
    )
    return on_device(recorded, device)


def _with_totals(
    recorded: Recorded, result: FitResult, definition: StudyDefinition, evaluation_s: float
) -> Recorded:
    """With what is known of the trial as a whole: its times, whichever its study minimises, and
    which methods of its class nothing called.
    """
    ended = Ended(
        history=result.history,
        wall_clock_s=result.wall_clock_s,
        time_to_best_s=result.time_to_best_s,
        total_s=result.total_s + evaluation_s,
        target_val_loss=definition.target_val_loss,
    )
    times: dict[str, Any] = measured_times(ended)
    return dataclasses.replace(
        recorded,
        evaluation_s=evaluation_s,
        unused_methods=list(methods_not_used(definition.architecture)) or None,
        **times,
    )


def _engines_kept(engines: EnginePool | None) -> dict[str, Any]:
    """The engines that stay for trials to come, if any may.

    Where none do, memory that torch holds and nobody uses goes back to the device; else it stays as
    well: the next trial asks for the same, and would wait for it.
    """
    if engines is not None:
        return {"kept_engines": len(engines), "kept_engines_bytes": engines.n_bytes}
    torch.cuda.empty_cache()
    return {}


def _memory_held() -> dict[str, Any]:
    """What this process still holds on its GPU when a trial's network is gone: it must not grow
    over a study.
    """
    return {
        "allocated_memory_bytes": torch.cuda.memory_allocated(),
        "reserved_memory_bytes": torch.cuda.memory_reserved(),
    }
