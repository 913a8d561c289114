"""Everything about one trial: its record, every attempt at it, and its learning curve."""

from __future__ import annotations

import datetime
from dataclasses import dataclass
from typing import Any

from optuna.trial import TrialState

from tuner.errors import UsageError
from tuner.report.alarms import alarms_of, windows_in
from tuner.storage.queue.claims import Stint, stints
from tuner.storage.queue.epochs import EpochRow
from tuner.study.open import OpenStudy
from tuner.study.results import TrialRecord, read_results
from tuner.study.throughput import Throughput, throughput_of
from tuner.verdict.stats.intervals import in_json
from tuner.verdict.verified import runs_of_trial

_ENDS = {
    "converged": "converged",
    "epoch_limit": "reached the limit of epochs before it converged: its time says when it was cut",
    "time_limit": "reached the limit of time before it converged: its time says when it was cut",
    "pruned": "pruned: its best possible end was already beaten",
    "diverged": "diverged",
    "out_of_memory": "out of memory",
    "error": "its training failed",
}


ROW = ("repeat", "epoch", "train_loss", "val_loss", "learning_rate", "elapsed_s")
"""Of an epoch, what a curve has."""


@dataclass(frozen=True, slots=True)
class TrialDetail:
    """One trial of a study. `curve` is that of its latest attempt, all seeds; `history` every
    attempt, in order.
    """

    study: str
    variant: str
    task: str
    record: TrialRecord
    on_front: bool
    """Its configuration is, whose figures are the medians of all its trials."""
    history: tuple[Stint, ...]
    curve: tuple[EpochRow, ...]
    configuration: TrialRecord | None = None
    """Where it is one of several trials of a configuration, what all of them came to."""
    verified: dict[str, Any] | None = None
    unverified: str = ""
    """Why its configuration's runs on fresh seeds give no figures; empty where they do, or none
    ran."""
    """Fresh-seed figures of its configuration,
    as `tuner best` has them; None while there are too few."""
    windows: int | None = None
    """Training windows of an epoch, where they are known."""
    alarm: str = ""
    """That its throughput fell, in words; empty where it did not, as far as is known."""

    @property
    def outcome(self) -> str:
        """In words: how it ended and why, or where it stands."""
        match self.record.state:
            case TrialState.WAITING:
                back = sum(each.state in ("returned", "lost") for each in self.history)
                return (
                    f"waiting: handed back {back} times, the next free worker takes it"
                    if back
                    else "waiting"
                )
            case TrialState.RUNNING:
                at_work = next(
                    (each.worker for each in reversed(self.history) if each.state == "running"),
                    None,
                )
                return f"running on {at_work}" if at_work else "running"
            case _:
                stopped_by = self.record.recorded.stopped_by or self.record.state.name.lower()
                reason = self.record.recorded.failure
                what = _ENDS.get(stopped_by, stopped_by.replace("_", " "))
                return f"{what}: {reason}" if reason else what

    @property
    def validated(self) -> list[EpochRow]:
        """The epochs that have a validation loss: with `validate_every`, not all of them."""
        return [row for row in self.curve if row.val_loss is not None]

    @property
    def best(self) -> EpochRow | None:
        """The epoch with the lowest validation loss; None before the first."""
        rows = self.validated
        return min(rows, key=lambda row: (row.val_loss, row.epoch)) if rows else None

    @property
    def throughput(self) -> Throughput:
        """That of its last seed."""
        last_seed = max((row.repeat for row in self.curve), default=0)
        rows = [row for row in self.curve if row.repeat == last_seed]
        return throughput_of(rows, after=self.record.recorded.resumed_from_epoch or 0)

    def as_dict(self) -> dict[str, Any]:
        """For JSON: the record as `tuner status` has it, and what only one trial has room for."""
        whole = {"configuration": self.configuration.as_dict()} if self.configuration else {}
        return self.record.as_dict() | {
            **in_json(self, "study", "variant", "task", "outcome", "on_front", "verified"),
            **in_json(self.record, "started", "ended"),
            "state": self.record.state.name.lower(),
            "failure": self.record.recorded.failure,
            "unverified": self.unverified or None,
            "attempts": [
                {
                    "worker": each.worker,
                    "state": each.state,
                    "began": utc(each.began),
                    "ended": None if each.state == "running" else utc(each.ended),
                }
                for each in self.history
            ],
            "curve": self._curve_summary(),
            "throughput": self._throughput_summary(),
            "alarm": self.alarm or None,
            "attributes": self.record.recorded.to_flat(),
            **whole,
        }

    def _throughput_summary(self) -> dict[str, Any] | None:
        ends = self.throughput.ends
        if ends is None:
            return None
        rates = [None if self.windows is None else self.windows / seconds for seconds in ends]
        return {
            "first_s_per_epoch": ends[0],
            "last_s_per_epoch": ends[1],
            "first_samples_per_s": rates[0],
            "last_samples_per_s": rates[1],
        }

    def _curve_summary(self) -> dict[str, Any] | None:
        if not self.curve:
            return None
        return {
            "epochs": max(row.epoch for row in self.curve),
            "best_epoch": self.best.epoch if self.best else None,
            "best_val_loss": self.best.val_loss if self.best else None,
            "last_val_loss": self.validated[-1].val_loss if self.validated else None,
            "elapsed_s": self.curve[-1].elapsed_s,
            "rows": [in_json(row, *ROW) for row in self.curve],
        }


def read_trial(opened: OpenStudy, number: int) -> TrialDetail:
    """Read trial `number` of a study.

    Raises:
        UsageError: the study has no such trial.
    """
    results = read_results(opened)
    record = next((each for each in results.records if each.number == number), None)
    if record is None:
        last = max((each.number for each in results.records), default=None)
        there = f"its trials are 0 to {last}" if last is not None else "it has none yet"
        if last is not None and 0 <= number < last:
            there = "that one is another program's, and tuner ignores it"
        raise UsageError(f"study {opened.name!r} has no trial {number}; {there}")
    whole = results.configuration_of(number) or record
    fresh = runs_of_trial(opened, whole.number)
    verified = fresh.as_dict() if fresh else None
    return TrialDetail(
        study=opened.name,
        variant=opened.definition.variant,
        task=opened.definition.task_name,
        record=record,
        on_front=number in results.on_front,
        history=stints(opened.database.engine, opened.study_id, trial_number=number),
        curve=opened.epochs.of_trial(number),
        configuration=whole if whole.runs > 1 else None,
        verified=verified,
        unverified=fresh.without_figures if fresh and verified is None else "",
        windows=windows_in(record, results.records),
        alarm=next((a.what for a in alarms_of(opened, results) if a.trial == number), ""),
    )


def utc(seconds: float) -> str:
    """Seconds since 1970 as ISO 8601, in UTC, to the second."""
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")
