"""The epochs of the trial at work, and what the pruner makes of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from tuner.config import EpochRecord
from tuner.search.pruning import Pruner, Verdict, carried_on
from tuner.spec.pareto import Point
from tuner.storage.queue.epochs import EpochRow


@dataclass(slots=True)
class Watched:
    """No database, no device: microseconds. It goes to whichever process trains."""

    pruner: Pruner
    _verdicts: list[Verdict] = field(default_factory=list)
    _epochs: dict[int, dict[int, tuple[float | None, float]]] = field(default_factory=dict)

    @property
    def verdicts(self) -> Sequence[Verdict]:
        """All so far, in the order in which they were given."""
        return tuple(self._verdicts)

    def take_over(self, verdicts: Sequence[Verdict]) -> None:
        """What another process made of the same epochs takes the place of what is known here."""
        self._verdicts = list(verdicts)

    def remember(self, rows: Iterable[EpochRow]) -> None:
        """Epochs of an earlier attempt: a trial that goes
        on from a checkpoint does not tell them again.
        """
        for row in rows:
            self._epochs.setdefault(row.repeat, {})[row.epoch] = row.val_loss, row.elapsed_s

    def judge(self, record: EpochRecord, repeat: int) -> Verdict | None:
        """Why to end the trial after this epoch; None to go on.

        An epoch that was not validated says nothing new, and ends none.
        """
        told = self._epochs.setdefault(repeat, {})
        told[record.epoch] = record.val_loss, record.elapsed_s
        if record.val_loss is None or any(n not in told for n in range(1, record.epoch + 1)):
            return None
        losses, elapsed_s = zip(*(told[epoch] for epoch in range(1, record.epoch + 1)), strict=True)
        earlier = [self._optimistic(before) for before in range(repeat)]
        verdict = self.pruner.verdict(
            carried_on(losses), elapsed_s, earlier=[end for end in earlier if end is not None]
        )
        if verdict is not None:
            self._verdicts.append(verdict)
        return verdict

    def verdict(self, epochs: int) -> Verdict | None:
        """The latest on a training of so many epochs, else the latest:
        one that is run again may be judged again.
        """
        return next(
            (v for v in reversed(self._verdicts) if v.epoch == epochs),
            next(reversed(self._verdicts), None),
        )

    def _optimistic(self, repeat: int) -> Point | None:
        """The values of a seed that has finished; its MQL,
        which is not known here, as its loss promises.
        """
        told = self._epochs.get(repeat)
        if not told:
            return None
        losses, elapsed_s = zip(*(told[epoch] for epoch in sorted(told)), strict=True)
        known = carried_on(losses)
        return self.pruner.ended(known, elapsed_s) if known else None
