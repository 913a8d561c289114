"""Ending a trial early whose best possible end is dominated: pruning where there are two
objectives.

While a trial trains, its time only grows and its error can only be guessed. Both are bounded
*optimistically*, from the trials of the same study that have finished:

- The validation loss may still fall by as much as (nearly) the luckiest finished curve fell from
  the same epoch on, measured by what each had gained just before: a curve that flattens has little
  left, one that falls steeply has much, and learning rates make curves that no other measure holds
  together.
- The error that belongs to a validation loss is read off a line through the finished trials, in
  logarithms, moved down to (nearly) its luckiest residual.
- A lower loss takes time: after an improvement at epoch b, early stopping waits `patience` epochs
  more, each at least as long as the trial's shortest. So the ends a trial may still come to form a
  staircase, from "as it is, as soon as possible" to "much better, much later".

A trial is pruned once every step of that staircase is dominated by a finished trial that converged
and is feasible. Nothing here reads a database: a `Pruner` is built before a trial starts and asked
after each of its epochs.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tuner.config import OBJECTIVES
from tuner.pareto import Point, front_indices
from tuner.record import Recorded

Floats = npt.NDArray[np.float64]
LINKED = 1000
"""Trials at most that the slope of the link is fitted to: the pairs of more take as long as a short
training."""
STANDSTILL = 1e-3
"""Added to every recent gain (relative): a curve that stood still for a while is not written off
for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caution:
    """How optimistic the bounds are, and when pruning begins. The values were found in
    benchmarks/pruning/replay.py.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Why a trial was ended: of all it might still have become, the end that came nearest to the
    front.
    """

    epoch: int
    optimistic_end: Point
    dominated_by: int
    dominating: Point

    @property
    def message(self) -> str:
        (seconds, mql), (its_seconds, its_mql) = self.optimistic_end, self.dominating
        return (
            f"at best {seconds:.3f} s and MQL {mql:.4f} as of epoch {self.epoch}, dominated by "
            "trial "
            f"{self.dominated_by} ({its_seconds:.3f} s, {its_mql:.4f})"
        )

    def said_in(self, recorded: Recorded) -> Recorded:
        """The trial's record with this in it."""
        seconds, mql = self.optimistic_end
        return dataclasses.replace(
            recorded,
            pruned_optimistic_s=seconds,
            pruned_optimistic_mql=mql,
            pruned_at_epoch=self.epoch,
            pruned_dominated_by=self.dominated_by,
            failure=self.message,
        )


