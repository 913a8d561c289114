"""One trial at work: its epochs reach the database, and a verdict on them may end it."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tuner.config import StopReason
from tuner.storage import Claim, EpochRow
from tuner.storage.outbox import Outbox
from tuner.storage.retry import DATABASE_FAILURES, cause_of
from tuner.study import OpenStudy
from tuner.worker.pace import Pace
from tuner.worker.pruning import Watched
from tuner.worker.pulse import Pulse

if TYPE_CHECKING:
    from tuner.training import EpochRecord

BUFFERED_AT_MOST = 5000
"""Epochs kept in memory while it is away; more go to local files."""
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class RunningTrial:
    """One trial at work: its epochs are buffered, and delivered off the clock."""

    opened: OpenStudy
    worker: str
    claim: Claim
    trial_number: int
    watched: Watched | None = None
    """Decides after each epoch whether to prune; None where the trial is not to be pruned."""
    pulse: Pulse = field(default_factory=Pulse)
    outbox: Outbox | None = None
    _pace: Pace = field(default_factory=Pace)
    _buffer: dict[tuple[int, int], EpochRow] = field(default_factory=dict)
    """By seed and epoch: a run that is made again takes the place of the first one's curve."""
    _spilled: bool = False

    def on_epoch(self, record: EpochRecord, repeat: int) -> StopReason | None:
        self._keep(record, repeat)
        if self._pace.due():
            self.deliver()
        self.pulse.epoch_ended(record.elapsed_s)
        if self.watched is not None and self.watched.judge(record, repeat) is not None:
            return StopReason.PRUNED
        return None

    def on_curve(self, records: Sequence[EpochRecord], repeat: int) -> None:
        """Epochs that `on_epoch` did not hear of, or not last: this attempt's curve is to be that of what counts."""
        for record in records:
            self._keep(record, repeat)
        self.pulse.clock_at(records[-1].elapsed_s if records else 0.0)

    def deliver(self) -> None:
        """Write what is buffered; what the database does not take now is kept, and tried again ever less often."""
        if not self._buffer and not self._spilled:
            return
        self.pulse.phase("database")
        try:
            if self._spilled and self.outbox is not None:
                opened = self.opened
                self.outbox.deliver(opened.ledger, opened.epochs, opened.verifications, only=self.claim)
                self._spilled = False
            self.opened.epochs.write(self.trial_number, self.claim.claim_id, rows := list(self._buffer.values()))
            latest = rows[-1] if rows else None
            self._buffer.clear()
            if latest is not None:
                self.opened.roster.report(
                    self.worker, trial_number=self.trial_number, epoch=latest.epoch, val_loss=latest.val_loss
                )
            self._pace.wrote(well=True)
        except DATABASE_FAILURES as error:
            self._pace.wrote(well=False)
            _log.warning("the database is away (%s); keeping %d epochs", cause_of(error), len(self._buffer))
            if len(self._buffer) >= BUFFERED_AT_MOST:
                self.spill()

    def spill(self) -> None:
        """Move what is buffered to local files, for whoever can deliver it later."""
        if not self._buffer or self.outbox is None:
            return
        try:
            self.outbox.put_epochs(self.claim, list(self._buffer.values()))
        except OSError as error:
            if len(self._buffer) < 2 * BUFFERED_AT_MOST:
                return
            _log.warning("%d epochs are lost: %s: %s", len(self._buffer), self.outbox.folder, error.strerror)
        else:
            self._spilled = True
        self._buffer.clear()

    def _keep(self, record: EpochRecord, repeat: int) -> None:
        self._buffer.pop((repeat, record.epoch), None)  # the latest is to be the last
        self._buffer[repeat, record.epoch] = EpochRow(
            record.epoch, record.train_loss, record.val_loss, record.learning_rate, record.elapsed_s, repeat
        )
