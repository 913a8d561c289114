"""What is known of a piece of work: who may do it, what came of it, and how many there are."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from optuna.trial import TrialState


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to run one trial. `token` fences it: only the holder of a running token may write the result."""

    claim_id: int
    token: str
    trial_id: int
    trial_number: int


@dataclass(frozen=True, slots=True)
class RunTicket:
    """The right to make one verification run, by its `token` as with a `Claim`."""

    run_id: int
    token: str


@dataclass(frozen=True, slots=True)
class Counts:
    """Pieces of work: how many are planned, how many run, and how many are `finished` and count for good."""

    budget: int
    running: int
    finished: int

    @property
    def left(self) -> int:
        return max(0, self.budget - self.finished)


@dataclass(frozen=True, slots=True)
class TrialResult:
    """What a trial became: Optuna state, objective values (complete trials only) and flat user attributes."""

    state: TrialState
    values: tuple[float, ...] | None
    attributes: dict[str, Any]
    constraints: dict[str, float] = field(default_factory=dict)
    """As of `trial.set_constraint`: above 0 is a limit that the trial does not keep."""

    def to_json(self) -> str:
        data = {"state": self.state.name, "values": self.values, "attributes": self.attributes}
        return json.dumps(data | ({"constraints": self.constraints} if self.constraints else {}))

    @staticmethod
    def from_json(text: str) -> TrialResult:
        data = json.loads(text)
        values = data["values"]
        return TrialResult(
            TrialState[data["state"]],
            tuple(values) if values else None,
            data["attributes"],
            data.get("constraints", {}),
        )


@dataclass(frozen=True, slots=True)
class Attempt:
    """One worker's go at a trial. `claimed_at` is in seconds since 1970, on the database's clock.

    `state` is running, finished (its result counts), returned (handed back) or lost (its lease ran out, or it died).
    A lost attempt may have a result too: it came too late to count.
    """

    claim_id: int
    worker: str
    state: str
    claimed_at: float
    result: TrialResult | None

    @property
    def late(self) -> bool:
        return self.result is not None and self.state != "finished"


def set_aside(lost: int) -> TrialResult:
    """The result of what cost `lost` workers their lives."""
    reason = f"set aside: its worker was lost {lost} times"
    return TrialResult(TrialState.FAIL, None, {"stopped_by": "error", "failure": reason, "set_aside": True})
