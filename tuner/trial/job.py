"""One trial to run, as a worker hands it to whatever trains it. Nothing here knows torch."""

from __future__ import annotations

import dataclasses
import logging
import platform
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from optuna.trial import TrialState

from tuner.config import EpochRecord, Hyperparameters, StopReason
from tuner.devices import CpuCores, Gpu, exclusive
from tuner.devices.backend_rules import BackendChoice
from tuner.devices.lock import DeviceLockError, giving_up, logs_waiting
from tuner.errors import DataGoneError, TunerError
from tuner.models.fault import FAULTS, on_one_line
from tuner.record import Recorded
from tuner.search.pruning import Pruner, Verdict, carried_on
from tuner.spec.definition import StudyDefinition
from tuner.spec.pareto import Point
from tuner.spec.policy import SearchPolicy
from tuner.storage.queue.epochs import EpochRow
from tuner.storage.records import TrialResult

# The epochs of the trial at work, and what the pruner makes of them.


@dataclass(slots=True)
class Watched:
    """No database, no device: microseconds. It goes to whichever process trains."""

    pruner: Pruner
    verdicts: list[Verdict] = field(default_factory=list)
    """All so far, in the order in which they were given."""
    _epochs: dict[int, dict[int, tuple[float | None, float]]] = field(default_factory=dict)

    def remember(self, rows: Iterable[EpochRow]) -> None:
        """Epochs of an earlier attempt: a trial that goes
        on from a checkpoint does not tell them again.
        """
        for row in rows:
            self._epochs.setdefault(row.repeat, {})[row.epoch] = row.val_loss, row.elapsed_s

    def judge(self, record: EpochRecord, repeat: int) -> Verdict | None:
        """Why to end the trial after this epoch; None to go on.

        An epoch that was not validated says nothing new, and ends none.
        """
        told = self._epochs.setdefault(repeat, {})
        told[record.epoch] = record.val_loss, record.elapsed_s
        if record.val_loss is None or any(n not in told for n in range(1, record.epoch + 1)):
            return None
        losses, elapsed_s = zip(*(told[epoch] for epoch in range(1, record.epoch + 1)), strict=True)
        earlier = [self._optimistic(before) for before in range(repeat)]
        verdict = self.pruner.verdict(
            carried_on(losses), elapsed_s, earlier=[end for end in earlier if end is not None]
        )
        if verdict is not None:
            self.verdicts.append(verdict)
        return verdict

    def verdict(self, epochs: int) -> Verdict | None:
        """The latest on a training of so many epochs, else the latest:
        one that is run again may be judged again.
        """
        latest = next(reversed(self.verdicts), None)
        return next((v for v in reversed(self.verdicts) if v.epoch == epochs), latest)

    def _optimistic(self, repeat: int) -> Point | None:
        """The values of a seed that has finished; its MQL,
        which is not known here, as its loss promises.
        """
        told = self._epochs.get(repeat)
        if not told:
            return None
        losses, elapsed_s = zip(*(told[epoch] for epoch in sorted(told)), strict=True)
        known = carried_on(losses)
        return self.pruner.ended(known, elapsed_s) if known else None


def _as_measured(choice: BackendChoice) -> BackendChoice:
    return choice


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialJob:
    """What to train, where, and whom to tell."""

    study: str
    definition: StudyDefinition
    policy: SearchPolicy
    number: int
    """The trial's; with `seed_root` it fixes the seeds, unless `seed` is given."""
    hyperparameters: Hyperparameters
    device: Gpu | CpuCores
    on_epoch: Callable[[EpochRecord, int], None]
    """Told every finished epoch and which of the trial's seeds it is of, from 0."""
    should_stop: Callable[[], StopReason | None]
    """Asked between steps, so cheap; a reason it returns ends the training at once."""
    on_curve: Callable[[Sequence[EpochRecord], int], None] = lambda _records, _repeat: None
    """Told the epochs, and the seed, of an earlier attempt that is continued (`on_epoch` hears of
    later ones only), and of the run that counts where that was not the last one."""
    on_begun: Callable[[], None] = lambda: None
    """Called once another process has the job, and trains: nobody waits for it."""
    on_phase: Callable[[str], None] = lambda _phase: None
    """Told what is begun beside training (set-up,
    evaluation, a checkpoint), and each second of a wait."""
    on_wait: Callable[[bool], None] = lambda _waits: None
    """Told True when it begins to wait for its device, and False when it has it, or waits no more:
    what it waited is none of its time."""
    backend: BackendChoice | None = None
    """What `auto` came to for these sizes; None where nobody has measured it, or nobody has to."""
    on_backend: Callable[[BackendChoice], BackendChoice] = _as_measured
    """Told what was measured; returns what counts, which somebody may have measured before."""
    seed: int | None = None
    """To verify: train once, with this seed, whatever seeds the trial itself has."""
    confirms: bool = False
    """Whether it is a run of a confirmation, which alone may forecast the last block of a study
    that keeps one."""
    seed_root: int | None = None
    """The study's, which the trial's seeds follow from."""
    study_key: str = ""
    """What no other study has, in this database or another."""
    checkpoints: Path | None = None
    """Where this study's checkpoints are; None for no checkpoints."""
    may_take_s: float | None = None
    """Seconds that all of it may take, waits for its device aside; what trains then ends as at a
    time limit. None: no end."""
    watched: Watched | None = None
    """Judges the epochs, to prune the trial; None where it is not to be pruned."""

    def epoch_ended(self, record: EpochRecord, repeat: int) -> StopReason | None:
        """Tell a finished epoch; why the trial ends with it, or None."""
        self.on_epoch(record, repeat)
        if self.watched is not None and self.watched.judge(record, repeat) is not None:
            return StopReason.PRUNED
        return None


