"""What is known of a piece of work: who may do it, what came of it, and how many there are."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal, Self, TypeVar

from optuna.trial import TrialState
from pydantic import Field, PlainValidator, TypeAdapter, ValidationError, model_validator
from sqlalchemy import Engine, Row, Table, text

from tuner.config import OBJECTIVES
from tuner.errors import StorageError
from tuner.files.plain import UNREADABLE, Loose, excerpt, explained, read_json
from tuner.record import Recorded
from tuner.storage.dialects import READING

# Rows that nobody can read, as an edit or a failing disk leaves them.


T = TypeVar("T")


class DamagedRowError(ValueError):
    """A stored value is none of ours: the number of the trial that it is of, None of what belongs
    to the whole study, and in which column of which table it is.
    """

    def __init__(self, trial: Any, what: str) -> None:
        super().__init__(what)
        of = f" trial {trial}" if isinstance(trial, int) else ""
        self.of_study = f"{of}: {what}; restore it from a backup"
        """What follows the name of the study."""


@contextmanager
def cell(column: str, trial: Any = None) -> Iterator[None]:
    """Around what reads one column. Raises DamagedRowError where that fails."""
    try:
        yield
    except DamagedRowError:
        raise
    except UNREADABLE as error:
        raise DamagedRowError(trial, f"{column}: {explained(error)}") from error


def read_rows(model: TypeAdapter[list[T]], table: Table, rows: Sequence[Row[Any]]) -> list[T]:
    """The records of some rows, whose columns are named as the model's fields.

    Raises:
        DamagedRowError: a column holds what its field does not take.
    """
    try:
        return model.validate_python([dict(row._mapping) for row in rows])  # noqa: SLF001
    except ValidationError as error:
        row = rows[int(error.errors()[0]["loc"][0])]
        number = row.trial_number if "trial_number" in row._fields else row.number
        what = explained(error).partition(".")[2]
        raise DamagedRowError(number, f"{table.name}.{what}") from error


def from_text(read: Callable[[Any], object]) -> PlainValidator:
    """How a field reads the JSON in its column."""

    def validated(stored: Any) -> object:
        try:
            return read(stored)
        except UNREADABLE as error:
            raise ValueError(explained(error)) from error

    return PlainValidator(validated)


@contextmanager
def damage_named(engine: Engine, study_id: int) -> Iterator[None]:
    """Around what reads a study. Raises StorageError where a row of it is damaged."""
    try:
        yield
    except DamagedRowError as error:
        with engine.connect().execution_options(**{READING: True}) as connection:
            query = text("SELECT study_name FROM studies WHERE study_id = :id")
            name = connection.execute(query, {"id": study_id}).scalar_one_or_none() or study_id
        where, _, what = error.of_study.partition(": ")
        raise StorageError(
            f"study {name!r}{where} cannot be read: {what} ('tuner db check' lists all that is "
            "damaged)"
        ) from error


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to run one trial, or to run it once more. `token` fences it: only the holder of a
    running token may write the result.
    """

    work_id: int
    token: str
    trial_number: int
    trial_id: int | None
    """Optuna's number of the trial; None of a run on a fresh seed."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Pieces of work: how many are planned, how many run,
    and how many are `finished` and count for good.
    """

    budget: int
    running: int
    finished: int
    time_is_up: bool = False
    """They have had the time on their devices that they may have: none begins any more."""
    unpaid: bool = False
    """What is left of their device hours (`--max-gpu-hours`) pays for none any more."""

    @property
    def ended_early(self) -> bool:
        """None begins any more, whatever the budget."""
        return self.time_is_up or self.unpaid

    @property
    def lacks_hours(self) -> bool:
        """More of them would begin with more device hours."""
        return self.unpaid and self.finished < self.budget and not self.time_is_up

    @property
    def left(self) -> int:
        """How many are to be waited for: where none begins any more, those that run."""
        return self.running if self.ended_early else max(0, self.budget - self.finished)


@dataclass(frozen=True, slots=True)
class TrialResult:
    """What a trial became: Optuna state, objective values (complete trials only) and all that was
    recorded, which Optuna has as flat user attributes.
    """

    state: TrialState
    values: tuple[float, ...] | None
    recorded: Recorded
    constraints: dict[str, float] = field(default_factory=dict)
    """As of `trial.set_constraint`: above 0 is a limit that the trial does not keep."""

    def noting(self, **said: Any) -> TrialResult:
        """The same, with this in its record as well."""
        return replace(self, recorded=replace(self.recorded, **said))

    def to_json(self) -> str:
        flat = self.recorded.to_flat()
        data = {"state": self.state.name, "values": self.values, "attributes": flat}
        return json.dumps(data | ({"constraints": self.constraints} if self.constraints else {}))

    @staticmethod
    def from_json(text: str) -> TrialResult:
        """What `to_json` gave.

        Raises:
            ValueError: it is no result of ours, or says that the trial is complete and lacks
                values. What is wrong in its record is left out.
        """
        told = _Told.model_validate_json(text, strict=True)
        state, recorded = TrialState[told.state], Recorded.from_flat(told.attributes)
        return TrialResult(state, told.values or None, recorded, told.constraints)