class Pruner:
    """What finished trials say about one that runs."""

    def __init__(
        self,
        finished: Sequence[FinishedTrial],
        stopping: Stopping,
        *,
        time_objective: str = OBJECTIVES[0],
        target_val_loss: float | None = None,
        seeds: int = 1,
        caution: Caution | None = None,
    ) -> None:
        """Takes the study's complete trials (all of them: those that did not converge have curves
        to learn from).

        `seeds` is how many trainings a trial's values are the medians of; `target_val_loss` belongs
        to the objective `time_to_target_s`.
        """
        self._time = time_objective
        self._target = -math.inf if target_val_loss is None else target_val_loss
        self._caution = caution or Caution()
        self._stopping = stopping
        self._seeds = seeds
        self._known: dict[int, list[float]] = {}
        usable = [trial for trial in finished if _has_logarithms(trial)]
        front = [trial for trial in usable if trial.dominates]
        self._front = [front[i] for i in front_indices([trial.values for trial in front])]
        curves = [curve for trial in usable for curve in trial.curves if curve]
        self._lengths = np.array([len(curve) for curve in curves])
        # An epoch that too few curves went beyond says too little: later ones are judged by the
        # last that does.
        longest = sorted(self._lengths, reverse=True)[: self._caution.min_curves]
        self._deepest = int(longest[-1]) - 1 if longest else 0
        self.ready = (
            len(usable) >= self._caution.min_finished and bool(self._front) and self._deepest > 0
        )
        if self.ready:
            self._best = _running_best(
                curves, width=max(stopping.max_epochs, int(self._lengths.max()))
            )
            self._link = Link.fitted(
                [
                    statistics.median(min(curve) for curve in trial.curves if curve)
                    for trial in usable
                ],
                [trial.values[1] for trial in usable],
                quantile=self._caution.link_quantile,
            )

    def verdict(
        self, losses: Sequence[float], elapsed_s: Sequence[float], *, earlier: Sequence[Point] = ()
    ) -> Verdict | None:
        """Whether to end the training, and why.

        Args:
            losses: validation loss of each epoch so far.
            elapsed_s: the trial's clock at the end of each.
            earlier: values of this trial's seeds that have finished. The median is dominated once
                most seeds are, so no trial of several seeds ends with its first.
        """
        if not self.ready or len(losses) < self._caution.min_epochs or min(losses) <= 0:
            return None
        front = self._dominating(earlier)
        if not front:
            return None
        found: tuple[float, Point, FinishedTrial] | None = None
        for end in self.ends(losses, elapsed_s):
            dominating = [
                trial for trial in front if trial.values[0] <= end[0] and trial.values[1] <= end[1]
            ]
            if not dominating:
                return None
            depth, deepest = max(
                ((_depth(end, trial.values), trial) for trial in dominating), key=lambda d: d[0]
            )
            if found is None or depth < found[0]:
                found = depth, end, deepest
        if found is None:
            return None
        _, end, by = found
        return Verdict(
            epoch=len(losses), optimistic_end=end, dominated_by=by.number, dominating=by.values
        )

    def ends(self, losses: Sequence[float], elapsed_s: Sequence[float]) -> list[Point]:
        """The staircase of optimistic ends: (seconds, MQL), soonest first, each later one with a
        lower MQL.
        """
        epoch = len(losses)
        best = math.log(min(losses))
        recent = math.log(min(losses[: max(1, epoch // 2)])) - best + STANDSTILL
        ends = []
        if (as_it_is := self._seconds(losses, elapsed_s, improving_in=0)) is not None:
            ends.append((as_it_is, self._link(best)))
        # Improving for the last time within [first, last] epochs from now: as soon as the first, as
        # good as the last.
        for (first, _), ratio in zip(
            _steps(self._stopping.max_epochs - epoch), self._ratios(epoch), strict=True
        ):
            soonest = self._seconds(losses, elapsed_s, improving_in=first)
            assert soonest is not None, "only an end without improvement can be impossible"
            ends.append((soonest, self._link(best - ratio * recent)))
        return ends

    def ended(self, losses: Sequence[float], elapsed_s: Sequence[float]) -> Point | None:
        """What a training that is over came to, its MQL as low as its loss allows; None where it
        missed its target.
        """
        seconds = self._seconds(losses, elapsed_s, improving_in=0)
        return None if seconds is None else (seconds, self._link(math.log(min(losses))))

    def _seconds(
        self, losses: Sequence[float], elapsed_s: Sequence[float], *, improving_in: int
    ) -> float | None:
        """The least the time objective can be when the last improvement is so many epochs away (0:
        there is none).
        """
        epoch, now, stopping = len(losses), elapsed_s[-1], self._stopping
        s_per_epoch = min(later - sooner for sooner, later in itertools.pairwise((0.0, *elapsed_s)))
        match self._time:
            case "time_to_target_s":
                reached = next(
                    (t for loss, t in zip(losses, elapsed_s, strict=True) if loss <= self._target),
                    None,
                )
                return (
                    reached
                    if reached is not None or not improving_in
                    else now + improving_in * s_per_epoch
                )
            case "time_to_best_s":
                return (
                    now + improving_in * s_per_epoch
                    if improving_in
                    else elapsed_s[losses.index(min(losses))]
                )
            case _:  # to convergence, with or without set-up
                waited = epochs_waited(losses, stopping.min_delta) if not improving_in else 0
                last = max(
                    epoch,
                    min(epoch + improving_in + stopping.patience - waited, stopping.max_epochs),
                )
                return now + (last - epoch) * s_per_epoch

    def _ratios(self, epoch: int) -> list[float]:
        """What finished curves gained in each step after `epoch`, optimistically, by what they
        gained before it.
        """
        if epoch not in self._known:
            at = min(epoch, self._deepest)
            last = [last for _, last in _steps(self._stopping.max_epochs - epoch)]
            best = self._best[self._lengths > at]
            now, half = best[:, at - 1], best[:, max(1, at // 2) - 1]
            gains = (
                now[:, None]
                - best[:, np.minimum(np.array(last, dtype=int) + at, best.shape[1]) - 1]
            )
            ratios = gains / (half - now + STANDSTILL)[:, None]
            largest: Floats = np.quantile(
                ratios, self._caution.gain_quantile, axis=0, method="higher"
            )
            self._known[epoch] = [float(ratio) for ratio in largest]
        return self._known[epoch]

    def _dominating(self, earlier: Sequence[Point]) -> list[FinishedTrial]:
        """Front trials that dominate enough earlier seeds for one more to make a majority."""
        needed = self._seeds // 2
        return [
            trial
            for trial in self._front
            if sum(trial.values[0] <= p[0] and trial.values[1] <= p[1] for p in earlier) >= needed
        ]


@dataclass(frozen=True, slots=True)
class Link:
    """The error that a validation loss may come with: a line in logarithms, moved to a low
    residual.

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
        """The line through finished trials, by the median of the slopes of all pairs, and never
        falling.

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


def epochs_waited(losses: Sequence[float], min_delta: float) -> int:
    """Epochs since the last one that early stopping counted as an improvement."""
    best, waited = math.inf, 0
    for loss in losses:
        if loss < best - min_delta:
            best, waited = loss, 0
        else:
            waited += 1
    return waited


def _has_logarithms(trial: FinishedTrial) -> bool:
    return (
        trial.values[1] > 0
        and any(trial.curves)
        and all(loss > 0 for curve in trial.curves for loss in curve)
    )


def _running_best(curves: Sequence[Sequence[float]], *, width: int) -> Floats:
    """Logarithm of the lowest loss up to each epoch, (curves, width): a curve that has ended gains
    no more.
    """
    best = np.empty((len(curves), width))
    for row, curve in zip(best, curves, strict=True):
        row[: len(curve)] = np.log(np.minimum.accumulate(curve))
        row[len(curve) :] = row[len(curve) - 1]
    return best


def _steps(epochs_left: int) -> list[tuple[int, int]]:
    """The epochs from now on, 1 to `epochs_left`, in intervals (first, last) that grow with their
    distance.
    """
    steps, first, width = [], 1, 1
    while first <= epochs_left:
        last = min(first + width - 1, epochs_left)
        steps.append((first, last))
        first, width = last + 1, max(1, last // 2)
    return steps


def _depth(end: Point, dominating: Point) -> float:
    """How far inside the dominated area an end lies: the smaller of its two relative distances to
    the border.
    """
    return min((a - b) / a for a, b in zip(end, dominating, strict=True))
