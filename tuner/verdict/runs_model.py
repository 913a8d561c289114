"""What all runs of a study say of each configuration that ran: its time, its MQL, and how surely
the MQL is within a margin of the default's.

Time and MQL are modelled as logarithms (`tuner.search.next_run_model`), so what is said of them is
said of geometric means over seeds, which lie within a thousandth of the means.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from tuner.search.gaussian_process import one_thread
from tuner.search.next_run_model import Belief, Repeated, asked_of, believed
from tuner.search.past_runs import SHORTEST
from tuner.spec.margin import TOO_MUCH, Question, levels_of, looks_of
from tuner.spec.objectives import values_of
from tuner.spec.pareto import Point, front_indices
from tuner.study.results import StudyResults, TrialRecord
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.known_runs import Run, candidates_of
from tuner.verdict.verified import Verified, verified_in

Array = np.ndarray[Any, Any]

FENCE = 1 + TOO_MUCH
"""Times the default's MQL: how far a run is beyond that says nothing of what is near the
default."""
LEAST_CONFIGURATIONS = 12
"""Of fewer, neighbours say nothing of each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What all runs together say of a configuration."""

    trial: int
    seconds: float
    mql: float
    chance: float
    """That its MQL is within what was asked for."""
    runs: int
    """How often it ran itself."""


@dataclass(frozen=True, slots=True)
class Quality:
    """The MQL of a default."""

    mql: float
    error: float
    """Its relative standard error."""
    noise: float
    """The variance of the logarithm of a single run's."""


