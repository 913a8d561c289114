"""An exported study as plain data: every field with its type and range, before anything reads it.

Keys that are not known here are left out: nothing reads them.
"""

from __future__ import annotations

import datetime
import functools
import json
from typing import Annotated, Any, Literal, Self

from optuna.trial import TrialState
from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, model_validator

from tuner.files.kinds import LARGEST_FIGURE, MOST_EPOCHS
from tuner.files.plain import (
    Count,
    Label,
    Loose,
    PlainTable,
    harmless_data,
    read_json,
    refuse_long_name,
)
from tuner.record import Recorded, checked
from tuner.spec.configuration import PartOfConfiguration
from tuner.spec.membership import Membership
from tuner.spec.ranges import ChoiceValue
from tuner.spec.retune import Registered
from tuner.storage.code_texts import MOST_BYTES
from tuner.storage.queue.plans import StoredPlan
from tuner.storage.records import TrialResult

MOST_TRIALS = 1_000_000
MOST_REPEATS = 1_000_000

Figure = Annotated[float, Field(ge=-LARGEST_FIGURE, le=LARGEST_FIGURE)]
Span = Annotated[float, Field(gt=0, le=LARGEST_FIGURE)]
Number = Annotated[int, Field(ge=0, lt=MOST_TRIALS)]


def _moment(text: str) -> str:
    if datetime.datetime.fromisoformat(text).tzinfo is not None:
        raise ValueError(f"{text} has an offset; moments are in UTC and do not say so")
    return text


Moment = Annotated[str, Field(max_length=40), AfterValidator(_moment)]


def _recorded(value: Any) -> Recorded:
    if not isinstance(value, dict):
        raise ValueError("should be a table")  # noqa: TRY004 - what pydantic takes for an answer
    for name in value:
        refuse_long_name(name, of="attribute ")
    return checked(value)


StoredRecord = Annotated[Recorded, PlainValidator(_recorded)]
Values = tuple[Span, Figure]


class Trial(Loose):
    """A trial with its record."""

    number: Number
    state: Literal["RUNNING", "COMPLETE", "PRUNED", "FAIL", "WAITING"]
    params: dict[Label, ChoiceValue]
    values: Values | None = None
    started: Moment | None
    ended: Moment | None
    attributes: StoredRecord
    notes: dict[Label, Count] | None = None

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        complete = self.state == "COMPLETE"
        if complete != (self.values is not None):
            raise ValueError(
                f"trial {self.number} is {self.state} {'without' if complete else 'with'} values"
            )
        PartOfConfiguration.model_validate(self.params, strict=True)
        return self


class Curve(Loose):
    """The columns of a learning curve."""

    epoch: tuple[Annotated[int, Field(ge=0, le=MOST_EPOCHS)], ...]
    repeat: tuple[Annotated[int, Field(ge=0, le=MOST_REPEATS)], ...]
    train_loss: tuple[Figure | None, ...]
    val_loss: tuple[Figure | None, ...]
    learning_rate: tuple[Figure, ...]
    elapsed_s: tuple[Figure, ...]

    @model_validator(mode="after")
    def _is_a_table(self) -> Self:
        if len({len(getattr(self, name)) for name in type(self).model_fields}) > 1:
            raise ValueError("a curve's columns are not of one length")
        if len(set(zip(self.repeat, self.epoch, strict=True))) < len(self.epoch):
            raise ValueError("a curve has an epoch twice")
        return self


class Result(Loose):
    """What a verification run came to."""

    state: Literal["COMPLETE", "PRUNED", "FAIL", "WAITING"]
    values: Values | None
    attributes: StoredRecord
    constraints: dict[Label, Figure] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if (self.state == "COMPLETE") != (self.values is not None):
            raise ValueError(f"a verification run is {self.state} and its values are {self.values}")
        return self

    def as_result(self) -> TrialResult:
        return TrialResult(TrialState[self.state], self.values, self.attributes, self.constraints)


@functools.lru_cache(maxsize=64)
def _plan_of(text: str) -> StoredPlan:
    """One for all runs of a session, which have the same."""
    return StoredPlan.model_validate_json(text, strict=True)


@functools.lru_cache(maxsize=64)
def _plain(text: str) -> Any:
    """One for all of them, too."""
    return harmless_data(read_json(text))


class Run(Loose):
    """A verification run that ended."""

    trial_number: Number
    params: dict[Label, ChoiceValue]
    seed: Count
    block: Number
    place: Number
    session: Annotated[Label, Field(max_length=32)]
    plan: Annotated[dict[str, Any], BeforeValidator(lambda given: _plain(json.dumps(given)))]
    state: Literal["finished", "skipped"]
    losses: Number
    worker: Annotated[Label, Field(max_length=120)] | None
    result: Result | None

    @functools.cached_property
    def design(self) -> StoredPlan:
        """What of its plan is read."""
        return _plan_of(json.dumps(self.plan))

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        PartOfConfiguration.model_validate(self.params, strict=True)
        if self.result is None:
            raise ValueError(
                f"a verification run of trial {self.trial_number} ended without a result"
            )
        if self.state == "skipped" and self.result.attributes.look not in self.design.looks:
            raise ValueError(
                f"a verification run of trial {self.trial_number} was skipped at no planned look"
            )
        return self


class ArchivedStudy(Loose):
    """The whole document, but for its definition and policy, which have readers of their own."""

    exported_by: Label
    name: Label
    definition: PlainTable
    code: Annotated[str, Field(max_length=MOST_BYTES, pattern=r"^[^\x00]*$")] | None = None
    """Absent where no class of somebody's own is in it."""
    loss_code: Annotated[str, Field(max_length=MOST_BYTES, pattern=r"^[^\x00]*$")] | None = None
    """Absent where its training loss has no term of somebody's own."""
    search: Membership | None = None
    """Absent from files of before there were groups: then it is by itself."""
    policy: PlainTable
    budget: Annotated[int, Field(ge=1, le=MOST_TRIALS)]
    retune: Registered | None = None
    """Absent where no retune is registered with it."""
    without_result_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Absent where all of its device time came to results."""
    device_model: Annotated[Label, Field(max_length=200)] | None
    trials: tuple[Trial, ...] = Field(max_length=MOST_TRIALS)
    curves: dict[Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,8})$")], Curve]
    verifications: tuple[Run, ...] = Field(max_length=MOST_TRIALS)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if [trial.number for trial in self.trials] != list(
            range(len(self.trials))
        ):  # as the database will number them
            raise ValueError("its trials are not 0, 1, 2 and so on")
        ended = {trial.number for trial in self.trials if trial.state not in ("WAITING", "RUNNING")}
        if others := {int(number) for number in self.curves} - ended:
            raise ValueError(f"there are curves of trials that did not end: {sorted(others)[:9]}")
        complete = {trial.number for trial in self.trials if trial.state == "COMPLETE"}
        seen: set[tuple[int, int]] = set()
        for run in self.verifications:
            if run.trial_number not in complete:
                raise ValueError(
                    f"there is a verification run of trial {run.trial_number}, which is not "
                    "complete"
                )
            if (run.trial_number, run.seed) in seen:
                raise ValueError(f"trial {run.trial_number} is verified twice on seed {run.seed}")
            seen.add((run.trial_number, run.seed))
            if others := run.design.picked(self.name) - complete:
                raise ValueError(
                    f"a verification picked trial {min(others)}, which is not complete"
                )
        return self
