"""Two fronts of one study: of its single runs, and of what its trials say together.

A search tries each configuration once, so the front of single runs holds those whose one seed was
lucky. By how much it promises too much on the reference job, and what is gained here, is in
benchmarks/front_choice/h200.md. Neighbours in the search space share what is true of them, and not
their luck: a Gaussian process of each objective's logarithm on the encoded space says what all
other trials expect of each one.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np

from tuner.pareto import Point, front_indices
from tuner.search.one_thread import one_thread
from tuner.spec.space import SearchSpace
from tuner.study.results import StudyResults, TrialRecord

LEAST_TRIALS = 30
"""Of fewer, neighbours are too far apart to say much: the front of single runs stands."""


class Choice(StrEnum):
    """Which front configurations are chosen from."""

    FRONT = "front"
    EXPECTED = "expected"
    RECOMMENDED = "recommended"
    """No front: what may be what is recommended, in rounds."""


class Front(NamedTuple):
    """Trials of which none is faster and better than another,
    fastest first, and the points that say so.
    """

    trials: tuple[TrialRecord, ...]
    points: tuple[Point, ...]


def front_of(results: StudyResults, space: SearchSpace, choice: Choice) -> Front:
    """The front of single runs, or the expected one, where there are enough trials for it."""
    if choice is Choice.EXPECTED:
        eligible = [trial for trial in results.eligible if trial.values]
        if (expected := expected_points(eligible, space)) is not None:
            chosen = front_indices(expected)
            return Front(tuple(eligible[i] for i in chosen), tuple(expected[i] for i in chosen))
    return front_of_runs(results)


def front_of_runs(results: StudyResults) -> Front:
    """The study's front as the search saw it."""
    trials = tuple(trial for trial in results.front if trial.values)
    return Front(trials, tuple(trial.values for trial in trials if trial.values))


def says_enough(trials: Sequence[TrialRecord]) -> bool:
    """Whether something can be expected of trials with values:
    there are enough, and all values have logarithms.
    """
    return len(trials) >= LEAST_TRIALS and all(
        min(trial.values) > 0 for trial in trials if trial.values
    )


def expected_points(trials: Sequence[TrialRecord], space: SearchSpace) -> list[Point] | None:
    """What all others expect of each trial, seconds and MQL,
    in their order; None where they do not say enough.

    Args:
        trials: with values, such as those that may stand on a study's front.
        space: of their study.
    """
    if not says_enough(trials):
        return None
    where = np.array([space.shares(trial.params) for trial in trials])
    values = np.log(np.array([trial.values for trial in trials]))
    from tuner.search.gaussian_process import GaussianProcess  # scipy: most readers go without

    with one_thread():
        seconds, mql = (np.exp(GaussianProcess(where, column).left_out()) for column in values.T)
    return [(float(s), float(m)) for s, m in zip(seconds, mql, strict=True)]
