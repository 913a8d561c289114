"""Verification runs as if they had run, for what only reads them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from optuna.trial import TrialState

from tuner.config import Value
from tuner.record import Recorded
from tuner.storage.queue.verifications import VerificationRun
from tuner.storage.records import TrialResult

NOTHING: Mapping[str, Value] = MappingProxyType({})


def finished_run(
    trial: int,
    seed: int,
    values: tuple[float, float],
    recorded: Recorded,
    params: Mapping[str, Value] = NOTHING,
) -> VerificationRun:
    """A run of a trial's configuration on this seed, which found these values."""
    return VerificationRun(
        study_id=1,
        trial_number=trial,
        params=dict(params),
        seed=seed,
        block=seed,
        place=0,
        session="s",
        plan={},
        work_id=seed,
        state="finished",
        losses=0,
        token=None,
        worker="",
        result=TrialResult(TrialState.COMPLETE, values, recorded),
    )