class RunsModel:
    """What all runs of a study say of each configuration that ran.

    Arrays are in the order of `trials`: the number of the first trial of each configuration.
    """

    def __init__(self, runs: Iterable[Run], default: int | None) -> None:
        """`default` is the number of the trial with the default configuration.

        Raises:
            ValueError: fewer configurations than `LEAST_CONFIGURATIONS`, or a figure without a
                logarithm.
        """
        by_trial: dict[int, list[Run]] = {}
        for run in runs:
            by_trial.setdefault(run.trial, []).append(run)
        if len(by_trial) < LEAST_CONFIGURATIONS:
            raise ValueError(
                f"{len(by_trial)} configurations converged, {LEAST_CONFIGURATIONS} are the least"
            )
        self.trials = tuple(sorted(by_trial))
        self.default = default if default in by_trial else None
        mine = [by_trial[trial] for trial in self.trials]
        self.runs = np.array([len(of_one) for of_one in mine])
        where = np.array([of_one[0].where for of_one in mine])
        row = self._row()
        times = [np.log([run.seconds for run in of_one if run.seconds]) for of_one in mine]
        mqls = [np.log([run.mql for run in of_one]) for of_one in mine]
        self._time = believed(_repeated(where, times, np.zeros(len(mine))))
        fenced = _fenced(mqls, row)
        self._beyond = np.array(
            [own.mean() > inner.mean() for own, inner in zip(mqls, fenced, strict=True)]
        )
        self._own_mql = np.array([own.mean() for own in mqls])
        self._mql = believed(_repeated(where, fenced, _lengths(mine, times, row)))

    @property
    def seconds(self) -> Array:
        """Expected of each configuration."""
        found: Array = np.exp(self._time.mean)
        return found

    @property
    def mql(self) -> Array:
        """Expected of each configuration; where a run is beyond `FENCE` times the default's, what
        its own runs say.
        """
        found: Array = np.exp(np.where(self._beyond, self._own_mql, self._mql.mean))
        return found

    @property
    def mql_error(self) -> Array:
        """The relative standard error of each one's MQL."""
        found: Array = np.sqrt(np.diag(self._mql.covariance))
        return found

    def over_default(self) -> tuple[Array, Array]:
        """By how much the logarithm of each one's MQL is expected to be above the default's, and
        the variance of that.

        Raises:
            ValueError: the default configuration is not among the runs.
        """
        row = self.row_of_default()
        mean, c = self._mql.mean, self._mql.covariance
        variance = np.diag(c) + c[row, row] - 2 * c[row]
        return mean - mean[row], np.maximum(variance, 0.0)

    def chance_of_default(self, margin: float) -> Array:
        """How surely each one's MQL is at most (1 + margin) times the default's.

        Raises:
            ValueError: the default configuration is not among the runs.
        """
        over, variance = self.over_default()
        room = math.log1p(margin) - over
        chance = _normal(room / np.sqrt(np.maximum(variance, 1e-18)))
        chance[self.row_of_default()] = 1.0 if margin >= 0 else 0.0
        return chance

    def chance_to_confirm(self, margin: float, seeds: int) -> Array:
        """How surely a confirmation on so many seeds calls each one no worse than the default by
        more than `margin` (`tuner.verdict.stats.noninferiority`): 0 of the default.

        Raises:
            ValueError: the default configuration is not among the runs.
        """
        over, variance = self.over_default()
        last = levels_of(looks_of(seeds), Question.MARGIN)[-1]
        error, needed = asked_of(self._mql.noise, self._noise_of_default(), seeds, last)
        chance = _normal((math.log1p(margin) - over - needed) / np.sqrt(error + variance))
        chance[self.row_of_default()] = 0.0
        return chance

    def drawn_confirmations(
        self, margin: float, seeds: int, count: int, seed: int, level: Quality | None = None
    ) -> tuple[Array, Array]:
        """What confirmations on so many seeds may come to, the default's runs being the same for
        all: the logarithm of how much faster than the default each configuration is, and whether
        the test claims, (count, configurations) each. At another default's quality: of how much
        faster than twice the slowest.

        Raises:
            ValueError: the default configuration is not among the runs, and no `level` is given.
        """
        seconds, mql = self.draws(count, seed)
        random = np.random.default_rng([seed, seeds])
        measured = mql + random.standard_normal(mql.shape) * np.sqrt(self._mql.noise / seeds)
        if level is None:
            row = self.row_of_default()
            held, slowest, noise = measured[:, [row]], seconds[:, [row]], self._noise_of_default()
        else:
            slowest, noise = seconds.max(axis=1, keepdims=True) + math.log(2), level.noise
            error = math.sqrt(level.error**2 + noise / seeds)
            held = math.log(level.mql) + error * random.standard_normal((count, 1))
        saved: Array = np.maximum(slowest - seconds, 0.0)
        question = Question.MARGIN if level is None else Question.ANOTHERS
        last = levels_of(looks_of(seeds), question)[-1]
        _, needed = asked_of(self._mql.noise, noise, seeds, last)
        return saved, held - measured + math.log1p(margin) >= needed

    def quality_of_default(self) -> Quality:
        """What another study is held against.

        Raises:
            ValueError: the default configuration is not among the runs.
        """
        row = self.row_of_default()
        return Quality(float(self.mql[row]), float(self.mql_error[row]), self._noise_of_default())

    def _noise_of_default(self) -> float:
        return float(self._mql.noise[self.row_of_default()])

    def chance_of_level(self, level: float, *, error: float = 0.0) -> Array:
        """How surely each one's MQL is at most `level`, which is known to a relative standard error
        of `error`.
        """
        variance = np.diag(self._mql.covariance) + error**2
        return _normal((math.log(level) - self._mql.mean) / np.sqrt(variance))

    def estimate(self, trial: int, chances: Array) -> Estimate:
        """What is said of the configuration of a trial, with its chance out of `chances`."""
        row = self.trials.index(trial)
        return Estimate(
            trial=trial,
            seconds=float(self.seconds[row]),
            mql=float(self.mql[row]),
            chance=float(chances[row]),
            runs=int(self.runs[row]),
        )

    def draws(self, count: int, seed: int) -> tuple[Array, Array]:
        """Logarithms of seconds and MQL that may be true, (count, configurations) each."""
        random = np.random.default_rng(seed)
        return _drawn(self._time, random, count), _drawn(self._mql, random, count)

    def _row(self) -> int | None:
        return None if self.default is None else self.trials.index(self.default)

    def row_of_default(self) -> int:
        """Where the default stands in `trials`.

        Raises:
            ValueError: the default configuration is not among the runs.
        """
        row = self._row()
        if row is None:
            raise ValueError("the default configuration is not among the runs")
        return row

    def faster(self, candidates: Collection[int] | None) -> Array:
        """Which configurations may be recommended in the default's place: candidates that are
        expected to be faster.
        """
        row = self.row_of_default()
        may: Array = self.among(candidates) & (self._time.mean < self._time.mean[row])
        may[row] = False
        return may

    def among(self, candidates: Collection[int] | None) -> Array:
        """Which configurations are candidates; all where None."""
        return np.array([candidates is None or trial in candidates for trial in self.trials])


