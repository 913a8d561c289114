"""One trial to run, as a worker hands it to whatever trains it. Nothing here knows torch."""

from __future__ import annotations

import dataclasses
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from optuna.trial import TrialState

from tuner.config import EpochRecord, Hyperparameters, StopReason
from tuner.devices import CpuCores, Gpu
from tuner.devices.backend_rules import BackendChoice
from tuner.record import Recorded
from tuner.spec.definition import StudyDefinition
from tuner.spec.policy import SearchPolicy
from tuner.storage.records import TrialResult
from tuner.trial.watched import Watched


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
        host=platform.node(),
    )


# What is left of the time that all runs of a job may take together.


@dataclass(slots=True)
class TimeLeft:
    """Of `may_take_s` seconds from now on; None: no end. Waits for a device do not count.

    `on_wait` is told True when one begins, and False when it is over.
    """

    may_take_s: float | None = None
    on_wait: Callable[[bool], None] = lambda _waits: None
    _waited_s: float = 0.0
    _waits_since: float | None = None
    _began: float = field(default_factory=time.perf_counter)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """For a device that somebody else may have."""
        self._waits_since = time.perf_counter()
        self.on_wait(True)
        try:
            yield
        finally:
            self._waited_s += time.perf_counter() - self._waits_since
            self._waits_since = None
            self.on_wait(False)

    @property
    def seconds(self) -> float | None:
        if self.may_take_s is None:
            return None
        now = time.perf_counter() if self._waits_since is None else self._waits_since
        return self.may_take_s - (now - self._began - self._waited_s)

    @property
    def is_over(self) -> bool:
        left = self.seconds
        return left is not None and left <= 0
