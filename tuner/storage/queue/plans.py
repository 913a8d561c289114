"""What a verification run keeps of the plan it belongs to, as it is read again."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, TypeAdapter, model_validator

from tuner.files.plain import Count, Label, Loose, read_json

MOST_LOOKS = 100

StudyName = Annotated[str, Field(min_length=1, max_length=512)]
"""Whatever it is called: another program may have renamed it. Who shows it makes it harmless."""

Picks = dict[StudyName, dict[Literal["default", "time", "knee", "mql"], Count]]
"""Trials by what they were picked for, by study."""


class StoredPlan(Loose):
    """A session's design: how many seeds, when it may stop, and which trials it asks about."""

    looks: tuple[Annotated[int, Field(ge=1, le=1_000_000)], ...] = Field(
        default=(), max_length=MOST_LOOKS
    )
    picks: Picks = Field(default_factory=dict)
    choice: Literal["front", "expected"] = "front"
    chosen_later: Picks = Field(default_factory=dict)

    @model_validator(mode="after")
    def _looks_ascend(self) -> Self:
        if list(self.looks) != sorted(set(self.looks)):
            raise ValueError(f"its looks {list(self.looks)} do not ascend")
        return self

    def picked(self, study: str) -> set[int]:
        """The trials of a study that this or a later plan asks about."""
        return {
            number
            for picks in (self.picks, self.chosen_later)
            for number in picks.get(study, {}).values()
        }


_PARAMS: TypeAdapter[dict[str, float | int]] = TypeAdapter(dict[Label, int | float])


def read_plan(text: str) -> dict[str, Any]:
    """The plan that a run keeps, all of it.

    Raises:
        ValueError: it is none.
    """
    data = read_json(text)
    StoredPlan.model_validate_json(json.dumps(data), strict=True)
    return dict(data)


def read_params(text: str) -> dict[str, float | int]:
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
    for key in ("picks", CHOSEN_LATER):
        if old in changed.get(key, {}):
            mine = changed[key][old]
            changed[key] = {
                **{study: theirs for study, theirs in changed[key].items() if study != old},
                new: mine,
            }
    return changed
