"""What a program's run came to, as the result of its trial."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

from optuna.trial import TrialState

from tuner.config import Backend, Precision, StopReason
from tuner.devices.watch import Observation
from tuner.record import Recorded
from tuner.spec.program import Program
from tuner.spec.time_objectives import Ended, measured_times
from tuner.storage.records import TrialResult
from tuner.training import FitResult
from tuner.trial.job import TrialJob, on_device
from tuner.trial.program.program_training import ProgramTraining
from tuner.trial.valued import valued
from tuner.version import __version__


def failed_program(job: TrialJob, seed: int, why: str) -> TrialResult:
    """The result of a run whose program did not what it should."""
    recorded = Recorded(
        stopped_by=StopReason.ERROR.value,
        failure=f"the program failed: {why}",
        seed=seed,
        converged=False,
        **_of_program(job.definition.program),
    )
    return TrialResult(TrialState.FAIL, None, on_device(recorded, job.device).storable())


def program_result(
    job: TrialJob,
    seed: int,
    training: ProgramTraining,
    seen: Observation,
    parts: Sequence[tuple[float, float]],
) -> TrialResult:
    """The result of a run that ended or was ended; `parts` are those of attempts before it."""
    stopped_by = training.stopped_by
    assert stopped_by is not None, "it has ended"
    recorded = Recorded(
        stopped_by=stopped_by.value,
        converged=stopped_by is StopReason.CONVERGED,
        epochs=len(training.history),
        setup_s=training.setup_s,
        seed=seed,
        contaminated=seen.contaminated,
        contamination=seen.why,
        device_watch=seen.details,
        timed_from=training.timed_from,
        timed_until=training.timed_until,
        timed_earlier=list(parts) or None,
        resumed_from_epoch=training.resumed_from or None,
        **_of_program(job.definition.program),
        **_of_epochs(training, job.definition.target_val_loss),
        **_of_final(training),
    )
    recorded = on_device(recorded, job.device)
    if not stopped_by.completed:
        state = TrialState.PRUNED if stopped_by is StopReason.PRUNED else TrialState.FAIL
        if stopped_by is StopReason.DIVERGED:
            recorded = dataclasses.replace(
                recorded, failure=f"the program failed: {training.diverged_in_words()}"
            )
        return TrialResult(state, None, recorded.storable())
    error = job.definition.objectives[1]
    if recorded.named(error) is None:
        return failed_program(
            job, seed, f"its final values lack {error}, which its study minimises"
        )
    return valued(recorded, job.definition)


def _of_program(program: Program | None) -> dict[str, Any]:
    assert program is not None, "its study has one"
    return {
        "clock": program.clock,
        "versions": {"tuner": __version__},
    }


def _of_final(training: ProgramTraining) -> dict[str, Any]:
    final = training.final
    if final is None:
        return {}
    return {
        "test_mql": final.test_mql,
        "val_mql": final.val_mql,
        "n_parameters": final.n_parameters,
        "peak_memory_bytes": final.peak_memory_bytes,
        "evaluation_s": training.evaluation_s,
    }


def _of_epochs(training: ProgramTraining, target_val_loss: float | None) -> dict[str, Any]:
    """Losses and every time, as of a training by tuner's loop: one place says what each time is."""
    if not training.history or training.stopped_by is None:
        return {}
    last, best = training.history[-1], training.best
    as_fitted = FitResult(
        stopped_by=training.stopped_by,
        message="",
        epochs=len(training.history),
        best_epoch=best.epoch,
        best_val_loss=math.nan if best.val_loss is None else best.val_loss,
        wall_clock_s=last.elapsed_s,
        setup_s=training.setup_s,
        time_to_best_s=best.elapsed_s,
        total_s=training.total_s - training.evaluation_s,
        s_per_epoch=last.elapsed_s / len(training.history),
        samples_per_s=math.nan,
        peak_memory_bytes=0,
        n_parameters=0,
        backend=Backend.EAGER,
        backend_fallback="",
        precision=Precision.FP32,
        history=tuple(training.history),
        model=None,
    )
    ended = Ended(
        training=as_fitted, evaluation_s=training.evaluation_s, target_val_loss=target_val_loss
    )
    return {
        "best_epoch": best.epoch,
        "val_loss": best.val_loss,
        "s_per_epoch": as_fitted.s_per_epoch,
        **measured_times(ended),
    }
