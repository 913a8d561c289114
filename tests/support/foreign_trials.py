"""A study as another program has it, through Optuna itself, and what is ours beside it."""

from __future__ import annotations

import dataclasses

import optuna
from optuna.trial import TrialState

from tests.support.claims import start
from tuner.record import Recorded
from tuner.storage.check import check_database
from tuner.storage.records import TrialResult
from tuner.study.open import OpenStudy


def theirs(study: OpenStudy) -> optuna.Study:
    """The study as plain Optuna has it."""
    sampler = optuna.samplers.RandomSampler(seed=1)
    return optuna.load_study(study_name=study.name, storage=study.database.optuna, sampler=sampler)


def result(mql: float = 0.5) -> TrialResult:
    recorded = Recorded(stopped_by="converged", converged=True, epochs=7, seed=3, device="ours")
    return TrialResult(TrialState.COMPLETE, (2.0, mql), recorded)


def finish_one(study: OpenStudy, mql: float = 0.5) -> int:
    claim, trial = start(study)
    made = result(mql)
    # With where the configuration comes from, as a worker records it.
    recorded = Recorded.from_flat(made.recorded.to_flat() | trial.user_attrs)
    assert study.ledger.finish(claim, dataclasses.replace(made, recorded=recorded))
    return trial.number


def findings(study: OpenStudy) -> str:
    return "\n".join(
        f"{each.level}: {each.what}" for each in check_database(study.database.address).findings
    )
