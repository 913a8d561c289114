"""What a study teaches beside its front: what matters,
what validation would have chosen, what converges.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tuner.study.results import TrialRecord
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.reasons import because_of_answer
from tuner.verdict.same_quality import answer_of
from tuner.verdict.stats.intervals import Interval, percentile_interval, resampled_runs
from tuner.verdict.verified import verified_in

# How two scores rank the same configurations.


LEAST_RANKED = 5
_RESAMPLES = 1999


def spearman(a: ArrayLike, b: ArrayLike) -> Interval | None:
    """Spearman's rank correlation of two scores (n,)
    with a bootstrap interval over the ranked things.

    None for fewer than 5, or where one score is the same for all.
    """
    from scipy import stats

    x, y = np.asarray(a, dtype=float), np.asarray(b, dtype=float)
    if len(x) < LEAST_RANKED or not np.ptp(x) > 0 or not np.ptp(y) > 0:
        return None
    chosen = resampled_runs(len(x), _RESAMPLES)
    ranks_x, ranks_y = stats.rankdata(x[chosen], axis=1), stats.rankdata(y[chosen], axis=1)
    estimate = float(stats.spearmanr(x, y).statistic)
    return percentile_interval(estimate, _correlations(ranks_x, ranks_y), len(x))


def _correlations(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Row-wise correlation of (B, n) with (B, n);
    a row without spread (always the same thing) is dropped.
    """
    x, y = x - x.mean(axis=1, keepdims=True), y - y.mean(axis=1, keepdims=True)
    scale = np.sqrt((x**2).sum(axis=1) * (y**2).sum(axis=1))
    result: np.ndarray = (x * y).sum(axis=1)[scale > 0] / scale[scale > 0]
    return result


