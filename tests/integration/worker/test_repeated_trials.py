"""A worker fills a study whose sampler repeats configurations."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
from optuna.trial import TrialState

from tests.support.small_study import definition
from tuner.config import StopReason
from tuner.devices import CpuCores
from tuner.record import Recorded
from tuner.search.history import configuration
from tuner.spec.membership import seed_of_trial
from tuner.spec.policy import SearchPolicy
from tuner.storage.database import open_database
from tuner.storage.records import TrialResult
from tuner.storage.url import parse_url
from tuner.study.open import OpenStudy, create_or_resume
from tuner.trial.job import TrialJob
from tuner.worker.loop import Worker

TRIALS = 60


def trained(job: TrialJob) -> TrialResult:
    """Stands in for a training: the higher the learning rate, the faster; with the noise of its
    seed.
    """
    seed = seed_of_trial(job.number, root=job.seed_root)
    noise = np.random.default_rng(seed).standard_normal(2)
    h = job.hyperparameters
    seconds = float((1e-2 / h.learning_rate) ** 0.5 * np.exp(0.1 * noise[0]))
    said = Recorded(stopped_by=StopReason.CONVERGED.value, converged=True, epochs=20, seed=seed)
    mql = float((0.8 + 0.1 * ((h.dropout or 0.0) - 0.1) ** 2) * np.exp(0.01 * noise[1]))
    return TrialResult(TrialState.COMPLETE, (seconds, mql), said)


def study(folder: Path, name: str = "small") -> OpenStudy:
    database = open_database(parse_url(f"sqlite:///{folder}/{name}.db"))
    opened = create_or_resume(database, "small", definition(), trials=TRIALS)
    opened.set_policy(SearchPolicy(sampler="kg", seed=1))
    return opened


def test_a_study_holds_several_seeds_of_its_best_and_repeats_itself(tmp_path: Path) -> None:
    whole, shorter = study(tmp_path), study(tmp_path, "again")
    Worker([whole], CpuCores((0,)), trained).run()
    shorter.ledger.set_budget(25)
    Worker([shorter], CpuCores((0,)), trained).run()
    trials = whole.optuna.get_trials(deepcopy=False)
    assert len(trials) == TRIALS
    counts = Counter(configuration(trial.params) for trial in trials)
    default = configuration(trials[0].params)
    assert counts[default] >= 4
    assert max(count for here, count in counts.items() if here != default) >= 3
    assert len({trial.user_attrs["seed"] for trial in trials}) == TRIALS
    late = [configuration(trial.params) for trial in trials[-5:]]
    assert all(counts[here] > 1 for here in late), "nothing is new in the last tenth"
    # The first 22 trials were not at the end of either budget.
    again = shorter.optuna.get_trials(deepcopy=False)
    assert [t.params for t in again[:22]] == [t.params for t in trials[:22]]
    for opened in (whole, shorter):
        opened.database.close()
