"""What a training that fails leaves: a result of its trial, or a process that can train no more."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import logging
import traceback
from collections.abc import Iterator

from tuner.config import StopReason
from tuner.devices.lock import DeviceLockError
from tuner.errors import TunerError
from tuner.models.fault import FAULTS, on_one_line
from tuner.storage.records import TrialResult
from tuner.trial.job import TrialJob, TrialRunner, failed

LOST_CONTEXT_WORDS = (
    "CUDA error",
    "Triton Error [CUDA]",
    "CUBLAS_STATUS",
    "CUDNN_STATUS",
    "CUSPARSE_STATUS",
    "device-side assert",
)
"""How a failure says that the process's CUDA context is not to be used again."""
_log = logging.getLogger(__name__)


class TrainerLostError(TunerError):
    """The process that trains is no more (exit code 1). Its trial has no result."""


def survived(run_trial: TrialRunner, job: TrialJob, *, seed: int) -> TrialResult | None:
    """What `run_trial` returns, or the failure that it raised as its result.

    The record says `context_lost` where this process can train no more.

    Raises:
        DeviceLockError, TrainerLostError: not this trial's: each would fail.
    """
    try:
        return run_trial(job)
    except (DeviceLockError, TrainerLostError):
        raise
    except (*FAULTS, KeyboardInterrupt) as error:  # a model's: no signal raises in a worker
        _log.error("trial %d failed:\n%s", job.number, traceback.format_exc())
        result = failed(StopReason.ERROR, on_one_line(error), job.device, seed)
        if not lost_context(error):
            return result
        return dataclasses.replace(
            result, recorded=dataclasses.replace(result.recorded, context_lost=True)
        )


def lost_context(error: BaseException) -> bool:
    """True when the failure leaves a CUDA context behind in which every later call fails too."""
    cause = error.__cause__
    if isinstance(error, TunerError):  # what a line tells of may have been a lost context
        return cause is not None and lost_context(cause)
    named = any(cls.__name__ == "AcceleratorError" for cls in type(error).__mro__)
    return named or any(words in str(error) for words in LOST_CONTEXT_WORDS)


# Imports of torch that nobody searches for garbage.


@contextlib.contextmanager
def nothing_collected() -> Iterator[None]:
    """In here no garbage is looked for, and what is here at the end is never looked through again.

    With torch come a million objects that stay. Python looks through all of them each time they
    have become a quarter more, which is a fifth of a worker's start, and every now and then in the
    middle of a training, for a quarter of a second.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collects:
            gc.enable()
