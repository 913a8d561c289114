"""What somebody asks a retune for, and what it came to."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, Protocol

from pydantic import Field

from tuner.files.plain import in_json
from tuner.launch.request import Number, Outcome, Positive, Progress, Quiet, SearchRequest
from tuner.spec.policy import Registered
from tuner.storage.queue.verifications import VerificationRun, is_confirmation
from tuner.study.open import OpenStudy
from tuner.verdict.compare.findings import Report
from tuner.verdict.confirmation import confirmed_studies
from tuner.verdict.recommendation import ROUNDS
from tuner.verdict.retune_cost import EpochsOf, RetuneCost, Spent, duration
from tuner.verdict.round_allowances import run_seconds

# The stages of a retune, and where one stands: how much is done, and how long the rest takes.


class Stage(StrEnum):
    """In their order."""

    SEARCH = "search"
    REEVALUATION = "re-evaluation"
    CONFIRMATION = "confirmation"
    VERDICT = "verdict"

    @property
    def number(self) -> int:
        return list(Stage).index(self) + 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Where a stage stands."""

    stage: Stage
    done: int
    """Trials or runs that are finished."""
    planned: int | None
    """Of how many, as far as that is known: where a budget in time ends it, it is not."""
    device_s: float
    """What these had their devices for."""
    left_s: float | None = None
    """How long the rest will take, by what each took so far; None while nothing is known, and when
    it is over."""
    over: bool = False
    """There is nothing left to do."""
    estimated: bool = False
    """Not all that is `planned` is: some is expected."""

    @property
    def line(self) -> str:
        """`stage 1 of 4, search: 120 of 400 trials, 0.71 s each, about 3.2 min left`."""
        name = f"stage {self.stage.number} of {len(Stage)}, {self.stage.value}"
        if self.stage is Stage.VERDICT:
            return name
        pieces = "trials" if self.stage is Stage.SEARCH else "runs"
        if self.over and not self.done and self.stage is Stage.REEVALUATION:
            return f"{name}: not needed, the searches ran again what was promising"
        if self.over:
            took = f", {duration(self.device_s)} of device time" if self.done else ""
            return f"{name}: done, {self.done} {pieces}{took}"
        of = "" if self.planned is None else f" of {'about ' * self.estimated}{self.planned}"
        parts = [f"{name}: {self.done}{of} {pieces}"]
        if self.done:
            parts.append(f"{duration(self.device_s / self.done)} each")
        if self.left_s is not None:
            parts.append(f"about {duration(self.left_s)} left")
        return ", ".join(parts)

    def as_dict(self) -> dict[str, Any]:
        return in_json(self, "stage", "over", "done", "planned", "device_s", "left_s")


def over(stage: Stage, spent: Spent) -> Standing:
    """Of a stage with runs or trials of its own that has nothing left to do."""
    done, device_s = {
        Stage.SEARCH: (spent.trials, spent.search_s),
        Stage.REEVALUATION: (spent.reevaluation_runs, spent.reevaluation_s),
        Stage.CONFIRMATION: (spent.confirmation_runs, spent.confirmation_s),
    }[stage]
    return Standing(stage=stage, done=done, planned=done, device_s=device_s, over=True)


def of_search(studies: Sequence[OpenStudy], *, devices: int, timed: bool) -> Standing:
    """Of the searches of these studies; `timed`: it is their time that ends them."""
    counts = [each.ledger.counts() for each in studies]
    spent = [each.ledger.spent_s() for each in studies]
    done, device_s = sum(each.finished for each in counts), sum(spent)
    each_s = device_s / done if done else None
    left_s: float | None = 0.0
    for study, count, took_s in zip(studies, counts, spent, strict=True):
        if count.ended_early and not count.running:
            continue
        may_take = study.policy().search_s
        by_time = None if may_take is None else max(0.0, may_take - took_s)
        by_trials = None if each_s is None else count.left * each_s
        known = [seconds for seconds in (by_time, by_trials) if seconds is not None]
        if not known or left_s is None:
            left_s = None
            continue
        left_s += min(known) / devices
    # What is under way comes to its end, also where its time is over: in the mean, half of it is
    # left.
    if left_s is not None and each_s is not None and any(each.running for each in counts):
        left_s = max(left_s, each_s / 2)
    return Standing(
        stage=Stage.SEARCH,
        done=done,
        planned=None if timed else sum(each.budget for each in counts),
        device_s=device_s,
        left_s=left_s,
    )


