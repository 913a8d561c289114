"""Trainings whose throughput fell: those that are at work, by their epochs so far, and those that
have ended, by their records.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from optuna.trial import TrialState

from tuner.storage.queue.epochs import EpochRow
from tuner.study.open import OpenStudy
from tuner.study.results import StudyResults, TrialRecord
from tuner.study.throughput import throughput_of, windows_of_an_epoch

SO_FAR = "so far; whether its device was shared is known at its end"
SHOWN = 3
"""Alarms that a terminal has lines for, the latest ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """One trial of a study, and what is wrong with its pace, in words."""

    trial: int
    running: bool
    what: str

    @property
    def in_words(self) -> str:
        """`trial 7: throughput fell from 2,052 to 539 samples/s between epochs 4 and 60`."""
        return f"trial {self.trial}: {self.what}" + (f", {SO_FAR}" if self.running else "")

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return asdict(self)


def alarms_of(opened: OpenStudy, results: StudyResults) -> tuple[Alarm, ...]:
    """Those of a study, in the order of their trials' numbers."""
    found = [*alarms_of_ended(results), *_at_work(opened, results)]
    return tuple(sorted(found, key=lambda each: each.trial))


def alarms_of_ended(results: StudyResults) -> list[Alarm]:
    """Those of trials that have ended."""
    return [
        Alarm(trial=record.number, running=False, what=record.recorded.slowed)
        for record in results.records
        if record.recorded.slowed and record.state.is_finished()
    ]


def in_lines(alarms: Sequence[Alarm]) -> list[str]:
    """As a terminal has room for them: those at work and the latest of the others."""
    order = sorted(alarms, key=lambda each: (each.running, each.trial))
    lines = [each.in_words for each in order[-SHOWN:]]
    more = len(order) - len(lines)
    return [*lines, *([f"{more} earlier ones; see: tuner trial NUMBER"] if more else [])]


def _at_work(opened: OpenStudy, results: StudyResults) -> list[Alarm]:
    running = {each.number: each for each in results.records if each.state is TrialState.RUNNING}
    if not running:
        return []
    curves = opened.epochs.of_trials(running)
    # After the curves: of a run that is made again, later epochs are still those of the one before.
    at_work = opened.roster.working()
    told = {row.trial_number: row.epoch for row in at_work if row.epoch is not None}
    earlier = opened.epochs.taken_over(running)
    alarms = []
    for number in running.keys() & curves.keys() & told.keys():
        windows = windows_in(running[number], results.records)
        what = _in_words(curves[number], told[number], earlier, number, windows)
        if what:
            alarms.append(Alarm(trial=number, running=True, what=what))
    return alarms


def _in_words(
    curve: Sequence[EpochRow],
    told: int,
    earlier: Mapping[tuple[int, int], int],
    number: int,
    windows: int | None,
) -> str:
    """What the epochs of a trial at work say, each seed for itself."""
    said = []
    seeds = sorted({row.repeat for row in curve})
    for seed in seeds:
        last = told if seed == seeds[-1] else len(curve)
        rows = [row for row in curve if row.repeat == seed and row.epoch <= last]
        fall = throughput_of(rows, after=earlier.get((number, seed), 0)).fall
        said += [fall.in_words(windows)] if fall else []
    return "; ".join(said)


def windows_in(trial: TrialRecord, records: Sequence[TrialRecord]) -> int | None:
    """Training windows of a trial's epochs, by its own record, or by that of another trial of the
    study that sees as many steps; None where nobody recorded them yet.
    """
    sees = trial.params.get("input_size")
    others = [each for each in records if each.params.get("input_size") == sees]
    alike = (each.recorded for each in (trial, *others))
    return next((found for each in alike if (found := windows_of_an_epoch(each))), None)
