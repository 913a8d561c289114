"""A verification run as a record and as a row."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row

from tuner.config import Value
from tuner.errors import StorageError
from tuner.files.plain import UNREADABLE, explained, read_json
from tuner.storage.queue.plans import read_params, read_plan
from tuner.storage.records import RunTicket, TrialResult


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """One run to make: a trial's configuration on a fresh seed,
    and when (`place` in the random order).
    """

    study_id: int
    trial_number: int
    params: Mapping[str, Value]
    seed: int
    block: int
    place: int
    session: str
    plan: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationRun(PlannedRun):
    """A planned run and what became of it. `result` is there once `state` is "finished"."""

    run_id: int
    state: str
    losses: int
    token: str | None
    worker: str | None
    result: TrialResult | None
    late: tuple[TrialResult, ...] = ()
    """Of workers that had lost their lease by then: for the record."""

    @property
    def ticket(self) -> RunTicket:
        """Of a run that is claimed."""
        assert self.token is not None, "nobody has claimed this run"
        return RunTicket(self.run_id, self.token)


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


def stored_run(row: Row[Any]) -> VerificationRun:
    """The run of a row.

    Raises:
        StorageError: it is none that tuner wrote.
    """
    try:
        return _read(row)
    except UNREADABLE as error:
        raise StorageError(
            f"verification run {row.run_id} of study number {row.study_id}, trial "
            f"{row.trial_number}, cannot be read from the "
            "database "
            f"({explained(error)}); restore it from a backup ('tuner db check' looks at the rest)"
        ) from None


def run_can_be_read(row: Any) -> bool:
    """Whether configuration and results of a run are what tuner writes."""
    try:
        read_params(row.params)
        _results(row)
    except UNREADABLE:
        return False
    return True


def _read(row: Row[Any]) -> VerificationRun:
    result, late = _results(row)
    return VerificationRun(
        run_id=row.run_id,
        study_id=row.study_id,
        trial_number=row.trial_number,
        params=read_params(row.params),
        seed=row.seed,
        block=row.block,
        place=row.place,
        session=row.session,
        plan=read_plan(row.plan),
        state=row.state,
        losses=row.losses,
        token=row.token,
        worker=row.worker,
        result=result,
        late=late,
    )


def _results(row: Any) -> tuple[TrialResult | None, tuple[TrialResult, ...]]:
    """The one that counts, and those that came too late."""
    late = read_json(row.late or "{}").values()
    return (
        TrialResult.from_json(row.result) if row.result else None,
        tuple(TrialResult.from_json(json.dumps(each)) for each in late),
    )


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