def of_runs(
    stage: Stage,
    studies: Sequence[OpenStudy],
    *,
    devices: int,
    budget_s: float | None,
    own: Collection[str],
) -> Standing:
    """Of the verification runs of these studies: those that confirm some of the `own` ones, or all
    others, of which `budget_s` is for all. A reference that was confirmed before is among the
    studies, and not among one's own.

    Rounds that are not planned yet are taken to be as large as those that are.
    """
    in_rounds = stage is Stage.REEVALUATION
    runs = [
        run
        for each in studies
        for run in each.verifications.runs()
        if run.state != "skipped" and not run.copied and _is_of(stage, run, own)
    ]
    finished = [run for run in runs if run.state == "finished"]
    device_s = run_seconds(finished)
    rounds = _rounds(runs) if in_rounds else ROUNDS
    planned = round(len(runs) * ROUNDS / rounds)
    each_s = device_s / len(finished) if finished else None
    left_s = None if each_s is None else (planned - len(finished)) * each_s
    if budget_s is not None:
        by_time = max(0.0, budget_s - device_s)
        left_s = by_time if left_s is None else min(left_s, by_time)
    return Standing(
        stage=stage,
        done=len(finished),
        planned=None if budget_s is not None and in_rounds else planned,
        device_s=device_s,
        left_s=None if left_s is None else left_s / devices,
        estimated=rounds < ROUNDS,
    )


def _is_of(stage: Stage, run: VerificationRun, own: Collection[str]) -> bool:
    if stage is Stage.CONFIRMATION:
        return not confirmed_studies(run).isdisjoint(own)
    return not is_confirmation(run.plan)


def _rounds(runs: Sequence[VerificationRun]) -> int:
    """How many rounds of each study are planned; all of them where the front is verified."""
    if not runs or any(run.plan.get("choice") != "recommended" for run in runs):
        return ROUNDS
    sessions: dict[int, set[str]] = {}
    for run in runs:
        sessions.setdefault(run.study_id, set()).add(run.session)
    return max(map(len, sessions.values()))


@dataclass(frozen=True, slots=True, kw_only=True)
class RetuneRequest(SearchRequest):
    """A variant to retune, and what with; what is not said stays as it was registered, or has its
    default. The fields are called as the flags of `tuner retune`.

    Searches are 5 of each variant, with 320 trials (200 where the sampler repeats nothing; with a
    budget as many as it buys). Of the policy, margin and time are said here.
    """

    variant: str
    """A name, or the path of a study file."""
    against: str | None = None
    """The reference, which is retuned as well; None: the variant's own default alone."""
    budget_s: Positive | None = None
    """Seconds on devices for searches and re-evaluation of all variants together."""
    margin: Annotated[float, Field(ge=0)] | None = None
    """How much higher than the default's an MQL may be that is as good (0.01)."""
    top: Number | None = None
    """Configurations of each round of the re-evaluation that is to come (6)."""
    confirm_seeds: Number | None = None
    """Fresh seeds of a confirmation that is to come (90)."""

    def said(self) -> Registered:
        """What it says of the retune itself."""
        named = {name: getattr(self, name, None) for name in Registered.model_fields}
        named = {name: value for name, value in named.items() if value is not None}
        return Registered(**named)


_REGISTERED = ("against", "searches", "trials", "budget_s", "margin", "finished")
"""What JSON says of what was registered."""


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
    """What `tuner compare` says of the groups; None before everything is confirmed."""
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
            "registered": in_json(self.registered, *_REGISTERED),
            **in_json(self, "groups", "stages", "seconds", "made_of", "verdict"),
            **in_json(self, cost="costs", sentences="lines"),
        }


class RetuneProgress(Progress, Protocol):
    """What a retune tells, beside what each launch does."""

    def stage(self, standing: Standing) -> None:
        """Where a stage stands: when it begins, now and then, and when it is over."""


class Silent(Quiet):
    """Shows nothing."""

    def stage(self, standing: Standing) -> None:
        del standing
