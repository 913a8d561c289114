"""A trial, from configuration to result: train it alone on its device, evaluate it, and record everything seen."""

from __future__ import annotations

import dataclasses
import functools
import math
import platform
import subprocess
import time
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from optuna.trial import TrialState

from tuner.config import Hyperparameters, RunConfig, StopReason
from tuner.data.windows import DeviceData
from tuner.devices import Carried, CpuCores, Gpu, Observation, Watch, exclusive
from tuner.job import CONTEXT_LOST, where
from tuner.storage import TrialResult
from tuner.study import StudyDefinition
from tuner.study.objectives import MISSED, time_to_target, values_of
from tuner.training import EpochRecord, Evaluation, FitResult, evaluate, fit
from tuner.training.checkpoint import Checkpoint, CheckpointFiles

StopCheck = Callable[[], StopReason | None]


def run_config(definition: StudyDefinition, hyperparameters: Hyperparameters, seed: int) -> RunConfig:
    """What a training of one configuration of a study gets."""
    return RunConfig(
        architecture=definition.architecture,
        hyperparameters=hyperparameters,
        training=definition.training,
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
) -> TrialResult | None:
    """Train one configuration to convergence with the device to itself; None when it was interrupted.

    The values are those of the study's two objectives, by default `wall_clock_s` and `test_mql`: seconds of training
    and validation until early stopping, and the mean quantile loss in original units of the task's objective series
    (of all series where the task names none). Both are recorded as attributes whatever the objectives are.
    """
    config = run_config(definition, hyperparameters, seed)
    carried = Carried()

    def waiting() -> bool:
        on_phase("waiting")
        return should_stop() is not None

    def resumed(checkpoint: Checkpoint) -> None:
        carried.take(checkpoint.notes)
        on_resume(checkpoint)

    asked = time.perf_counter()
    with exclusive(device.lock_names, give_up=waiting) as held:
        if not held:
            return None
        wait_s = time.perf_counter() - asked
        on_phase("set-up")
        since = time.time()
        watch = Watch(device)

        def notes() -> dict[str, Any]:
            on_phase("checkpoint")
            return carried.notes(watch.finish(), since, time.time())

        if checkpoints is not None:
            checkpoints.notes = notes
        result = fit(
            config, data, on_epoch=on_epoch, should_stop=should_stop, checkpoints=checkpoints, on_resume=resumed
        )
        observation = carried.merged(watch.finish())
        if result.stopped_by is StopReason.INTERRUPTED:
            return None
        on_phase("evaluation")
        evaluating = time.perf_counter()
        evaluation = evaluate(result.model, data) if result.stopped_by.completed and result.model is not None else None
        evaluation_s = time.perf_counter() - evaluating
        result = dataclasses.replace(result, model=None)
        memory = _memory_held() if isinstance(device, Gpu) and not result.context_lost else {}
    attributes = _attributes(result, observation, device, seed) | _timed(result, carried) | memory
    attributes |= {"wait_s": wait_s, "evaluation_s": evaluation_s, "total_s": result.total_s + evaluation_s}
    attributes |= {CONTEXT_LOST: True} if result.context_lost else {}
    if definition.target_val_loss is not None:
        curve = [(epoch.val_loss, epoch.elapsed_s) for epoch in result.history]
        attributes["time_to_target_s"] = time_to_target(curve, definition.target_val_loss)
    if evaluation is not None:
        attributes |= _scores(evaluation, definition)
    return _to_trial_result(result, evaluation, attributes, definition)


def _to_trial_result(
    result: FitResult, evaluation: Evaluation | None, attributes: dict[str, Any], definition: StudyDefinition
) -> TrialResult:
    if evaluation is not None:
        values = values_of(attributes, definition.objectives)
        if values is not None:
            return TrialResult(TrialState.COMPLETE, values, _finite(attributes))
        if _missed_target(attributes, definition):
            target, best = definition.target_val_loss, attributes["val_loss"]
            why = f"the validation loss never came down to {target:g} (its lowest was {best:.6g})"
            return TrialResult(TrialState.PRUNED, None, _finite(attributes | {MISSED: True, "failure": why}))
        named = ", ".join(f"{name} {attributes.get(name)}" for name in definition.objectives)
        attributes |= {"stopped_by": StopReason.DIVERGED.value, "converged": False, "failure": f"values {named}"}
    if result.message:
        attributes["failure"] = result.message
    state = TrialState.PRUNED if result.stopped_by is StopReason.PRUNED else TrialState.FAIL
    return TrialResult(state, None, _finite(attributes))


