"""What somebody asks a launch for, and what it came to.

What is not said keeps what the study has, or its default.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar

from optuna.trial import TrialState
from pydantic import Field, TypeAdapter

from tuner.config import MANY, MOST_SEARCHES
from tuner.errors import TunerError, UsageError
from tuner.files.arguments import refuse_truths
from tuner.files.plain import explained
from tuner.spec.policy import SearchPolicy, StudySettings
from tuner.storage.records import Counts
from tuner.storage.url import DEFAULT_URL
from tuner.study.open import OpenStudy
from tuner.study.results import StudyResults

Asked = TypeVar("Asked")
Number = Annotated[int, Field(ge=1, le=MANY)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceChoice:
    """Where workers run, one on each device; by default all GPUs of this host, or else its CPU."""

    gpus: str | None = None
    """`0,1`, or `all`; with an engine how many, or `all`."""
    cpu: bool = False
    workers: Number | None = None
    """On the CPU: how many share out the cores; with an engine how many there are."""
    on: str | None = None
    """The engine that places them elsewhere: `ray`, `ray://HOST:PORT`, `slurm` or `k8s`."""
    placement: str | None = None
    """What it is told beside that: `KEY=VALUE` with commas, or a TOML file with its table."""
    print_only: bool = False
    """It is told nothing: what it would be told is in the outcome."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What every request says: on what, where, for how long, and whose code may run."""

    task: str = "etth"
    """`etth`, `demo`, or the path of a task file."""
    devices: DeviceChoice = field(default_factory=DeviceChoice)
    data_dir: Path | None = None
    """The folder of the task's data; None: the user's cache."""
    storage: str = DEFAULT_URL
    """The database's address."""
    timeout_s: Positive | None = None
    """The whole ends cleanly after this long; the same request goes on."""
    trust: bool = False
    """Whether the class may run that an imported study names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchRequest(Request):
    """What every request for searches says; what is not said stays as it is, or has its default."""

    trials: Number | None = None
    """Until each study holds so many finished ones; a new study: 50."""
    searches: Annotated[int, Field(ge=1, le=MOST_SEARCHES)] | None = None
    """So many independent searches of each variant, each a study with all the trials; None: those
    that are there, or one."""
    draw: Annotated[int, Field(ge=1, le=MANY)] | None = None
    """Of all seeds: another number draws all of them anew; None: that of the studies, or the
    first."""
    hang_limit_s: Positive | None = None
    """A worker is killed without a sign of life for this long; None: as long as it may take."""
    settings: StudySettings = field(default_factory=StudySettings)
    policy: SearchPolicy = field(default_factory=SearchPolicy)
    warm_start: str | None = None
    """Studies, or exported ones, whose fronts are tried first."""
    foundation: Path | None = None
    """A folder with a Chronos model, whose forecasts are held against the networks', too."""
    estimate: bool = True
    """Whether sizes may be measured before the work, where nothing tells what it will take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchRequest(SearchRequest):
    """Studies to fill, one a variant or several, and what with. A refusal names flags of
    `tuner launch`. These are called as the fields are, but for units (`timeout_s`), `variants`
    and `policy.seed` (`--sampler-seed`).
    """

    variants: str | Sequence[str]
    """Names of variants, or paths of study files:
    several in one text with commas, or each by itself."""
    study: str | None = None
    """The name of the study, or of the group of searches; where not given `<task>-<variant>`."""


def shared(request: Request, kind: type[Request]) -> dict[str, Any]:
    """What a request says that any of this kind says, by name."""
    return {each.name: getattr(request, each.name) for each in dataclasses.fields(kind)}


def names_of(several: str | Sequence[str]) -> list[str]:
    """Each name of a text with commas, or of a sequence."""
    return [name.strip() for name in (several.split(",") if isinstance(several, str) else several)]


def checked(request: Asked) -> Asked:
    """The same request with values of the types that its fields have:
    `"eager"` is a `Backend` then.

    Raises:
        UsageError: a value that its field does not take.
    """
    refuse_truths(request)
    try:
        given = dataclasses.asdict(request)  # type: ignore[call-overload]
        return TypeAdapter(type(request)).validate_python(given)
    except ValueError as error:
        raise UsageError(f"{type(request).__name__}: {explained(error)}") from None


# What a launch came to, as data.


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
