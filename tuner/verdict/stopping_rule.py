"""What a recorded training would have come to under another stopping rule.

Early stopping looks at validation losses alone, and these are recorded, epoch by epoch. A rule that
stops no later than the training did can be replayed exactly: its last epoch, its time, and the
epoch whose weights it keeps. Where that is the epoch whose weights were kept, the recorded MQL is
that of the replayed training, too; else it is not known, because only the kept weights were tested.
A rule that would have gone on is not reached: what came later was never trained. Runs of a
verification have no recorded epochs: for them, train again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tuner.storage.queue.epochs import EpochRow
from tuner.study.snapshot import StudySnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppingRule:
    """Over after `patience` epochs in a row without an improvement of more than `min_delta`."""

    patience: int
    min_delta: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """One training under another rule."""

    reached: bool
    """False where the record ends before the rule would have stopped: the others are of the
    record then."""
    epochs: int
    seconds: float
    """The trial's clock at the end of the last epoch."""
    best_epoch: int
    """Whose weights it keeps: the strictly lowest loss."""
    same_weights: bool
    """They are those that were kept and tested, so the recorded MQL holds."""


def replay(curve: Sequence[EpochRow], rule: StoppingRule) -> Replayed:
    """A recorded training of one seed under `rule`.

    Raises:
        ValueError: no epoch was recorded.
    """
    if not curve:
        raise ValueError("no epoch was recorded")
    losses = [math.inf if row.val_loss is None else row.val_loss for row in curve]
    end = _end(losses, rule)
    last = len(curve) - 1 if end is None else end
    best = _lowest(losses[: last + 1])
    return Replayed(
        reached=end is not None,
        epochs=curve[last].epoch,
        seconds=curve[last].elapsed_s,
        best_epoch=curve[best].epoch,
        same_weights=best == _lowest(losses),
    )


def replay_study(study: StudySnapshot, rule: StoppingRule) -> Mapping[int, tuple[Replayed, ...]]:
    """The converged trials of a study whose epochs are recorded, each with its seeds in order, by
    number.
    """
    return {
        number: tuple(replay(curve, rule) for curve in _of_seeds(rows))
        for number, rows in study.curves(converged_trials(study)).items()
        if rows
    }


def converged_trials(study: StudySnapshot) -> list[int]:
    """The numbers of the trials that may be replayed, in their order."""
    return [record.number for record in study.results.complete if record.converged]


def is_recorded(study: StudySnapshot) -> bool:
    """Whether epochs are recorded, by its first trial that converged."""
    return any(study.curves(converged_trials(study)[:1]).values())


def _of_seeds(rows: Sequence[EpochRow]) -> list[list[EpochRow]]:
    curves: dict[int, list[EpochRow]] = {}
    for row in rows:
        curves.setdefault(row.repeat, []).append(row)
    return [curves[repeat] for repeat in sorted(curves)]


def _end(losses: Sequence[float], rule: StoppingRule) -> int | None:
    """Where `tuner.training.early_stopping` would be over; None where it would go on.

    Told again here, because to import that takes a training's libraries. It is over at a validated
    epoch only: others have an infinite loss here.
    """
    best, waited = math.inf, 0
    for index, loss in enumerate(losses):
        if loss < best - rule.min_delta:
            best, waited = loss, 0
        else:
            waited += 1
        if waited >= rule.patience and loss < math.inf:
            return index
    return None


def _lowest(losses: Sequence[float]) -> int:
    """The first of the lowest losses."""
    return min(range(len(losses)), key=lambda index: losses[index])
