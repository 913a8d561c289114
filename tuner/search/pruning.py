"""Ending a trial early whose best possible end is dominated:
pruning where there are two objectives.

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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tuner.config import OBJECTIVES
from tuner.record import Recorded
from tuner.search.bounds import Bounds, Caution, FinishedTrial, Stopping
from tuner.spec.pareto import Point, front_indices


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Why a trial was ended: of all it might still have become,
    the end that came nearest to the front.
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
        self._caution = caution or Caution()
        self._seeds = seeds
        usable = [trial for trial in finished if _has_logarithms(trial)]
        front = [trial for trial in usable if trial.dominates]
        self._front = [front[i] for i in front_indices([trial.values for trial in front])]
        self._bounds: Bounds | None = None
        if len(usable) >= self._caution.min_finished and self._front:
            bounds = Bounds(
                usable,
                stopping,
                self._caution,
                time_objective=time_objective,
                target_val_loss=target_val_loss,
            )
            self._bounds = bounds if bounds.deepest > 0 else None
        self.ready = self._bounds is not None

    @property
    def front(self) -> list[Point]:
        """What dominates."""
        return [trial.values for trial in self._front]

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

    def look_up(self) -> None:
        """Work out beforehand what of most verdicts does not follow from the trial."""
        if self._bounds is not None:
            self._bounds.look_up(range(self._caution.min_epochs, self._bounds.deepest + 1))

    def ends(self, losses: Sequence[float], elapsed_s: Sequence[float]) -> list[Point]:
        """The ends that the training may still come to, as `Bounds.ends` gives them."""
        assert self._bounds is not None, "too little has finished: see `ready`"
        return self._bounds.ends(losses, elapsed_s)

    def ended(self, losses: Sequence[float], elapsed_s: Sequence[float]) -> Point | None:
        """What a training that is over came to, as `Bounds.ended` gives it."""
        assert self._bounds is not None, "too little has finished: see `ready`"
        return self._bounds.ended(losses, elapsed_s)

    def _dominating(self, earlier: Sequence[Point]) -> list[FinishedTrial]:
        """Front trials that dominate enough earlier seeds for one more to make a majority."""
        needed = self._seeds // 2
        return [
            trial
            for trial in self._front
            if sum(trial.values[0] <= p[0] and trial.values[1] <= p[1] for p in earlier) >= needed
        ]


def _has_logarithms(trial: FinishedTrial) -> bool:
    return (
        trial.values[1] > 0
        and any(trial.curves)
        and all(loss > 0 for curve in trial.curves for loss in curve)
    )


def _depth(end: Point, dominating: Point) -> float:
    """How far inside the dominated area an end lies:
    the smaller of its two relative distances to the border.
    """
    return min((a - b) / a for a, b in zip(end, dominating, strict=True))


# The validation losses of a curve some of whose epochs were not validated.


BEFORE_THE_FIRST = 2.0
"""Times the first loss, for epochs before it: clearly worse, so that the first one improves."""


def carried_on(losses: Iterable[float | None]) -> tuple[float, ...]:
    """A loss for each epoch: where one was not validated, that of the last one before it that was.

    So early stopping waits as many epochs with these as it did. Nothing where none was validated.
    """
    found: list[float] = []
    missing = 0
    for loss in losses:
        if loss is not None:
            found += [BEFORE_THE_FIRST * loss] * missing + [loss]
            missing = 0
        elif found:
            found.append(found[-1])
        else:
            missing += 1
    return tuple(found)
