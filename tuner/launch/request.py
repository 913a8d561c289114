"""What somebody asks a launch for. What is not said keeps what the study has, or its default."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

from pydantic import Field, TypeAdapter

from tuner.config import MANY, MOST_SEARCHES
from tuner.errors import UsageError
from tuner.files.arguments import refuse_truths
from tuner.files.plain import explained
from tuner.spec.policy import SearchPolicy
from tuner.spec.study_settings import StudySettings
from tuner.storage.url import DEFAULT_URL

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
