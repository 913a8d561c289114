"""Whether what a database holds agrees with itself: each kind of fault, and what has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from optuna.trial import TrialState
from sqlalchemy import Connection, Engine, Select, func, select

from tuner.storage import schema
from tuner.storage.database_clock import database_now
from tuner.storage.optuna import rows as optuna_rows
from tuner.storage.optuna.changed import changed_trials
from tuner.storage.optuna.damage import REPAIR, Damage, damages
from tuner.storage.optuna.private import STUDIES, TRIALS
from tuner.storage.orphans import orphaned
from tuner.storage.queue.runs import run_can_be_read
from tuner.storage.schema import claims, verifications

Level = Literal["error", "notice"]
"""An error is not right, a notice passes by itself."""
Faults = dict[str, tuple[Level, set[str]]]
"""By the sentence that says what it is, of `n` things, which are `which`."""

OF_OURS = TRIALS.c.study_id.in_(select(schema.studies.c.study_id))
CLAIMED = select(claims.c.trial_id).where(claims.c.trial_id.is_not(None))
HELD = CLAIMED.where(claims.c.state.in_(["running", "finished"]))
RESULTS = select(claims.c.study_id, claims.c.trial_number).where(claims.c.state == "finished")


def faults(engine: Engine) -> Faults:
    """Every kind of fault, with the trials, runs or studies that have it now."""
    with engine.connect() as connection:
        rows = connection.execute(select(STUDIES)).all()
        reader = _Reader(connection, {row.study_id: row.study_name for row in rows})
        return (
            _of_trials(reader)
            | _of_claims(reader)
            | _of_verification_runs(reader)
            | _of_studies(reader)
        )


def damaged(engine: Engine) -> list[Damage]:
    """What cannot be read, cell by cell; of a trial that is found to be changed, and can be
    restored, that is said once.
    """
    with engine.connect() as connection:
        found = list(damages(connection))
        changed: set[tuple[int, int | None]] = set()
        if any(each.remedy == REPAIR for each in found):
            changed = {(each.study_id, each.number) for each in changed_trials(connection)}
    return [e for e in found if e.remedy != REPAIR or (e.study_id, e.trial) not in changed]


@dataclass(frozen=True, slots=True)
class _Reader:
    """Says of rows what they are, with the names of their studies."""

    connection: Connection
    names: Mapping[int, str]

    def trial(self, study: int, number: int | None) -> str:
        name = self.names.get(study, f"study {study}")
        return f"{name} trial {'?' if number is None else number}"

    def trials(self, query: Select[Any]) -> set[str]:
        """Of rows (study, number)."""
        rows = self.connection.execute(query).all()
        return {self.trial(study, number) for study, number in rows}

    def runs(self, query: Select[Any]) -> set[str]:
        """Of rows (study, number, seed)."""
        rows = self.connection.execute(query).all()
        return {f"{self.trial(study, number)} seed {seed}" for study, number, seed in rows}


def _of_trials(reader: _Reader) -> Faults:
    there = optuna_rows.has_study(claims.c.study_id)
    untold = RESULTS.where(there & claims.c.told.is_(False))
    number = select(TRIALS.c.study_id, TRIALS.c.number)
    stray = optuna_rows.strays(None, HELD, CLAIMED)
    orphans = number.where(OF_OURS & stray)
    others = number.where(
        OF_OURS & TRIALS.c.trial_id.not_in(HELD) & (TRIALS.c.state != TrialState.WAITING) & ~stray
    )
    changed = {
        f"{reader.trial(each.study_id, each.number)}: {each.what}"
        for each in changed_trials(reader.connection)
    }
    return {
        "results that Optuna was not told yet: {n} ({which}); the next worker or launch tells it": (
            "error",
            reader.trials(untold),
        ),
        "trials that run for nobody: {n} ({which}); the next worker or launch takes them back": (
            "error",
            reader.trials(orphans),
        ),
        "trials that other programs changed in Optuna's tables: {n} ({which}); tuner goes by "
        "its own record, and 'tuner db check --repair' restores it there": ("error", changed),
        "trials that other programs made or ended: {n} ({which}); tuner ignores them": (
            "notice",
            reader.trials(others),
        ),
    }


def _of_claims(reader: _Reader) -> Faults:
    there = optuna_rows.has_study(claims.c.study_id)
    row_of = select(TRIALS.c.trial_id).where(TRIALS.c.trial_id == claims.c.trial_id).exists()
    gone = RESULTS.where(there & ~row_of)
    twice = RESULTS.group_by(claims.c.study_id, claims.c.trial_number).having(func.count() > 1)
    overdue = select(claims.c.study_id, claims.c.trial_number).where(
        (claims.c.state == "running") & (claims.c.leased_until < database_now())
    )
    return {
        "results of trials that are not there: {n} ({which}); 'tuner db check --repair' puts "
        "the trials back": ("error", reader.trials(gone)),
        "trials with two results: {n} ({which})": ("error", reader.trials(twice)),
        "leases that ran out: {n} ({which}); the next worker or launch takes the trials back": (
            "notice",
            reader.trials(overdue),
        ),
    }


def _of_verification_runs(reader: _Reader) -> Faults:
    v = verifications.c
    runs = select(v.study_id, v.trial_number, v.seed)
    nobodys = (
        v.token.is_(None) | v.worker.is_(None) | v.leased_until.is_(None) | v.claimed_at.is_(None)
    )
    for_nobody = runs.where((v.state == "running") & nobodys)
    of_nothing = runs.where((v.state == "finished") & v.result.is_(None))
    configured = (TRIALS.c.study_id == v.study_id) & (TRIALS.c.number == v.trial_number)
    there = v.study_id.in_(select(STUDIES.c.study_id))
    unreadable = {
        f"{reader.trial(row.study_id, row.trial_number)} seed {row.seed}"
        for row in reader.connection.execute(
            select(v.study_id, v.trial_number, v.seed, v.params, v.result, v.late)
        )
        if not run_can_be_read(row)
    }
    gone = runs.where(there & ~select(TRIALS.c.trial_id).where(configured).exists())
    overdue = runs.where((v.state == "running") & (v.leased_until < database_now()))
    return {
        "verification runs that run for nobody: {n} ({which})": ("error", reader.runs(for_nobody)),
        "finished verification runs without a result: {n} ({which})": (
            "error",
            reader.runs(of_nothing),
        ),
        "verification runs of trials that are not there: {n} ({which})": (
            "error",
            reader.runs(gone),
        ),
        "verification runs that cannot be read: {n} ({which}); restore them from a backup": (
            "error",
            unreadable,
        ),
        "leases of verification runs that ran out: {n} ({which}); the next 'tuner verify' "
        "takes the runs back": ("notice", reader.runs(overdue)),
    }


def _of_studies(reader: _Reader) -> Faults:
    return {
        "studies that were deleted by other means than tuner: {n} ({which}); 'tuner db check "
        "--repair' writes what is left of them to files and removes it": (
            "notice",
            {each.described for each in orphaned(reader.connection)},
        ),
    }
