"""What a launch came to, as data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from optuna.trial import TrialState

from tuner.errors import TunerError
from tuner.storage.queue.verifications import Verifications
from tuner.storage.records import Counts
from tuner.study.open import OpenStudy
from tuner.study.results import StudyResults
from tuner.verdict.verified import verifications_of


class Outcome(StrEnum):
    """Why the workers went home."""

    FILLED = "filled"
    TIMED_OUT = "timed_out"
    INTERRUPTED = "interrupted"
    TERMINATED = "terminated"
    GPU_HOURS = "gpu_hours_spent"
    """What is left of --max-gpu-hours pays for no more training."""
    PRINTED = "printed"
    """No worker was asked for: what an engine would be told was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyOutcome:
    """One study when its launch was over."""

    name: str
    group: str
    """The name of the group of searches that it belongs to."""
    search: int
    """Which of them it is, from 1."""
    counts: Counts
    """Trials that were asked for, that other workers still run, and that are finished."""
    results: StudyResults
    changed: Mapping[str, Mapping[str, Any]]
    """Fields of its policy that the launch changed: `{"prune": {"from": True, "to": False}}`."""
    notes: tuple[str, ...] = ()
    """What to know of this study: what it keeps of earlier launches, what is tried first."""

    @property
    def filled(self) -> bool:
        """Whether it holds the trials that were asked for, or its search ended before that."""
        return self.counts.left == 0

    @property
    def failure(self) -> str | None:
        """How the first trial failed, where every trial did."""
        failed = [each for each in self.results.records if each.state is TrialState.FAIL]
        if not failed or len(failed) < self.counts.finished:
            return None
        return failed[0].recorded.failure or "no reason was recorded"


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOutcome:
    """How a launch ended, and where that leaves its studies, in the order of the request."""

    ended: Outcome
    studies: tuple[StudyOutcome, ...]
    notes: tuple[str, ...] = ()
    """All lines that a person would have been told, in order, those of the studies included."""
    printed: str | Mapping[str, str] = ""
    """What the engine would be told."""

    @property
    def groups(self) -> Mapping[str, tuple[StudyOutcome, ...]]:
        """The studies by the group that they belong to, in the order of their numbers."""
        found: dict[str, list[StudyOutcome]] = {}
        for each in self.studies:
            found.setdefault(each.group, []).append(each)
        return {
            name: tuple(sorted(members, key=lambda each: each.search))
            for name, members in found.items()
        }


def refuse_nothing_but_failures(outcome: LaunchOutcome) -> None:
    """Raises TunerError where every trial of a study failed, with the first one's reason."""
    for each in outcome.studies:
        if (reason := each.failure) is not None:
            raise TunerError(f"every trial of {each.name} failed, the first with: {reason}")


# Whoever looks on while a launch works. By default nobody does: notes stand in the outcome.


class Progress(Protocol):
    """What a launch tells, and when."""

    def note(self, line: str) -> None:
        """A sentence for the person who launches, as soon as it is known."""

    def watching(self, studies: Sequence[OpenStudy]) -> AbstractContextManager[Callable[[], None]]:
        """Around the workers' time. What it gives is called a few times a second."""


@dataclass(frozen=True, slots=True)
class Quiet:
    """Shows nothing, and tells lines to nobody but `tell`."""

    tell: Callable[[str], None] = lambda _line: None

    def note(self, line: str) -> None:
        self.tell(line)

    @contextmanager
    def watching(self, studies: Sequence[OpenStudy]) -> Iterator[Callable[[], None]]:
        del studies
        yield lambda: None


@dataclass(slots=True)
class Notes:
    """Passes on every line, and keeps it for the outcome."""

    progress: Progress
    lines: list[str] = field(default_factory=list)

    def note(self, line: str | None) -> None:
        """An empty line says nothing."""
        if line:
            self.lines.append(line)
            self.progress.note(line)


# How a launch is told to end before its studies are filled: once, cleanly; again, at once.


@dataclass(slots=True)
class StopRequests:
    """Made by whoever runs a launch, in a signal handler or in another thread."""

    _asked: list[Outcome] = field(default_factory=list)

    def ask(self, why: Outcome = Outcome.INTERRUPTED) -> None:
        """The workers are to hand back what they run; asked again, they are killed."""
        self._asked.append(why)

    @property
    def first(self) -> Outcome | None:
        """Why the launch is to end; None as long as nobody asked for it."""
        return self._asked[0] if self._asked else None

    @property
    def urgent(self) -> bool:
        """Whether somebody asked again."""
        return len(self._asked) > 1


# What workers are started for: a study with its trials, or the runs that verify some studies.


@dataclass(frozen=True, slots=True)
class Rosters:
    """The rosters of several studies, which one worker joins all."""

    opened: Sequence[OpenStudy]

    def leave(self, worker: str) -> None:
        for each in self.opened:
            each.roster.leave(worker)


@dataclass(frozen=True, slots=True)
class VerificationWork:
    """One queue for all the studies: their runs are interleaved."""

    name: str
    ledger: Verifications
    roster: Rosters

    @staticmethod
    def of(opened: Sequence[OpenStudy]) -> VerificationWork:
        return VerificationWork(
            name=",".join(each.name for each in opened),
            ledger=verifications_of(opened),
            roster=Rosters(opened),
        )


Work = OpenStudy | VerificationWork