def objective_mql(evaluation: Evaluation, definition: StudyDefinition) -> float:
    """The test MQL of the task's objective series, else the mean over all forecasts."""
    series = definition.task.get("objective_series")
    return evaluation.test_mql[series] if series else evaluation.test_mql_mean


def _missed_target(attributes: dict[str, Any], definition: StudyDefinition) -> bool:
    """A sound training that never reached the registered loss: its time is censored, and no number stands for it."""
    if definition.target_val_loss is None or definition.objectives[0] != "time_to_target_s":
        return False
    sound = math.isfinite(attributes["val_loss"]) and math.isfinite(attributes[definition.objectives[1]])
    return sound and attributes["time_to_target_s"] is None


def _attributes(result: FitResult, observation: Observation, device: Gpu | CpuCores, seed: int) -> dict[str, Any]:
    return {
        "stopped_by": result.stopped_by.value,
        "converged": result.stopped_by is StopReason.CONVERGED,
        "wall_clock_s": result.wall_clock_s,
        "epochs": result.epochs,
        "best_epoch": result.best_epoch,
        "val_loss": result.best_val_loss,
        "s_per_epoch": result.s_per_epoch,
        "setup_s": result.setup_s,
        "time_to_best_s": result.time_to_best_s,
        "samples_per_s": result.samples_per_s,
        "peak_memory_bytes": result.peak_memory_bytes,
        "n_parameters": result.n_parameters,
        "backend": result.backend.value,
        "backend_fallback": result.backend_fallback or None,
        "precision": result.precision.value,
        "seed": seed,
        "contaminated": observation.contaminated,
        "contamination": observation.why,
        "device_watch": observation.details,
        "versions": versions(),
        "git_revision": git_revision(),
        **where(device),
    }


def _memory_held() -> dict[str, int]:
    """What this process still holds on its GPU when a trial's network is gone: it must not grow over a study."""
    torch.cuda.empty_cache()
    return {
        "allocated_memory_bytes": torch.cuda.memory_allocated(),
        "reserved_memory_bytes": torch.cuda.memory_reserved(),
    }


def _timed(result: FitResult, carried: Carried) -> dict[str, Any]:
    """When the clock ran, in seconds since 1970 on this machine's clock: launches that share a device take turns.

    `timed_earlier` are the parts before an interruption, from taking the device to the last checkpoint used.
    """
    return {
        "timed_from": result.timed_from,
        "timed_until": result.timed_until,
        "resumed_from_epoch": result.resumed_from or None,
    } | ({"timed_earlier": carried.parts} if carried.parts else {})


def _scores(evaluation: Evaluation, definition: StudyDefinition) -> dict[str, Any]:
    """`val_mql` is that of the same series as the objective: the two rank configurations of the same thing."""
    series = definition.task.get("objective_series")
    scores: dict[str, Any] = {
        "test_mql": objective_mql(evaluation, definition),
        "val_mql": evaluation.val_mql[series] if series else evaluation.val_mql_mean,
        "test_mql_mean": evaluation.test_mql_mean,
    }
    scores |= {f"test_mql/{name}": mql for name, mql in evaluation.test_mql.items()}
    return scores | {f"val_mql/{name}": mql for name, mql in evaluation.val_mql.items()}


def _finite(attributes: dict[str, Any]) -> dict[str, Any]:
    """JSON has no infinity and no NaN: a diverged trial's figures become null."""
    return {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in attributes.items()}


@functools.cache
def versions() -> dict[str, str | None]:
    """Versions of what a result depends on."""
    found: dict[str, str | None] = {"python": platform.python_version(), "cuda": torch.version.cuda}
    for package in ("tuner", "torch", "optuna", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    found["torch"] = torch.__version__
    return found


@functools.cache
def git_revision() -> str | None:
    """The revision of the checkout that this code runs from, `+changes` when edited; None when installed."""
    folder = Path(__file__).parent.parent
    if not (folder / ".git").exists():
        return None
    try:
        head = subprocess.run(
            ["git", "rev-parse", "HEAD"], cwd=folder, capture_output=True, text=True, timeout=10, check=False
        )
        edited = subprocess.run(
            ["git", "status", "--porcelain", "-uno"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    if head.returncode != 0:
        return None
    return head.stdout.strip() + ("+changes" if edited.stdout.strip() else "")
