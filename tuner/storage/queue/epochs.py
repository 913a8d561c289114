"""Learning curves, in a table of our own:
Optuna's intermediate values do not mix with several objectives.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass

from pydantic import TypeAdapter
from sqlalchemy import Engine, and_, delete, func, insert, select
from sqlalchemy.exc import IntegrityError

from tuner.storage.records import damage_named, read_rows
from tuner.storage.schema import epochs


@dataclass(frozen=True, slots=True)
class EpochRow:
    """One epoch of one trial. `elapsed_s` is the trial's clock at its end;
    losses are on scaled values.
    """

    epoch: int
    train_loss: float | None
    val_loss: float | None
    learning_rate: float
    elapsed_s: float
    repeat: int = 0
    """Which of the trial's seeds, from 0."""


EPOCHS = TypeAdapter(list[EpochRow])


class EpochTable:
    """The epochs of one study."""

    def __init__(self, engine: Engine, study_id: int) -> None:
        self._engine = engine
        self._study_id = study_id

    def write(self, trial_number: int, work_id: int, rows: Sequence[EpochRow]) -> None:
        """Add `rows`. Writing them again, after a commit whose answer was lost, changes nothing."""
        if not rows:
            return
        try:
            self._write(trial_number, work_id, rows)
        except IntegrityError:
            # Somebody delivered the same at this moment: by now they are there, to be replaced.
            self._write(trial_number, work_id, rows)

    def _write(self, trial_number: int, work_id: int, rows: Sequence[EpochRow]) -> None:
        fixed = {"study_id": self._study_id, "trial_number": trial_number, "work_id": work_id}
        of_this = (epochs.c.study_id == self._study_id) & (epochs.c.work_id == work_id)
        with self._engine.begin() as connection:
            for repeat in {row.repeat for row in rows}:
                again = [row.epoch for row in rows if row.repeat == repeat]
                those = of_this & (epochs.c.repeat == repeat) & epochs.c.epoch.in_(again)
                connection.execute(delete(epochs).where(those))
            connection.execute(insert(epochs), [fixed | asdict(row) for row in rows])

    def of_trial(self, trial_number: int) -> tuple[EpochRow, ...]:
        """The curve of a trial, one seed after the other: that of its latest attempt, in order.

        Raises:
            StorageError: an epoch is damaged.
        """
        return self.of_trials([trial_number]).get(trial_number, ())

    def taken_over(self, trial_numbers: Collection[int]) -> dict[tuple[int, int], int]:
        """By trial and seed: how many epochs the latest attempt has from an earlier one, whose
        clocks they bear to the last digit. Nothing of what was trained in one go.
        """
        mine, theirs = epochs.alias("mine"), epochs.alias("theirs")
        of_these = (mine.c.study_id == self._study_id) & mine.c.trial_number.in_(
            list(trial_numbers)
        )
        same = [
            mine.c[name] == theirs.c[name]
            for name in ("study_id", "trial_number", "repeat", "epoch", "elapsed_s")
        ]
        of_a_seed = mine.c.trial_number, mine.c.repeat
        query = select(*of_a_seed, func.max(mine.c.epoch)).where(of_these).group_by(*of_a_seed)
        query = query.join(theirs, and_(*same, theirs.c.work_id < mine.c.work_id))
        with self._engine.connect() as connection:
            return {(number, seed): last for number, seed, last in connection.execute(query)}

    def of_trials(self, trial_numbers: Collection[int]) -> dict[int, tuple[EpochRow, ...]]:
        """The curves of several trials, as `of_trial` gives each, in one query; those without an
        epoch are left out.
        """
        c = epochs.c
        of_these = (c.study_id == self._study_id) & c.trial_number.in_(list(trial_numbers))
        last = select(c.trial_number, func.max(c.work_id).label("work_id")).where(of_these)
        latest = last.group_by(c.trial_number).subquery()
        same = (c.trial_number == latest.c.trial_number) & (c.work_id == latest.c.work_id)
        query = select(epochs).join(latest, same).where(of_these)
        query = query.order_by(c.trial_number, c.repeat, c.epoch)
        found: dict[int, list[EpochRow]] = {}
        with self._engine.connect() as connection:
            rows = connection.execute(query).all()
        with damage_named(self._engine, self._study_id):
            for row, each in zip(rows, read_rows(EPOCHS, epochs, rows), strict=True):
                found.setdefault(row.trial_number, []).append(each)
        return {number: tuple(rows) for number, rows in found.items()}
