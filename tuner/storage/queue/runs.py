"""A verification run as a record and as a row."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Self

from pydantic import Field, TypeAdapter, model_validator

from tuner.config import Value
from tuner.files.plain import Count, Label, Loose, read_json
from tuner.spec.ranges import ChoiceValue
from tuner.storage.damage import from_text
from tuner.storage.records import RunTicket, TrialResult

# What a verification run keeps of the plan it belongs to, as it is read again.


MOST_LOOKS = 100
MOST_OFFERS = 20

StudyName = Annotated[str, Field(min_length=1, max_length=512)]
"""Whatever it is called: another program may have renamed it. Who shows it makes it harmless."""

Picks = dict[StudyName, dict[Literal["default", "time", "knee", "mql"], Count]]
"""Trials by what they were picked for, by study."""


CONFIRMATION = "confirmation"
"""The kind of a plan that tests what was recommended before."""

ABLATION = "ablation"
"""The kind of a plan that takes a recommendation apart; a plan by which something is chosen has no
kind."""


class StoredFrozen(Loose):
    """What a confirmation tests of one study, as it was frozen before its first run."""

    default: Count
    recommended: Count | None = None
    """None where the default stands, or where the study's default is run for others alone."""
    bolder: Annotated[tuple[Count, ...], Field(max_length=MOST_OFFERS)] = ()
    """What is tested after it, each only where all before it were claimed."""
    at_level: Count | None = None
    """What is recommended for the quality of the reference's default; None where nothing is, there
    is no reference, or the study is the reference's."""
    offers: Annotated[tuple[Count, ...], Field(max_length=MOST_OFFERS)] | None = None
    """What may have that quality, from the boldest to the surest; None in older plans."""
    margin: Annotated[float, Field(ge=0)]
    chance: Annotated[float, Field(ge=0, le=1)] | None = None
    """How surely what is recommended is as good, by what was known then."""
    known: Count
    """How many trials and verification runs were known then."""
    attempt: Annotated[int, Field(ge=1)] = 1
    why_none: str | None = None
    """Why nothing is recommended."""

    def to_answer_with(self) -> tuple[int, ...]:
        """What answers for the study at the reference's quality, the first that is confirmed."""
        if self.offers is not None:
            return self.offers
        of_before = self.recommended if self.at_level is None else self.at_level
        return () if of_before is None else (of_before,)

    def steps(self) -> tuple[int, ...]:
        """What is tested against the study's default, in this order."""
        return () if self.recommended is None else (self.recommended, *self.bolder)

    def trials(self) -> list[int]:
        """Each once, the default first."""
        found = [self.default, *self.steps(), self.at_level, *(self.offers or ())]
        return list(dict.fromkeys(number for number in found if number is not None))


class StoredAblation(Loose):
    """What an ablation takes apart of one study, as it was when it was planned."""

    trial: Count
    recommended: dict[Label, ChoiceValue]
    """The configuration of `trial`."""
    default: dict[Label, ChoiceValue]


class StoredPlan(Loose):
    """A session's design: how many seeds, when it may stop, and which trials it asks about."""

    kind: Literal["confirmation", "ablation"] | None = None
    confirms: dict[StudyName, StoredFrozen] = Field(default_factory=dict)
    ablates: dict[StudyName, StoredAblation] = Field(default_factory=dict)
    reference: StudyName | None = None
    """The group whose default's quality `at_level` asks for."""
    cut: dict[StudyName, Count] = Field(default_factory=dict)
    """Defaults of a confirmation that their study's limit of epochs had cut off before: their runs
    count with what they come to, converged or cut off."""

    looks: tuple[Annotated[int, Field(ge=1, le=1_000_000)], ...] = Field(
        default=(), max_length=MOST_LOOKS
    )
    picks: Picks = Field(default_factory=dict)
    choice: Literal["front", "expected", "recommended"] = "front"
    chosen_later: Picks = Field(default_factory=dict)
    device_s: Annotated[float, Field(ge=0)] | None = None
    """How long its runs may have devices, all together; None: as long as they take."""

    @model_validator(mode="after")
    def _looks_ascend(self) -> Self:
        if list(self.looks) != sorted(set(self.looks)):
            raise ValueError(f"its looks {list(self.looks)} do not ascend")
        return self

    def picked(self, study: str) -> set[int]:
        """The trials of a study that this or a later plan asks about."""
        frozen = self.confirms.get(study)
        return {
            number
            for picks in (self.picks, self.chosen_later)
            for number in picks.get(study, {}).values()
        } | set(frozen.trials() if frozen else ())