LEAST_TRIALS = 10
"""Fewer give no importances: a forest on them would only repeat their noise."""
BINS_PER_DECADE = 2
_FOREST_SEED = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """How validation and test MQL rank a study's converged trials,
    and what choosing by one does to the other. Several trials of one configuration count as one,
    with their medians.

    `spearman` is the correlation of the ranks. `by_test` and `by_validation` are the trials with
    the lowest test and the lowest validation MQL; `price` is how much higher the test MQL of the
    second is. `optimism` is the mean of (test MQL in the search minus median on fresh seeds) over
    the verified configurations of the front: what the search promised too much is below 0. None
    where it is not known yet.
    """

    trials: int
    spearman: Interval | None
    by_test: int
    by_validation: int
    price: float
    optimism: float | None
    verified: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningRates:
    """Of the trials with a learning rate from `low` to `high`: how many converged, and how many
    within the epochs.
    """

    low: float
    high: float
    trials: int
    converged: int
    within: int
    median_epochs: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What one study teaches. `importances`: `{objective:
    {hyperparameter: share}}`, empty before enough trials.
    """

    study: str
    variant: str
    epochs: int
    importances: Mapping[str, Mapping[str, float]]
    ranking: Ranking | None
    learning_rates: tuple[LearningRates, ...]
    missing: tuple[str, ...]
    recommended: int | None
    """The trial that the study recommends; None while there is none."""
    why: str
    """What is recommended and how sure that is, or why nothing is; a sentence."""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def explain_study(study: StudySnapshot, *, epochs: int = 50) -> Explanation:
    """What the study teaches; `epochs` is within how many a learning rate should converge."""
    complete = study.results.complete
    missing = []
    if len(complete) < LEAST_TRIALS:
        missing.append(
            f"importances need {LEAST_TRIALS} complete trials, there are {len(complete)}"
        )
    there = study.results.configurations
    ranked = [r for r in there if r.converged and r.recorded.val_mql is not None]
    if len(ranked) < LEAST_RANKED:
        missing.append(
            f"a ranking needs {LEAST_RANKED} configurations that converged, there are {len(ranked)}"
        )
    answer = answer_of(study)
    return Explanation(
        study=study.name,
        variant=study.variant,
        epochs=epochs,
        importances=importances(study) if len(complete) >= LEAST_TRIALS else {},
        ranking=_ranking(study, ranked) if len(ranked) >= LEAST_RANKED else None,
        learning_rates=tuple(learning_rates(study, epochs)),
        missing=tuple(missing),
        recommended=None if isinstance(answer, str) else answer.chosen.trial,
        why=answer if isinstance(answer, str) else because_of_answer(answer),
    )


def importances(study: StudySnapshot) -> dict[str, dict[str, float]]:
    """Each hyperparameter's share of an objective's variation over the search space, by objective.

    fANOVA (Hutter, Hoos and Leyton-Brown, ICML 2014) as Optuna computes it, on the encoded space
    (exponents for sizes, logarithms where the range is logarithmic) and the logarithm of the time.
    What is fixed has none.
    """
    import optuna
    from optuna.exceptions import ExperimentalWarning
    from optuna.importance import FanovaImportanceEvaluator, get_param_importances

    space = study.definition.space
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    searched = {name: r.encoded() for name, r in space.ranges.items() if not r.single}
    mirror = optuna.create_study(directions=["minimize", "minimize"])
    for record in study.results.complete:
        # A time of 0 is what a stranger wrote: it has no logarithm.
        timed = record.values if record.values and record.values[0] > 0 else None
        if timed is not None and space.whole(record.params):
            encoded = space.encode(record.params)
            mirror.add_trial(
                optuna.trial.create_trial(
                    params={name: encoded[name] for name in searched},
                    distributions=searched,
                    values=[math.log(timed[0]), timed[1]],
                )
            )
    found = {}
    for index, objective in enumerate(study.definition.objectives):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ExperimentalWarning)
            shares = get_param_importances(
                mirror,
                evaluator=FanovaImportanceEvaluator(seed=_FOREST_SEED),
                target=lambda trial, index=index: trial.values[index],  # type: ignore[misc]
            )
        found[objective] = {name: float(share) for name, share in shares.items()}
    return found


def learning_rates(study: StudySnapshot, epochs: int) -> list[LearningRates]:
    """Finished trials by half decades of their learning rate; pruned ones ended too early to say
    and are left out.
    """
    finished = [
        record
        for record in study.results.records
        if record.state.name in ("COMPLETE", "FAIL") and record.params.get("learning_rate")
    ]
    bins: dict[int, list[TrialRecord]] = {}
    for record in finished:
        rate = float(record.params["learning_rate"])
        bins.setdefault(math.floor(math.log10(rate) * BINS_PER_DECADE), []).append(record)
    found = []
    for index, members in sorted(bins.items()):
        took = [r.recorded.epochs for r in members if r.converged and r.recorded.epochs]
        found.append(
            LearningRates(
                low=10 ** (index / BINS_PER_DECADE),
                high=10 ** ((index + 1) / BINS_PER_DECADE),
                trials=len(members),
                converged=len(took),
                within=sum(each < epochs for each in took),
                median_epochs=float(np.median(took)) if took else None,
            )
        )
    return found


def _ranking(study: StudySnapshot, ranked: Sequence[TrialRecord]) -> Ranking:
    test = [_test_mql(record) for record in ranked]
    validation = [mql for record in ranked if (mql := record.recorded.val_mql) is not None]
    by_test, by_validation = int(np.argmin(test)), int(np.argmin(validation))
    return Ranking(
        trials=len(ranked),
        spearman=spearman(validation, test),
        by_test=ranked[by_test].number,
        by_validation=ranked[by_validation].number,
        price=test[by_validation] - test[by_test],
        optimism=optimism(study),
        verified=len(_promised(study)),
    )


def optimism(study: StudySnapshot) -> float | None:
    """By how much the search's test MQL of verified front configurations is off against fresh
    seeds, on average.

    Below 0 the search was optimistic. None where nothing of the front is verified.
    """
    promised = _promised(study)
    return float(np.mean(promised)) if promised else None


def _promised(study: StudySnapshot) -> list[float]:
    front = {record.number: _test_mql(record) for record in study.results.front}
    return [
        front[number] - each.mql.estimate
        for number, each in verified_in(study).items()
        if number in front and each.mql is not None
    ]


def _test_mql(record: TrialRecord) -> float:
    assert record.values is not None, "complete trials have values"
    mql = record.recorded.test_mql
    return record.values[1] if mql is None else mql