class _Told(Loose):
    """A result as somebody stored it."""

    state: Literal["RUNNING", "COMPLETE", "PRUNED", "FAIL", "WAITING"]
    values: tuple[float, ...] | None
    attributes: dict[str, Any]
    constraints: dict[str, float] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        number = len(self.values or ())
        if self.state == "COMPLETE" and number != len(OBJECTIVES):
            raise ValueError(f"it is complete, and has {number} values, not {len(OBJECTIVES)}")
        return self


ORIGINS: Mapping[str, type] = {"default": bool, "warm_start": str, "copied_from": str}
"""What says where a configuration comes from, before it runs and in its record."""


def read_json_or_none(text: str | None) -> Any:
    """What a column holds; None where it is empty."""
    return None if text is None else read_json(text)


def _notes(text: str | None) -> dict[str, Any]:
    notes = read_json_or_none(text) or {}
    if not isinstance(notes, dict):
        raise ValueError("should be a table")  # noqa: TRY004 - what pydantic takes for an answer
    for name, value in notes.items():
        if not isinstance(value, ORIGINS.get(name, int | float)):  # a sampler's is a number
            raise ValueError(f"{excerpt(name)} = {excerpt(repr(value))} is none of ours")  # noqa: TRY004
    return notes


class Attempt(Loose):
    """One worker's go at a trial. `claimed_at` is in seconds since 1970, on the database's clock.

    `state` is waiting, running, finished (its result counts), returned (handed back) or lost (its
    lease ran out, or it died). A lost attempt may have a result too: it came too late to count.
    """

    work_id: int
    trial_id: int
    trial_number: int
    worker: str
    state: Literal["waiting", "running", "finished", "returned", "lost"]
    claimed_at: float
    leased_until: float
    ended_at: float | None
    params: Annotated[Any, from_text(read_json_or_none)]
    """True values; while it waits whatever somebody asked for."""
    notes: Annotated[dict[str, Any], from_text(_notes)]
    """Where its configuration comes from, and what a genetic sampler noted."""
    told: bool
    """Whether Optuna was told the result."""
    text: str | None = Field(alias="result")

    @functools.cached_property
    def result(self) -> TrialResult | None:
        """Raises DamagedRowError where it is none of ours, or a finished trial has none."""
        if self.text is None and self.state != "finished":
            return None
        with cell("tuner_work.result", self.trial_number):
            return TrialResult.from_json(self.text or "")

    @property
    def late(self) -> bool:
        return self.result is not None and self.state != "finished"


ATTEMPTS = TypeAdapter(list[Attempt])


def set_aside(lost: int) -> TrialResult:
    """The result of what cost `lost` workers their lives."""
    reason = f"set aside: its worker was lost {lost} times"
    return TrialResult(
        TrialState.FAIL, None, Recorded(stopped_by="error", failure=reason, set_aside=True)
    )


# What a trial or a verification run had its device for, by its own record: what budgets in time
# are spent by.


def device_seconds(recorded: Recorded) -> float:
    """Seconds that one piece of work held its device, or all of several together, with what it cost
    beside its training: set-up, evaluation, timings that were repeated, and the device's wait for
    it; 0 where nothing was recorded, or the record is a copy of another study's.

    `cycle_s` of a trial reaches from the end of the training before it to its own, so the trials
    of a worker add up to its time. Where that is not known, it is what the worker had it for, else
    the run itself. One that was resumed has its earlier part in `total_s` alone. Waiting for a
    device that somebody else had is not counted.
    """
    if recorded.copied_from is not None:
        return 0.0
    alone = recorded.total_s if recorded.total_s is not None else recorded.wall_clock_s
    held = max(0.0, _had_s(recorded) or 0.0, (alone or 0.0) + _repeated_s(recorded))
    return held * (recorded.devices or 1)


def money(recorded: Recorded, price: float) -> float:
    """What its `device_seconds` cost at a price per device hour."""
    return device_seconds(recorded) * price / 3600.0


def attempt_seconds(recorded: Recorded) -> float:
    """The same of the attempt alone that came to this result: without what earlier ones took of a
    trial that was resumed. All of it where nobody knows.
    """
    had = _had_s(recorded)
    copied = recorded.copied_from is not None
    if had is None or copied:
        return device_seconds(recorded)
    return max(0.0, had) * (recorded.devices or 1)


def _had_s(recorded: Recorded) -> float | None:
    had = recorded.cycle_s if recorded.cycle_s is not None else recorded.attempt_s
    return None if had is None else had - (recorded.wait_s or 0.0)


def _repeated_s(recorded: Recorded) -> float:
    """Of the timings that were repeated, all but the one that counts."""
    clocks = [_seconds(each) for each in recorded.timings or ()]
    return max(0.0, sum(clocks) - (recorded.wall_clock_s or 0.0)) if len(clocks) > 1 else 0.0


def _seconds(timing: Mapping[str, Any]) -> float:
    found = timing.get("wall_clock_s")
    return float(found) if isinstance(found, int | float) else 0.0
