"""Runs that verify configurations on fresh seeds:
planned whole, claimed one by one, each with one recorded result.

A planned run waits in its place of the plan. So there is no budget to keep exact, and a plan can be
made again: what is there stays. What all claims have in common: see `Queue`.
"""

from __future__ import annotations

import functools
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Annotated, Any, Literal, Self

from optuna.trial import TrialState
from pydantic import Field, TypeAdapter, model_validator
from sqlalchemy import Connection, Engine, Row, func, insert, select, update

from tuner.config import Value
from tuner.errors import StudyGoneError
from tuner.files.plain import Count, Label, Loose, read_json
from tuner.record import Recorded
from tuner.spec.ranges import ChoiceValue
from tuner.storage.optuna import private as optuna_rows
from tuner.storage.queue.gpu_hours import DeviceTimes, GpuHours
from tuner.storage.queue.leased_queue import MAX_ATTEMPTS, Queue
from tuner.storage.records import Claim, Counts, TrialResult, damage_named, from_text, read_rows
from tuner.storage.schema import RUN, studies, work

# A verification run as a record and as a row.


# What a verification run keeps of the plan it belongs to, as it is read again.


MOST_LOOKS = 100
MOST_OFFERS = 20

StudyName = Annotated[str, Field(min_length=1, max_length=512)]
"""Whatever it is called: another program may have renamed it. Who shows it makes it harmless."""

Picks = dict[StudyName, dict[Literal["default", "time", "knee", "mql"], Count]]
"""Trials by what they were picked for, by study."""


CONFIRMATION = "confirmation"
"""The kind of a plan that tests what was recommended before; one by which something is chosen has
none."""


class StoredFrozen(Loose):
    """What a confirmation tests of one study, as it was frozen before its first run."""

    default: Count
    recommended: Count | None = None
    """None where the default stands, or where the study's default is run for others alone."""
    bolder: Annotated[tuple[Count, ...], Field(max_length=MOST_OFFERS)] = ()
    """What is tested after it, each only where all before it were claimed."""
    offers: Annotated[tuple[Count, ...], Field(max_length=MOST_OFFERS)] | None = None
    """What may have the quality of the reference's default, from the boldest to the surest; None
    where there is no reference."""
    margin: Annotated[float, Field(ge=0)]
    chance: Annotated[float, Field(ge=0, le=1)] | None = None
    """How surely what is recommended is as good, by what was known then."""
    known: Count
    """How many trials and verification runs were known then."""
    attempt: Annotated[int, Field(ge=1)] = 1
    why_none: str | None = None
    """Why nothing is recommended."""

    def steps(self) -> tuple[int, ...]:
        """What is tested against the study's default, in this order."""
        return () if self.recommended is None else (self.recommended, *self.bolder)

    def offered(self) -> tuple[int, ...]:
        """What is tested against the reference's default, in this order."""
        return (self.offers or ())[::-1]

    def trials(self) -> list[int]:
        """Each once, the default first."""
        return list(dict.fromkeys([self.default, *self.steps(), *self.offered()]))


class StoredPlan(Loose):
    """A session's design: how many seeds, when it may stop, and which trials it asks about."""

    kind: Literal["confirmation"] | None = None
    confirms: dict[StudyName, StoredFrozen] = Field(default_factory=dict)
    reference: StudyName | None = None
    """The group whose default's quality the offers are for."""
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
        found = set(frozen.trials() if frozen else ())
        for picks in (self.picks, self.chosen_later):
            found.update(picks.get(study, {}).values())
        return found


def is_confirmation(plan: Mapping[str, Any]) -> bool:
    """Whether a run of this plan tests what was recommended before, and chooses nothing."""
    return plan.get("kind") == CONFIRMATION


def cut_default(plan: Mapping[str, Any], study: str) -> int | None:
    """The default of a study that a confirmation holds others against although it is cut off; None
    where there is none.
    """
    found: int | None = plan.get("cut", {}).get(study)
    return found


_PARAMS: TypeAdapter[dict[str, Value]] = TypeAdapter(dict[Label, ChoiceValue])


@functools.lru_cache(maxsize=64)
def stored_plan(text: str) -> StoredPlan:
    """What of a plan is read. Raises ValueError where it is none."""
    return StoredPlan.model_validate_json(text, strict=True)


@functools.lru_cache(maxsize=64)
def read_plan(text: str) -> dict[str, Any]:
    """The plan that a run keeps, all of it. All runs of a session have the same, which is not to be
    changed.

    Raises:
        ValueError: it is none.
    """
    data = read_json(text)
    stored_plan(json.dumps(data))
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
    for key in ("picks", CHOSEN_LATER, "confirms", "cut", "known_trials"):
        if old in changed.get(key, {}):
            mine = changed[key][old]
            others = {study: theirs for study, theirs in changed[key].items() if study != old}
            changed[key] = others | {new: mine}
    return changed


