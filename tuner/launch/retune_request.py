"""What somebody asks a retune for, and what it came to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Protocol

from pydantic import Field

from tuner.config import MANY, MOST_SEARCHES
from tuner.launch.outcome import Outcome
from tuner.launch.progress import Progress, Quiet
from tuner.launch.request import DeviceChoice, Number, Positive
from tuner.launch.stages import Standing
from tuner.spec.policy import SearchPolicy
from tuner.spec.retune import Registered
from tuner.spec.study_settings import StudySettings
from tuner.storage.url import DEFAULT_URL
from tuner.verdict.compare.findings import Report
from tuner.verdict.epochs_of import EpochsOf
from tuner.verdict.retune_cost import RetuneCost


@dataclass(frozen=True, slots=True, kw_only=True)
class RetuneRequest:
    """A variant to retune, and what with; what is not said stays as it was registered, or has its
    default. The fields are called as the flags of `tuner retune`.
    """

    variant: str
    """A name, or the path of a study file."""
    against: str | None = None
    """The reference, which is retuned as well; None: the variant's own default alone."""
    task: str = "etth"
    searches: Annotated[int, Field(ge=1, le=MOST_SEARCHES)] | None = None
    """Of each variant (5)."""
    draw: Annotated[int, Field(ge=1, le=MANY)] | None = None
    """Of all seeds, as of a launch: how the same question is asked a second time."""
    trials: Number | None = None
    """Of each search (320; 200 where its sampler repeats nothing; with a budget as many as it
    buys)."""
    budget_s: Positive | None = None
    """Seconds on devices for searches and re-evaluation of all variants together."""
    margin: Annotated[float, Field(ge=0)] | None = None
    """How much higher than the default's an MQL may be that is as good (0.01)."""
    top: Number | None = None
    """Configurations of each round of the re-evaluation that is to come (6)."""
    confirm_seeds: Number | None = None
    """Fresh seeds of a confirmation that is to come (90)."""
    warm_start: str | None = None
    """Studies, or exported ones, whose fronts all its searches try first."""
    ablate: bool = False
    """Once everything is confirmed, measure which of its values made the gain of each search."""
    devices: DeviceChoice = field(default_factory=DeviceChoice)
    data_dir: Path | None = None
    storage: str = DEFAULT_URL
    timeout_s: Positive | None = None
    """The whole ends cleanly after this long; the same request goes on."""
    hang_limit_s: Positive | None = None
    settings: StudySettings = field(default_factory=StudySettings)
    policy: SearchPolicy = field(default_factory=SearchPolicy)
    """Of the searches; their margin and their time are said above."""
    estimate: bool = True
    """As of a launch."""
    trust: bool = False

    def said(self) -> Registered:
        """What it says of the retune itself."""
        named = {name: getattr(self, name, None) for name in Registered.model_fields}
        named = {name: value for name, value in named.items() if value is not None}
        return Registered(**named)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetuneOutcome:
    """How a retune ended, and what it has come to."""

    ended: Outcome
    registered: Registered
    groups: tuple[str, ...]
    """The groups of searches, the reference first."""
    stages: tuple[Standing, ...]
    """Those that were reached, in their order."""
    seconds: float
    """That this call took."""
    verdict: Report | None
    """What `tuner compare` says of the groups; None before everything is confirmed. It is there,
    too, where an ablation was cut off.
    """
    costs: tuple[RetuneCost, ...] = ()
    """Of each group; empty where there is no verdict."""
    made_of: tuple[EpochsOf, ...] = ()
    """Of each group with something confirmed: its epochs and their seconds against the default's,
    of the search that `costs` names."""
    lines: tuple[str, ...] = ()
    """What it cost, what it saves, what its budget bought and what the gain is made of, in
    sentences."""
    notes: tuple[str, ...] = ()
    """All lines that a person would have been told, in order."""

    def as_dict(self) -> Mapping[str, Any]:
        """For JSON."""
        return {
            "outcome": self.ended.value,
            "registered": {
                "against": self.registered.against,
                "searches": self.registered.searches,
                "trials": self.registered.trials,
                "budget_s": self.registered.budget_s,
                "margin": self.registered.margin,
                "finished": self.registered.finished,
            },
            "groups": list(self.groups),
            "stages": [each.as_dict() for each in self.stages],
            "seconds": self.seconds,
            "cost": [each.as_dict() for each in self.costs],
            "made_of": [each.as_dict() for each in self.made_of],
            "sentences": list(self.lines),
            "verdict": self.verdict.as_dict() if self.verdict else None,
        }


class RetuneProgress(Progress, Protocol):
    """What a retune tells, beside what each launch does."""

    def stage(self, standing: Standing) -> None:
        """Where a stage stands: when it begins, now and then, and when it is over."""


class Silent(Quiet):
    """Shows nothing."""

    def stage(self, standing: Standing) -> None:
        del standing