TrialRunner = Callable[[TrialJob], TrialResult | None]
"""Trains a job to its result; None when it was interrupted and is to be handed back."""


def failed(reason: StopReason, message: str, device: Gpu | CpuCores, seed: int) -> TrialResult:
    """The result of a trial whose training raised."""
    said = Recorded(stopped_by=reason.value, failure=message, seed=seed, converged=False)
    return TrialResult(TrialState.FAIL, None, on_device(said, device))


def on_device(recorded: Recorded, device: Gpu | CpuCores) -> Recorded:
    """The same with what a trial ran on."""
    return dataclasses.replace(
        recorded,
        device=device.model,
        device_uuid=device.uuid,
        device_label=device.label,
        devices=len(device.devices) if len(device.devices) > 1 else None,
        host=platform.node(),
    )


RESOLVED_S = 30.0
"""On a clock: the joules of less are within what NVML's counter cannot tell apart."""


def with_energy(recorded: Recorded, joules: float | None) -> Recorded:
    """The same with the joules of its clock, or that they cannot be resolved; None: not counted."""
    if joules is None:
        return recorded
    if (recorded.wall_clock_s or 0.0) < RESOLVED_S:
        return dataclasses.replace(recorded, energy_unresolved=True)
    return dataclasses.replace(recorded, energy_j=round(joules, 3))


def turn_on(
    device: Gpu | CpuCores, on_phase: Callable[[str], None], give_up: Callable[[], bool]
) -> AbstractContextManager[bool]:
    """The device for oneself, once it is free; False where `give_up` said so before that.

    Raises:
        DeviceLockError: devices cannot be locked.
    """
    asked = giving_up(on_phase, give_up)
    return exclusive(device.lock_names, give_up=asked, waiting=logs_waiting(device.label))


# What is left of the time that all runs of a job may take together.


@dataclass(slots=True)
class Waited:
    """Told by whoever waits (`TrialJob.on_wait`), and tells it on. Any thread may ask."""

    tell: Callable[[bool], None] = lambda _waits: None
    is_known: bool = False
    """Somebody has said whether it waits."""
    _before_s: float = 0.0
    _since: float | None = None

    def told(self, waits: bool) -> None:
        """A wait begins, or is over."""
        now = time.perf_counter()
        if self._since is not None:
            self._before_s += now - self._since
        self._since = now if waits else None
        self.is_known = True
        self.tell(waits)

    @property
    def seconds(self) -> float:
        """With those of a wait that goes on."""
        since = self._since
        return self._before_s + (0.0 if since is None else time.perf_counter() - since)


@dataclass(slots=True)
class TimeLeft:
    """Of `may_take_s` seconds from now on; None: no end. Waits for a device do not count.

    `on_wait` is told True when one begins, and False when it is over.
    """

    may_take_s: float | None = None
    on_wait: Callable[[bool], None] = lambda _waits: None
    _waited: Waited = field(init=False)
    _began: float = field(default_factory=time.perf_counter)

    def __post_init__(self) -> None:
        self._waited = Waited(self.on_wait)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """For a device that somebody else may have."""
        self._waited.told(True)
        try:
            yield
        finally:
            self._waited.told(False)

    @property
    def seconds(self) -> float | None:
        if self.may_take_s is None:
            return None
        return self.may_take_s - (time.perf_counter() - self._began - self._waited.seconds)

    @property
    def is_over(self) -> bool:
        return self.seconds is not None and self.seconds <= 0


# What a training that fails leaves: a result of its trial, or a process that can train no more.


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
        DeviceLockError, TrainerLostError, DataGoneError: not this trial's: each would fail.
    """
    try:
        return run_trial(job)
    except (DeviceLockError, TrainerLostError, DataGoneError):
        raise
    except (*FAULTS, KeyboardInterrupt) as error:  # a model's: no signal raises in a worker
        _log.error("trial %d failed:\n%s", job.number, traceback.format_exc())
        result = failed(StopReason.ERROR, on_one_line(error), job.device, seed)
        return result.noting(context_lost=True) if lost_context(error) else result


def lost_context(error: BaseException) -> bool:
    """True when the failure leaves a CUDA context behind in which every later call fails too."""
    cause = error.__cause__
    if isinstance(error, TunerError):  # what a line tells of may have been a lost context
        return cause is not None and lost_context(cause)
    named = any(cls.__name__ == "AcceleratorError" for cls in type(error).__mro__)
    return named or any(words in str(error) for words in LOST_CONTEXT_WORDS)
