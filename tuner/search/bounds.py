"""How soon and how well a training may still end."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tuner.spec.objectives import TIMES, Running, TimeObjective
from tuner.spec.pareto import Point

# The error that a validation loss may come with, by the trials that have finished.


Floats = npt.NDArray[np.float64]
LINKED = 1000
"""Trials at most that the slope of the link is fitted to:
the pairs of more take as long as a short training."""


@dataclass(frozen=True, slots=True)
class Link:
    """The error that a validation loss may come with:
    a line in logarithms, moved to a low residual.

    Below the lowest finished loss, where nothing was seen, the error falls at least in proportion:
    both are quantile losses, and trials that all ended at one loss would else say that a better one
    gains nothing.
    """

    slope: float
    intercept: float
    lowest: float
    """Logarithm of the lowest finished loss."""

    def __call__(self, log_loss: float) -> float:
        """MQL, optimistically, of a training whose best validation loss has this logarithm."""
        beyond = min(0.0, log_loss - self.lowest)
        return math.exp(
            self.intercept + self.slope * (log_loss - beyond) + max(self.slope, 1.0) * beyond
        )

    @staticmethod
    def fitted(losses: Sequence[float], mqls: Sequence[float], *, quantile: float) -> Link:
        """The line through finished trials,
        by the median of the slopes of all pairs, and never falling.

        Of more than `LINKED` trials as many stand for all in the slope, spread evenly over the
        order of their losses.

        Source: Sen, "Estimates of the regression coefficient based on Kendall's tau", JASA 63
            (1968).
        """
        x, y = np.log(losses), np.log(mqls)
        some_x, some_y = x, y
        if len(x) > LINKED:
            some = np.argsort(x, kind="stable")[np.linspace(0, len(x) - 1, LINKED).astype(int)]
            some_x, some_y = x[some], y[some]
        i, j = np.triu_indices(len(some_x), k=1)
        apart = some_x[i] != some_x[j]
        slopes = (some_y[i] - some_y[j])[apart] / (some_x[i] - some_x[j])[apart]
        slope = max(0.0, float(np.median(slopes))) if slopes.size else 0.0
        return Link(
            slope, float(np.quantile(y - slope * x, quantile, method="lower")), float(x.min())
        )


STANDSTILL = 1e-3
"""Added to every recent gain (relative):
a curve that stood still for a while is not written off for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caution:
    """How optimistic the bounds are, and when pruning begins.
    The values were found in benchmarks/pruning/replay.py.
    """

    min_finished: int = 30
    """Finished trials that must be there first."""
    min_curves: int = 10
    """Finished curves that must go beyond an epoch for it to be judged by them."""
    min_epochs: int = 3
    """Epochs of the trial itself: the first may take longer than the others."""
    gain_quantile: float = 0.9
    """Of what finished curves still gained from an epoch on, by what they gained before; 1 is the
    most one did."""
    link_quantile: float = 0.0
    """Of the residuals of the error around what its validation loss leads to expect; 0 is the
    lowest one seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """When a training ends by itself: the study's early stopping and its limit."""

    patience: int
    min_delta: float
    max_epochs: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedTrial:
    """A complete trial: its two values, and the validation losses of its epochs, one curve for each
    of its seeds.
    """

    number: int
    values: Point
    """Seconds and MQL."""
    curves: tuple[tuple[float, ...], ...]
    dominates: bool
    """Converged and feasible: may stand on the front."""


