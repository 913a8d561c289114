"""A verification run as a record and as a row."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import TypeAdapter

from tuner.config import Value
from tuner.files.plain import read_json
from tuner.storage.damage import from_text
from tuner.storage.queue.plans import read_params, read_plan
from tuner.storage.records import RunTicket, TrialResult


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
