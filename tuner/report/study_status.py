"""Where a study stands, or one of its trials, as one document; and which trainings got slower."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from optuna.trial import TrialState

from tuner.errors import StorageError, StudyGoneError, UsageError
from tuner.files.plain import in_json
from tuner.search.methods import prunes
from tuner.storage.database import Database
from tuner.storage.queue.claims import Stint, stints
from tuner.storage.queue.epochs import EpochRow
from tuner.storage.queue.roster import WorkerRow, all_in_words
from tuner.storage.records import Counts
from tuner.study.open import OpenStudy, open_study
from tuner.study.results import StudyResults, TrialRecord
from tuner.study.snapshot import names_by_group, snapshot
from tuner.study.throughput import Throughput, throughput_of
from tuner.verdict.confirmation import Confirmation, confirmation_of
from tuner.verdict.lacking import lacking_of
from tuner.verdict.verified import Verified, progress, verified_in

# Trainings whose throughput fell: those that are at work, by their epochs so far, and those that
# have ended, by their records.


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
    return next((found for each in alike if (found := each.epoch_windows)), None)


# Where a study stands.


def status_of(opened: OpenStudy) -> dict[str, Any]:
    """The study's status as one JSON-able document."""
    seen = snapshot(opened)
    results, policy, counts = seen.results, seen.policy, opened.ledger.counts()
    on_fresh_seeds, confirmation = verified_in(seen), confirmation_of(seen)
    verified = {number: each.as_dict() for number, each in on_fresh_seeds.items()}
    hosts, workers = opened.roster.hosts(), opened.roster.working()
    return {
        **who(opened),
        "trials": {
            "complete": results.of_state(TrialState.COMPLETE),
            "running": counts.running,
            "waiting": results.of_state(TrialState.WAITING),
            "pruned": results.of_state(TrialState.PRUNED) - results.missed,
            "failed": results.of_state(TrialState.FAIL),
        }
        | ({"missed": results.missed} if opened.definition.target_val_loss is not None else {}),
        "budget": counts.budget,
        "front": [
            record.as_dict() | {"verified": verified.get(record.number)} for record in results.front
        ],
        "verification": progress(seen.runs),
        "confirmation": confirmation.as_dict() if confirmation else None,
        "all_missed": _all_missed(on_fresh_seeds.values(), confirmation),
        "lacking": (found := lacking_of(seen)) and found.as_dict(),
        "objectives": list(results.objectives),
        "policy": policy.model_dump(mode="json") | {"prune": prunes(policy.sampler, policy.prune)},
        **in_json(counts, "time_is_up", hours_are_spent="lacks_hours"),
        "limits": results.limits or None,
        "feasible": not results.infeasible if results.limits and results.eligible else None,
        "clock": opened.definition.clock.value,
        **in_json(results, "censored", "hypervolume", "reference", "cost"),
        "device_model": seen.device_model,
        "workers": [_worker(row) for row in workers],
        "alarms": [alarm.as_dict() for alarm in alarms_of(opened, results)],
        "hosts": [{"host": host} | dataclasses.asdict(facts) for host, facts in hosts],
        "hosts_differ": all_in_words(hosts),
    }


RECENT = 10
"""Finished trials whose durations say how long the rest will take."""


def seconds_left(results: StudyResults, counts: Counts) -> float | None:
    """By the durations of the latest trials, shared among those that run now; None where either is
    missing.
    """
    ended = [record.recorded.total_s for record in results.records if record.state.is_finished()]
    known = [float(seconds) for seconds in ended[-RECENT:] if seconds]
    if not known or not counts.running:
        return None
    return sum(known) / len(known) * counts.left / counts.running


def duration(seconds: float) -> str:
    """Seconds as people say them: `40 s`, `12 min`, `3 h 20 min`."""
    minute, hour = 60, 3600
    if seconds < 2 * minute:
        return f"{seconds:.0f} s"
    if seconds < 2 * hour:
        return f"{seconds / minute:.0f} min"
    return f"{seconds // hour:.0f} h {seconds % hour / minute:.0f} min"


def who(opened: OpenStudy) -> dict[str, Any]:
    """Which study it is, for JSON."""
    of_group = in_json(opened.membership, "group", "search")
    named = in_json(opened.definition, "variant", task="task_name")
    return {"name": opened.name, **of_group, **named}


def _worker(row: WorkerRow) -> dict[str, Any]:
    plain = in_json(row, "worker", "host", "pid", "device", "epoch", "val_loss", "note")
    return plain | {"trial": row.trial_number, "silent_s": round(row.silent_s, 1)}


@dataclass(frozen=True, slots=True)
class Standing:
    """Where studies stand, in their order, and why others cannot be read."""

    opened: tuple[OpenStudy, ...]
    statuses: Mapping[str, dict[str, Any]]
    """By name."""
    unreadable: Mapping[str, str]
    """By name."""


def standing(database: Database, names: Iterable[str]) -> Standing:
    """Of the studies of these names; one that is damaged keeps no other from being seen.

    Raises:
        StudyGoneError: one was deleted meanwhile.
    """
    opened, statuses, unreadable = [], {}, {}
    for name in names:
        try:
            study = open_study(database, name)
            statuses[name] = status_of(study)
        except StudyGoneError:
            raise
        except StorageError as error:
            unreadable[name] = str(error)
        else:
            opened.append(study)
    return Standing(tuple(opened), statuses, unreadable)


def _all_missed(
    verified: Iterable[Verified], confirmation: Confirmation | None
) -> list[dict[str, Any]]:
    """The configurations of which every run on fresh seeds is over and none counts, and how they
    ended: without this they look as if nobody had run them.
    """
    confirmed = confirmation.configurations if confirmation else ()
    return [
        {"trial": each.trial_number, "what": each.without_figures}
        for each in {each.trial_number: each for each in (*verified, *confirmed)}.values()
        if each.runs and each.missed == len(each.runs) == each.planned
    ]


def groups_of(opened: Iterable[OpenStudy]) -> list[dict[str, Any]]:
    """The groups of searches that the studies belong to, each with those of its studies that are
    among them.
    """
    return [{"name": name, "studies": names} for name, names in names_by_group(opened).items()]


# Everything about one trial: its record, every attempt at it, and its learning curve.


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
                more = f": handed back {back} times, the next free worker takes it" if back else ""
                return f"waiting{more}"
            case TrialState.RUNNING:
                at_work = [each.worker for each in self.history if each.state == "running"]
                return f"running on {at_work[-1]}" if at_work else "running"
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
                in_json(each, "worker", "state")
                | {
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
    seen = snapshot(opened)
    results = seen.results
    record = next((each for each in results.records if each.number == number), None)
    if record is None:
        last = max((each.number for each in results.records), default=None)
        there = f"its trials are 0 to {last}" if last is not None else "it has none yet"
        if last is not None and 0 <= number < last:
            there = "that one is another program's, and tuner ignores it"
        raise UsageError(f"study {opened.name!r} has no trial {number}; {there}")
    whole = results.configuration_of(number) or record
    fresh = verified_in(seen).get(whole.number)
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