class Bounds:
    """How soon, and with which error, a training may still end, by what finished ones did."""

    def __init__(
        self,
        trials: Sequence[FinishedTrial],
        stopping: Stopping,
        caution: Caution,
        *,
        time_objective: str,
        target_val_loss: float | None,
    ) -> None:
        curves = [curve for trial in trials for curve in trial.curves if curve]
        # An epoch that too few curves went beyond says too little: later ones are judged by the
        # last that does.
        longest = sorted(map(len, curves), reverse=True)[: caution.min_curves]
        self.deepest = longest[-1] - 1
        """The last epoch that enough finished curves went beyond; 0 where too few say anything."""
        self._link = Link.fitted(
            [statistics.median(min(curve) for curve in trial.curves if curve) for trial in trials],
            [trial.values[1] for trial in trials],
            quantile=caution.link_quantile,
        )
        self._stopping, self._gain_quantile = stopping, caution.gain_quantile
        self._objective = TimeObjective(time_objective)
        self._target = -math.inf if target_val_loss is None else target_val_loss
        self._lengths = np.array([len(curve) for curve in curves])
        self._best = _running_best(curves, width=max(stopping.max_epochs, int(self._lengths.max())))
        self._known: dict[int, list[float]] = {}

    def ends(self, losses: Sequence[float], elapsed_s: Sequence[float]) -> list[Point]:
        """The staircase of optimistic ends: (seconds, MQL),
        soonest first, each later one with a lower MQL.
        """
        epoch = len(losses)
        best = math.log(min(losses))
        recent = math.log(min(losses[: max(1, epoch // 2)])) - best + STANDSTILL
        ends = []
        shortest_s = _shortest(elapsed_s)
        if (as_it_is := self._seconds(losses, elapsed_s, shortest_s, improving_in=0)) is not None:
            ends.append((as_it_is, self._link(best)))
        # Improving for the last time within [first, last] epochs from now: as soon as the first, as
        # good as the last.
        for (first, _), ratio in zip(
            _steps(self._stopping.max_epochs - epoch), self._ratios(epoch), strict=True
        ):
            soonest = self._seconds(losses, elapsed_s, shortest_s, improving_in=first)
            assert soonest is not None, "only an end without improvement can be impossible"
            ends.append((soonest, self._link(best - ratio * recent)))
        return ends

    def ended(self, losses: Sequence[float], elapsed_s: Sequence[float]) -> Point | None:
        """What a training that is over came to, its MQL as low as its loss allows; None where it
        missed its target.
        """
        seconds = self._seconds(losses, elapsed_s, _shortest(elapsed_s), improving_in=0)
        return None if seconds is None else (seconds, self._link(math.log(min(losses))))

    def look_up(self, epochs: range) -> None:
        """Work out what of a verdict on these epochs does not follow from the trial: then one takes
        microseconds.
        """
        for epoch in epochs:
            self._ratios(epoch)

    def _seconds(
        self,
        losses: Sequence[float],
        elapsed_s: Sequence[float],
        s_per_epoch: float,
        *,
        improving_in: int,
    ) -> float | None:
        """The least the time objective can be when the last improvement is so many epochs away (0:
        there is none).
        """
        epoch, stopping = len(losses), self._stopping
        waited = 0 if improving_in else epochs_waited(losses, stopping.min_delta)
        last = min(epoch + improving_in + stopping.patience - waited, stopping.max_epochs)
        return TIMES[self._objective].least(
            Running(
                losses=losses,
                elapsed_s=elapsed_s,
                s_per_epoch=s_per_epoch,
                improving_in=improving_in,
                epochs_left=max(epoch, last) - epoch,
                target_val_loss=self._target,
            )
        )

    def _ratios(self, epoch: int) -> list[float]:
        """What finished curves gained in each step after `epoch`, optimistically, by what they
        gained before it.
        """
        if epoch not in self._known:
            at = min(epoch, self.deepest)
            last = [last for _, last in _steps(self._stopping.max_epochs - epoch)]
            best = self._best[self._lengths > at]
            now, half = best[:, at - 1], best[:, max(1, at // 2) - 1]
            gains = (
                now[:, None]
                - best[:, np.minimum(np.array(last, dtype=int) + at, best.shape[1]) - 1]
            )
            ratios = gains / (half - now + STANDSTILL)[:, None]
            largest: Floats = np.quantile(ratios, self._gain_quantile, axis=0, method="higher")
            self._known[epoch] = [float(ratio) for ratio in largest]
        return self._known[epoch]


def _shortest(elapsed_s: Sequence[float]) -> float:
    """Seconds of the shortest epoch so far."""
    return min(later - sooner for sooner, later in itertools.pairwise((0.0, *elapsed_s)))


def epochs_waited(losses: Sequence[float], min_delta: float) -> int:
    """Epochs since the last one that early stopping counted as an improvement."""
    best, waited = math.inf, 0
    for loss in losses:
        if loss < best - min_delta:
            best, waited = loss, 0
        else:
            waited += 1
    return waited


def _running_best(curves: Sequence[Sequence[float]], *, width: int) -> Floats:
    """Logarithm of the lowest loss up to each epoch,
    (curves, width): a curve that has ended gains no more.
    """
    best = np.empty((len(curves), width))
    for row, curve in zip(best, curves, strict=True):
        row[: len(curve)] = np.log(np.minimum.accumulate(curve))
        row[len(curve) :] = row[len(curve) - 1]
    return best


def _steps(epochs_left: int) -> list[tuple[int, int]]:
    """The epochs from now on, 1 to `epochs_left`,
    in intervals (first, last) that grow with their distance.
    """
    steps, first, width = [], 1, 1
    while first <= epochs_left:
        last = min(first + width - 1, epochs_left)
        steps.append((first, last))
        first, width = last + 1, max(1, last // 2)
    return steps
