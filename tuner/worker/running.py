"""One trial at work: its epochs reach the database."""

from __future__ import annotations

import dataclasses
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from tuner.config import EpochRecord, StopReason
from tuner.spec.objectives import violations
from tuner.spec.policy import SearchPolicy
from tuner.storage.queue.epochs import EpochRow
from tuner.storage.records import Claim, TrialResult
from tuner.storage.retry import DATABASE_FAILURES, cause_of
from tuner.study.open import OpenStudy
from tuner.trial.job import Watched
from tuner.worker.heartbeat import Heartbeat
from tuner.worker.paths import Outbox

# When an epoch is written: every second, less often where the database is slow, and ever less
# often while it is away.


REPORT_S = 1.0
LONGEST_PAUSE_S = 60.0
"""Between two tries of a database that is away:
each may take seconds, in which nothing is trained."""
MOST_OF_TIME = 0.05
"""A worker spends this share of its time on such writes at most: where hundreds of workers share a
database, that leaves it time for claims and results."""


@dataclass(slots=True)
class ReportInterval:
    """Says when the next write is due, by how the last ones went."""

    _next: float = 0.0
    _failures: int = 0

    def due(self) -> bool:
        return time.monotonic() >= self._next

    def wrote(self, *, well: bool, took_s: float = 0.0) -> None:
        self._failures = 0 if well else self._failures + 1
        pause_s = max(REPORT_S * 4**self._failures, took_s / MOST_OF_TIME)
        self._next = time.monotonic() + min(pause_s, LONGEST_PAUSE_S)


BUFFERED_AT_MOST = 5000
"""Epochs kept in memory while it is away; more go to local files."""
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class RunningTrial:
    """One trial at work, or one run of it that verifies: its epochs are told off the clock."""

    opened: OpenStudy
    worker: str
    trial_number: int
    claim: Claim | None = None
    """Whose curve is kept in the database; None for a verification run, of which none is."""
    watched: Watched | None = None
    """What decides after each epoch whether to prune; None where the trial is not to be pruned."""
    heartbeat: Heartbeat = field(default_factory=Heartbeat)
    outbox: Outbox | None = None
    _report_interval: ReportInterval = field(default_factory=ReportInterval)
    _latest: EpochRecord | None = None
    """The last epoch that nobody was told of."""
    _latest_loss: float | None = None
    """Of the last epoch of its training that was validated."""
    _buffer: dict[tuple[int, int], EpochRow] = field(default_factory=dict)
    """By seed and epoch: a run that is made again takes the place of the first one's curve."""
    _spilled: bool = False

    def on_epoch(self, record: EpochRecord, repeat: int) -> None:
        self._keep(record, repeat)
        if self._report_interval.due():
            self.deliver()
        self.heartbeat.epoch_ended(record.elapsed_s)

    def on_curve(self, records: Sequence[EpochRecord], repeat: int) -> None:
        """Epochs that `on_epoch` did not hear of, or not last: this attempt's curve is to be that
        of what counts.
        """
        for record in records:
            self._keep(record, repeat)
        self.heartbeat.clock_at(records[-1].elapsed_s if records else 0.0)

    def judged(self, result: TrialResult, policy: SearchPolicy) -> TrialResult:
        """The result with how far it is beyond the study's limits,
        and why it was pruned where it was.
        """
        recorded, constraints = result.recorded, dict(result.constraints)
        if result.values is not None:
            values = (result.values[0], result.values[1])
            constraints |= violations(policy, values, recorded)
        if recorded.stopped_by == StopReason.PRUNED and self.watched is not None:
            verdict = self.watched.verdict(recorded.epochs or 0)
            recorded = verdict.said_in(recorded) if verdict is not None else recorded
        return dataclasses.replace(result, recorded=recorded, constraints=constraints)

    def deliver(self) -> None:
        """Write what is new; what the database does not take now is kept,
        and tried again ever less often.
        """
        if self._latest is None and not self._buffer and not self._spilled:
            return
        self.heartbeat.phase("database")
        began = time.monotonic()
        try:
            if self.claim is not None:
                self._write_curve(self.claim)
            if self._latest is not None:
                self.opened.roster.report(
                    self.worker,
                    trial_number=self.trial_number,
                    epoch=self._latest.epoch,
                    val_loss=self._latest_loss,
                )
                self._latest = None
            self._report_interval.wrote(well=True, took_s=time.monotonic() - began)
        except DATABASE_FAILURES as error:
            self._report_interval.wrote(well=False)
            kept = f"; keeping {len(self._buffer)} epochs" if self.claim is not None else ""
            _log.warning("the database is away (%s)%s", cause_of(error), kept)
            if len(self._buffer) >= BUFFERED_AT_MOST:
                self.spill()

    def _write_curve(self, claim: Claim) -> None:
        opened = self.opened
        if self._spilled and self.outbox is not None:
            self.outbox.deliver(opened.ledger, opened.epochs, opened.verifications, only=claim)
            self._spilled = False
        opened.epochs.write(self.trial_number, claim.work_id, list(self._buffer.values()))
        self._buffer.clear()

    def spill(self) -> None:
        """Move what is buffered to local files, for whoever can deliver it later."""
        if not self._buffer or self.outbox is None or self.claim is None:
            return
        try:
            self.outbox.put_epochs(self.claim, list(self._buffer.values()))
        except OSError as error:
            if len(self._buffer) < 2 * BUFFERED_AT_MOST:
                return
            _log.warning(
                "%d epochs are lost: %s: %s", len(self._buffer), self.outbox.folder, error.strerror
            )
        else:
            self._spilled = True
        self._buffer.clear()

    def _keep(self, record: EpochRecord, repeat: int) -> None:
        self._latest = record
        if record.val_loss is not None or record.epoch == 1:
            self._latest_loss = record.val_loss
        if self.claim is None:
            return
        self._buffer.pop((repeat, record.epoch), None)  # the latest is to be the last
        self._buffer[repeat, record.epoch] = EpochRow(
            record.epoch,
            record.train_loss,
            record.val_loss,
            record.learning_rate,
            record.elapsed_s,
            repeat,
        )