def _result(text: str | None) -> TrialResult | None:
    return TrialResult.from_json(text) if text else None


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

    work_id: int
    state: str
    token: str | None
    worker: str
    """Who has it, or had it last; empty where nobody has."""
    result: Annotated[TrialResult | None, from_text(_result)]
    losses: int = 0
    """How often its worker was lost."""
    late: tuple[TrialResult, ...] = ()
    """Of workers that had lost their lease by then: for the record."""

    @property
    def ticket(self) -> Claim:
        """Of a run that is claimed."""
        assert self.token is not None, "nobody has claimed this run"
        return Claim(self.work_id, self.token, self.trial_number, None)

    @property
    def copied(self) -> bool:
        """Another search of its variant has made it, and had the device for it."""
        return self.result is not None and self.result.recorded.copied_from is not None

    @property
    def piece(self) -> tuple[int, int, int]:
        """What all attempts at it have in common."""
        return self.study_id, self.trial_number, self.seed


RUNS = TypeAdapter(list[VerificationRun])


def run_row(run: PlannedRun) -> dict[str, Any]:
    """The row of a run that waits."""
    row = {each.name: getattr(run, each.name) for each in fields(PlannedRun)}
    texts = {name: json.dumps(row[name], sort_keys=True) for name in ("params", "plan")}
    return row | texts | {"kind": RUN, "state": "waiting", "worker": "", "result": None}


def recorded_rows(run: VerificationRun) -> list[dict[str, Any]]:
    """The rows of a run that ended elsewhere, e.g. in the database that a study was exported from:
    of each attempt that was lost, and of its result.
    """
    result = run.result.to_json() if run.result else None
    # What was lost as often as that is set aside: a file that says more makes no more rows of it.
    lost = [run_row(run) | {"state": "lost"}] * min(run.losses, MAX_ATTEMPTS)
    return [*lost, run_row(run) | {"state": run.state, "worker": run.worker, "result": result}]