def _normal(x: Array) -> Array:
    """Of a standard normal figure: how surely it is below."""
    from scipy.special import ndtr  # here: who only watches a launch does not wait for it

    below: Array = ndtr(x)
    return below


def _repeated(where: Array, figures: Sequence[Array], length: Array) -> Repeated:
    means = np.array([float(of_one.mean()) for of_one in figures])
    squares = [((of_one - mean) ** 2).sum() for of_one, mean in zip(figures, means, strict=True)]
    return Repeated(
        where=where,
        mean=means,
        runs=np.array([len(of_one) for of_one in figures], dtype=float),
        squares=np.array(squares),
        length=length,
    )


def _fenced(mqls: Sequence[Array], default: int | None) -> list[Array]:
    """Logarithms of MQL, none farther beyond the default's than `FENCE`: a model that fits what is
    useless fits nothing else.
    """
    if default is None:
        usual = float(np.quantile(np.concatenate(mqls), 0.25))
    else:
        usual = float(mqls[default].mean())
    return [np.minimum(of_one, usual + math.log(FENCE)) for of_one in mqls]


def _lengths(runs: Sequence[Sequence[Run]], times: Sequence[Array], default: int | None) -> Array:
    """The logarithm of how long each configuration trains, relative to the default, at most 0: of
    its epochs where all runs have them, else of its seconds.
    """
    if all(run.epochs for of_one in runs for run in of_one):
        lengths = [np.log([run.epochs or 0.0 for run in of_one]).mean() for of_one in runs]
    else:
        lengths = [of_one.mean() for of_one in times]
    found = np.array(lengths, dtype=float)
    usual = float(np.median(found)) if default is None else float(found[default])
    return np.clip(found - usual, SHORTEST, 0.0)


@one_thread()
def _drawn(belief: Belief, random: np.random.Generator, count: int) -> Array:
    """(count, configurations) of what is believed."""
    n = len(belief.mean)
    covariance = belief.covariance + 1e-12 * np.eye(n)
    lower = np.linalg.cholesky(covariance)
    drawn: Array = belief.mean + random.standard_normal((count, n)) @ lower.T
    return drawn


# The front of a study by one of three kinds of values: of single runs, expected, or verified.


class Front(NamedTuple):
    """Trials of which none is faster and better than another,
    fastest first, and the points that say so.
    """

    trials: tuple[TrialRecord, ...]
    points: tuple[Point, ...]


def front_of_runs(results: StudyResults) -> Front:
    """The study's front as the search saw it."""
    trials = tuple(trial for trial in results.front if trial.values)
    return Front(trials, tuple(trial.values for trial in trials if trial.values))


def expected_front(study: StudySnapshot, model: RunsModel) -> Front:
    """Of the configurations that may be chosen, by what all runs say of them."""
    points = {
        number: (float(seconds), float(mql))
        for number, seconds, mql in zip(model.trials, model.seconds, model.mql, strict=True)
    }
    return _front(study, points)


def verified_front(study: StudySnapshot) -> Front:
    """Of the configurations that may be chosen and ran on enough fresh seeds, by their medians."""
    points = {}
    for number, each in verified_in(study).items():
        if (point := _medians(each, study.definition.objectives)) is not None:
            points[number] = point
    return _front(study, points)


def _front(study: StudySnapshot, points: dict[int, Point]) -> Front:
    numbers = sorted(candidates_of(study) & points.keys())
    on_it = [numbers[i] for i in front_indices([points[number] for number in numbers])]
    return Front(
        tuple(study.configuration(number) for number in on_it),
        tuple(points[number] for number in on_it),
    )


def _medians(each: Verified, objectives: tuple[str, ...]) -> Point | None:
    """By the study's own objectives, as it was searched; None while there are too few runs."""
    seconds = each.of_clean(lambda run: (values_of(run, objectives) or (None, None))[0])
    mql = each.of_counted(lambda run: (values_of(run, objectives) or (None, None))[1])
    return None if seconds is None or mql is None else (seconds.estimate, mql.estimate)