def is_confirmation(plan: Mapping[str, Any]) -> bool:
    """Whether a run of this plan tests what was recommended before, and chooses nothing."""
    return plan.get("kind") == CONFIRMATION


def is_ablation(plan: Mapping[str, Any]) -> bool:
    """Whether a run of this plan takes a recommendation apart, and chooses nothing."""
    return plan.get("kind") == ABLATION


def cut_default(plan: Mapping[str, Any], study: str) -> int | None:
    """The default of a study that a confirmation holds others against although it is cut off; None
    where there is none.
    """
    found: int | None = plan.get("cut", {}).get(study)
    return found


def stands_apart(plan: Mapping[str, Any]) -> bool:
    """Whether a run of this plan chooses nothing, whichever its kind."""
    return is_confirmation(plan) or is_ablation(plan)


_PARAMS: TypeAdapter[dict[str, Value]] = TypeAdapter(dict[Label, ChoiceValue])


@functools.lru_cache(maxsize=64)
def read_plan(text: str) -> dict[str, Any]:
    """The plan that a run keeps, all of it. All runs of a session have the same, which is not to be
    changed.

    Raises:
        ValueError: it is none.
    """
    data = read_json(text)
    StoredPlan.model_validate_json(json.dumps(data), strict=True)
    return dict(data)


def read_params(text: str) -> dict[str, Value]:
    """The configuration of a run.

    Raises:
        ValueError: it is none.
    """
    return _PARAMS.validate_json(json.dumps(read_json(text)), strict=True)


CHOSEN_LATER = "chosen_later"
"""In a run's plan: what a later plan, which had no new
run of its study, chose from the expected front."""


def plan_renamed(plan: Mapping[str, Any], old: str, new: str) -> dict[str, Any]:
    """The plan of a run whose study `old` goes on as `new`:
    what was chosen stays known under its name.
    """
    changed = dict(plan)
    for key in ("picks", CHOSEN_LATER, "confirms", "ablates", "cut"):
        if old in changed.get(key, {}):
            mine = changed[key][old]
            changed[key] = {
                **{study: theirs for study, theirs in changed[key].items() if study != old},
                new: mine,
            }
    return changed


def _result(text: str | None) -> TrialResult | None:
    return TrialResult.from_json(text) if text else None


def _late(text: str | None) -> tuple[TrialResult, ...]:
    found = read_json(text or "{}").values()
    return tuple(TrialResult.from_json(json.dumps(each)) for each in found)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """One run to make: a trial's configuration on a fresh seed,
    and when (`place` in the random order).
    """

    study_id: int
    trial_number: int
    params: Annotated[Mapping[str, Value], from_text(read_params)]
    seed: int
    block: int
    place: int
    session: str
    plan: Annotated[dict[str, Any], from_text(read_plan)]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationRun(PlannedRun):
    """A planned run and what became of it. `result` is there once `state` is "finished"."""

    run_id: int
    state: str
    losses: int
    token: str | None
    worker: str | None
    result: Annotated[TrialResult | None, from_text(_result)]
    late: Annotated[tuple[TrialResult, ...], from_text(_late)] = ()
    """Of workers that had lost their lease by then: for the record."""

    @property
    def ticket(self) -> RunTicket:
        """Of a run that is claimed."""
        assert self.token is not None, "nobody has claimed this run"
        return RunTicket(self.run_id, self.token)


RUNS = TypeAdapter(list[VerificationRun])


def run_row(run: PlannedRun) -> dict[str, Any]:
    """The row of a run that waits."""
    return {
        "study_id": run.study_id,
        "trial_number": run.trial_number,
        "params": json.dumps(run.params, sort_keys=True),
        "seed": run.seed,
        "block": run.block,
        "place": run.place,
        "session": run.session,
        "plan": json.dumps(run.plan, sort_keys=True),
        "state": "waiting",
        "losses": 0,
    }


def recorded_row(run: VerificationRun) -> dict[str, Any]:
    """The row of a run that ended elsewhere, e.g.
    in the database that a study was exported from.
    """
    result = run.result.to_json() if run.result else None
    return run_row(run) | {
        "state": run.state,
        "losses": run.losses,
        "worker": run.worker,
        "result": result,
    }