class Verifications(Queue[VerificationRun]):
    """The verification runs of some studies, which workers share, in the order of the plan.

    Of those `known` by name and time of making, work ends when one of them is deleted.
    """

    kind = RUN

    def __init__(
        self,
        engine: Engine,
        study_ids: Sequence[int],
        *,
        known: Mapping[int, tuple[str, float]] | None = None,
        limits: Mapping[int, GpuHours] | None = None,
    ) -> None:
        super().__init__(engine, work.c.study_id.in_(list(study_ids)))
        self._known = known or {}
        self._times = DeviceTimes()
        self.limits = limits or {}
        """Of device time, by the number of the study; those that share one have the same."""

    # -- the plan ----------------------------------------------------------------------------------

    def add(self, runs: Sequence[PlannedRun]) -> int:
        """Plan `runs`, or keep those that were made elsewhere; those that are there already (same
        trial, same seed) stay as they are. Returns how many are new.

        To be called by one process at a time (under the initialisation lock).
        """
        c = work.c
        with self._engine.begin() as connection:
            rows = connection.execute(select(c.study_id, c.trial_number, c.seed).where(self._mine))
            there = {(row.study_id, row.trial_number, row.seed) for row in rows}
            new = [run for run in runs if (run.study_id, run.trial_number, run.seed) not in there]
            added: list[dict[str, Any]] = []
            for run in new:
                added += recorded_rows(run) if isinstance(run, VerificationRun) else [run_row(run)]
            there_still = set(connection.execute(select(studies.c.study_id)).scalars())
            if gone := {run.study_id for run in new} - there_still:
                raise StudyGoneError.of(f"number {min(gone)}")
            if added:
                connection.execute(insert(work), added)
        return len(new)

    def runs(self) -> tuple[VerificationRun, ...]:
        """All runs, in the order of the plan, each with what its lost attempts left."""
        query = select(work).where(self._mine).order_by(work.c.place, work.c.work_id)
        with self._engine.connect() as connection:
            attempts = [self._read(row) for row in connection.execute(query).all()]
        losses: Counter[tuple[int, int, int]] = Counter()
        late: dict[tuple[int, int, int], list[TrialResult]] = {}
        found = []
        for each in attempts:
            if each.state not in ("lost", "returned"):
                found.append(each)
                continue
            losses[each.piece] += each.state == "lost"
            if each.result is not None:
                late.setdefault(each.piece, []).append(each.result)
        for at, run in enumerate(found):
            if run.piece in losses:
                left = tuple(late.get(run.piece, ()))
                found[at] = replace(run, losses=losses[run.piece], late=left)
        return tuple(found)

    def note(self, run: VerificationRun, plan: dict[str, Any]) -> None:
        """Replace what `run` keeps of its plan."""
        mine = self._mine & (work.c.work_id == run.work_id)
        text = json.dumps(plan, sort_keys=True)
        with self._engine.begin() as connection:
            connection.execute(update(work).where(mine).values(plan=text))

    def waiting_plans(self) -> dict[str, dict[str, Any]]:
        """The plans of the sessions that have runs waiting."""
        c = work.c
        waiting = self._mine & (c.state == "waiting")
        query = select(c.session, func.min(c.plan)).where(waiting).group_by(c.session)
        with self._engine.connect() as connection:
            return {str(row[0]): read_plan(row[1]) for row in connection.execute(query)}

    def skip_waiting(self, session: str, reason: str) -> int:
        """Take the runs of `session` that nobody has begun off the plan, for a `reason`. Returns
        how many.
        """
        waiting = self._mine & (work.c.session == session) & (work.c.state == "waiting")
        result = TrialResult(TrialState.WAITING, None, Recorded(skipped=reason)).to_json()
        skipped = update(work).where(waiting).values(state="skipped", result=result)
        with self._engine.begin() as connection:
            return int(connection.execute(skipped).rowcount)

    # -- how much there is -------------------------------------------------------------------------

    def spent_s(self, session: str, beside: Mapping[int, float] | None = None) -> float:
        """Seconds that the runs of `session` had their devices for, whatever came of them, those of
        other studies in it included.

        `beside` are seconds, by run, of those that have ended and may not be stored yet: each
        counts once.
        """
        mine = (work.c.kind == self.kind) & (work.c.session == session)
        with self._engine.connect() as connection:
            spent = self._times.seconds(connection, mine)
            if not beside:
                return spent
            of_it = set(connection.execute(select(work.c.work_id).where(mine)).scalars())
            took = self._times.of(connection, mine)
        return spent + sum(s for run, s in beside.items() if run in of_it - took.keys())

    def counts(self) -> Counts:
        """Runs: planned (without skipped ones), running and finished.

        Raises:
            StudyGoneError: one of the studies was deleted.
        """
        with self._engine.connect() as connection:
            self._require_studies(connection)
            by_state = self._by_state(connection)
            unpaid = self._unpaid(connection, by_state)
        planned = sum(by_state.get(state, 0) for state in ("waiting", "running", "finished"))
        running, finished = by_state.get("running", 0), by_state.get("finished", 0)
        return Counts(planned, running, finished, unpaid=unpaid)

    def _unpaid(self, connection: Connection, by_state: Mapping[str, int]) -> bool:
        """Whether some runs wait, and device hours keep all of them from beginning."""
        over = self._studies_of(lambda hours: hours.is_over(connection))
        if not over or not by_state.get("waiting"):
            return False
        c = work.c
        paid = self._mine & (c.state == "waiting") & c.study_id.not_in(over)
        return connection.execute(select(c.work_id).where(paid).limit(1)).first() is None

    def _studies_of(self, which: Callable[[GpuHours], bool]) -> list[int]:
        """Those whose limit is one of these; each limit is asked once."""
        found = {hours for hours in set(self.limits.values()) if which(hours)}
        return [study_id for study_id, hours in self.limits.items() if hours in found]

    def _require_studies(self, connection: Connection) -> None:
        """Of the studies that are known here: as they were, for SQLite gives a number again."""
        c = studies.c
        if not self._known:
            return
        mine = c.study_id.in_(list(self._known)) & optuna_rows.has_study(c.study_id)
        rows = connection.execute(select(c.study_id, c.created_at).where(mine)).all()
        there = {row.study_id: row.created_at for row in rows}
        for study_id, (name, made_at) in sorted(self._known.items()):
            if there.get(study_id) != made_at:
                raise StudyGoneError.of(name)

    # -- a run's row -------------------------------------------------------------------------------

    def _take(
        self, connection: Connection, worker: str, token: str, seen: Row[Any]
    ) -> VerificationRun | None:
        """The next run of the plan; None when none waits."""
        del seen
        self._require_studies(connection)
        unpaid = self._studies_of(lambda hours: not hours.may_claim(connection, worker))
        c = work.c
        waiting = self._mine & (c.state == "waiting") & c.study_id.not_in(unpaid)
        first = select(c.work_id).where(waiting).order_by(c.place, c.work_id).limit(1)
        first = first.with_for_update(skip_locked=True)
        work_id = connection.execute(first).scalar_one_or_none()
        if work_id is None:
            return None
        self._begin(connection, work_id, worker, token)
        return self._read(connection.execute(select(work).where(c.work_id == work_id)).one())

    def _read(self, row: Row[Any]) -> VerificationRun:
        with damage_named(self._engine, row.study_id):
            return read_rows(RUNS, work, [row])[0]

    def _work_of(self, row: Row[Any]) -> str:
        return f"the run of trial {row.trial_number} on seed {row.seed}"


def planned_seeds(engine: Engine) -> set[int]:
    """The seeds of all runs in the database, whatever they verify and whether they were made."""
    with engine.connect() as connection:
        seeds = connection.execute(select(work.c.seed).where(work.c.kind == RUN).distinct())
        return {int(seed) for seed in seeds.scalars()}
