"""What tuner adds to a study in the dashboard: figures, a note that says where it stands, files,
names with units.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from optuna.storages import BaseStorage
from optuna.trial import TrialState

from tuner.display.text import in_markdown
from tuner.errors import TunerError
from tuner.record import Recorded
from tuner.report.dashboard.downloads import StudyFiles
from tuner.report.figures import series
from tuner.report.figures.curves import curves_figure, hypervolume_figure, throughput_figure
from tuner.report.figures.draw import axes
from tuner.report.figures.front import pareto_figure
from tuner.report.figures.trade import trade_figure
from tuner.report.study_status import Alarm, alarms_of, in_lines
from tuner.spec.objectives import heading
from tuner.spec.pareto import knee_index
from tuner.spec.study_file import builtin_variants, load_study_file
from tuner.storage.database import Database
from tuner.storage.queue.roster import WorkerRow
from tuner.study.open import OpenStudy, list_studies, open_study
from tuner.study.results import StudyResults, TrialRecord
from tuner.study.snapshot import StudySnapshot, memberships, snapshot
from tuner.verdict.same_quality import recommended_trial
from tuner.verdict.stats.intervals import Interval
from tuner.verdict.verified import Verified, split_shown, verified_in

# Where a study stands, in words: what the dashboard shows below the note that says what the study
# is.


_REPEATED = (
    "A configuration with several runs is one point, under its first trial's number: the medians "
    "of their seconds and of their MQL. optuna-dashboard's own plots draw each run for itself, and "
    "its own front is that of the luckiest."
)


def standing(
    opened: OpenStudy,
    results: StudyResults,
    verified: Sequence[Verified],
    workers: Sequence[WorkerRow],
    recommended: int | None = None,
    *,
    alarms: Sequence[Alarm] = (),
) -> str:
    """Where the study stands at this moment; `recommended` is the trial that it recommends.
    Markdown.
    """
    counts = opened.ledger.counts()
    failed = [record for record in results.records if record.state == TrialState.FAIL]
    tally = [f"{counts.finished} of {counts.budget} trials finished"]
    pruned = results.of_state(TrialState.PRUNED)
    for number, word in ((counts.running, "running"), (pruned, "pruned"), (len(failed), "failed")):
        tally += [f"{number} {word}"] if number else []
    lines = [
        "### Where it stands",
        *_searches(opened),
        f"{', '.join(tally)}. Device: {in_markdown(opened.device_model() or 'none yet')}.",
    ]
    front = [record for record in results.front if record.values]
    if front:
        knee = knee_index([record.values for record in front if record.values])
        words = {
            front[index].number: word
            for index, word in ((0, "fastest"), (len(front) - 1, "lowest error"), (knee, "knee"))
        }
        if recommended is not None:
            words[recommended] = "**recommended**"
        shown = [r for r in results.configurations if r in front or r.number == recommended]
        shown.sort(key=lambda record: record.values or (0.0, 0.0))
        error = heading(results.objectives[1])
        lines += ["", f"| | trial | seconds | {error} | epochs |", "|---|--:|--:|--:|--:|"]
        lines += [_row(words.get(record.number, ""), record) for record in shown]
        if results.repeated:
            lines += ["", _REPEATED]
        lines += ["", *_verified(verified, repeated=results.repeated)]
    if workers:
        lines += ["", "| worker | device | trial | epoch | validation loss | last heard |"]
        lines += ["|---|---|--:|--:|--:|--:|"]
        lines += [_worker(worker) for worker in workers]
    if alarms:
        lines += ["", "Throughput fell:"]
        lines += [f"- {in_markdown(line)}" for line in in_lines(alarms)]
    if failed:
        lines += ["", "Failures:"]
        lines += [f"- trial {r.number}: {_reason(r.recorded)}" for r in failed[-10:]]
    return "\n".join(lines)


def _searches(opened: OpenStudy) -> list[str]:
    """Which search of its group it is, where there are others."""
    place = opened.membership
    others = [
        in_markdown(name)
        for name, theirs in memberships(opened.database).items()
        if theirs.group == place.group and name != opened.name
    ]
    if not others:
        return []
    group = in_markdown(place.group)
    return [f"Search {place.search} of group {group}, as are: {', '.join(others)}.", ""]


def _worker(worker: WorkerRow) -> str:
    words = (in_markdown(worker.worker), in_markdown(worker.device))
    at = f"{_or_dash(worker.trial_number)} | {_or_dash(worker.epoch)}"
    loss = "-" if worker.val_loss is None else f"{worker.val_loss:.4f}"
    return f"| {' | '.join(words)} | {at} | {loss} | {worker.silent_s:.0f} s ago |"


def _verified(verified: Sequence[Verified], *, repeated: bool) -> list[str]:
    known = [each for each in verified if each.seconds or each.mql]
    lines = []
    if known:
        lines = [
            "On fresh seeds (medians with 95 % intervals):",
            "",
            f"| trial | seeds | seconds | {heading(split_shown(known))} |",
            "|--:|--:|--:|--:|",
            *map(_verified_row, known),
        ]
    elif not any(each.runs for each in verified):
        lines = ["One trial is one seed: no figure here has been verified on others."]
        if repeated:
            lines = ["No figure here has been verified on fresh seeds."]
    without = [
        f"- trial {each.trial_number}: {why}"
        for each in verified
        if len(each.runs) == each.planned and (why := each.without_figures)
    ]
    head = ["", "Without figures of fresh seeds, or without all:"] if without else []
    return [*lines, *head, *without]


def _verified_row(each: Verified) -> str:
    seconds, mql = _with_interval(each.seconds, ".3f"), _with_interval(each.mql, ".4f")
    return f"| {each.trial_number} | {len(each.runs)} | {seconds} | {mql} |"


def _with_interval(found: Interval | None, form: str) -> str:
    return "-" if found is None else in_markdown(format(found, form))


def _row(word: str, record: TrialRecord) -> str:
    seconds, error = record.values or (0.0, 0.0)
    epochs = _or_dash(record.recorded.epochs)
    word = ", ".join(filter(None, (word, record.runs_in_words)))
    return f"| {word} | {record.number} | {seconds:.3f} | {error:.4f} | {epochs} |"


def _or_dash(value: object) -> str:
    return "-" if value is None else in_markdown(value)


def _reason(recorded: Recorded) -> str:
    reason = recorded.failure or recorded.stopped_by or "no reason recorded"
    return in_markdown(reason)


# What is made for a page that is asked for every few seconds.


FRESH_S = 4.0
"""Additions younger than this are shown again as they are. A browser asks every few seconds."""
SHARE = 20
"""So are those younger than this many times what it took to make them:
watching is not to cost what it watches."""
NOTE = "dashboard:note_str:"
MAX_CHUNKS = 8
"""Of a stored note: those after the first are shown empty, because the first has all of it."""
BRIEF = 400
"""From this many trials on, their labels are their numbers:
every browser gets all of them again and again."""


@dataclass(slots=True)
class OwnStudies:
    """The studies of ours by their numbers, each opened once:
    what has a result is read only once.
    """

    database: Database
    forget: Callable[[], object] = lambda: None
    """What else is kept of studies by their numbers, and is of another one by now."""
    _opened: dict[int, OpenStudy] = field(default_factory=dict)

    def __call__(self, study_id: int) -> OpenStudy | None:
        """None for a study that is not tuner's, or is of another version: its trials can be shown
        all the same.
        """
        name = self.database.optuna.get_study_name_from_id(study_id)
        known = self._opened.get(study_id)
        if known is not None and known.name == name and known.is_there():
            return known
        self._opened.pop(study_id, None)
        if name in list_studies(self.database):
            with contextlib.suppress(TunerError):
                self._opened[study_id] = open_study(self.database, name)
                self.forget()
        return self._opened.get(study_id)


@dataclass(slots=True)
class _Made:
    attributes: dict[str, Any]
    until: float


@dataclass(slots=True)
class Additions:
    """Makes the additions to each study, and keeps them for a moment.
    `storage` has what Optuna has of studies.
    """

    database: Database
    storage: BaseStorage
    files: StudyFiles
    studies: OwnStudies = field(init=False)
    _made: dict[str, _Made] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.studies = OwnStudies(self.database)

    def __call__(self, study_id: int) -> Mapping[str, Any]:
        """System attributes by the names that optuna-dashboard reads;
        none for a study that is not tuner's.
        """
        with self._lock:  # two requests at once: the second takes what the first has made
            if (opened := self.studies(study_id)) is None:
                return {}
            made = self._made.get(opened.key())
            began = time.monotonic()
            if made is None or began > made.until:
                attributes = self._make(opened)
                now = time.monotonic()
                until = now + max(FRESH_S, SHARE * (now - began))
                made = self._made[opened.key()] = _Made(attributes, until)
            return made.attributes

    def _make(self, opened: OpenStudy) -> dict[str, Any]:
        study = snapshot(opened)
        results, verified = study.results, tuple(verified_in(study).values())
        alarms = alarms_of(opened, results)
        workers, recommended = opened.roster.working(), recommended_trial(study)
        return {
            **_figures(study, verified, recommended, alarms),
            **_note(
                self._stored_note(opened.study_id),
                _why(opened.definition.variant),
                standing(opened, results, verified, workers, recommended, alarms=alarms),
            ),
            **self.files.attributes(opened, results),
            "study:metric_names": list(map(with_unit, opened.definition.objectives)),
        }

    def _stored_note(self, study_id: int) -> str:
        attributes = self.storage.get_study_system_attrs(study_id)
        chunks = sum(key.startswith(NOTE) for key in attributes)
        return without_tags("".join(attributes[f"{NOTE}{index}"] for index in range(chunks)))


def without_tags(markdown: str) -> str:
    """A note as whoever may write into the database left it:
    without HTML, and without pictures from elsewhere.
    """
    return markdown.replace("<", "&lt;").replace("![", "!\\[")


def _why(variant: str) -> str:
    """What a built-in variant is, in the words of its study file;
    nothing for one of the user's own.
    """
    if variant not in builtin_variants():
        return ""
    file = load_study_file(variant)
    return f"### What `{variant}` is\n{' '.join(file.why.split())}\n\n{file.source}".rstrip()


def with_unit(objective: str) -> str:
    """An objective's name as an axis shows it, e.g. `wall_clock_s (seconds)`."""
    return f"{objective} ({'seconds' if objective.endswith('_s') else 'units of the data'})"


def _figures(
    study: StudySnapshot,
    verified: Sequence[Verified],
    recommended: int | None,
    alarms: Sequence[Alarm],
) -> dict[str, str]:
    results, variant = study.results, study.variant
    front = series.front_series(results, variant, verified=verified, recommended=recommended)
    trade = series.trade_series(results, variant)
    if len(results.records) >= BRIEF:
        front = replace(front, labels=[label.partition("<br>")[0] for label in front.labels])
        trade = replace(trade, labels=[label.partition("<br>")[0] for label in trade.labels])
    clock, error = axes([study])
    volume = series.volume_series(results, variant, series.common_reference([results]))
    figures = {
        "front": pareto_figure(
            [front], title="Front and default", censored=results.censored, clock=clock, error=error
        ),
        "curves": curves_figure(
            series.learning_curves(results, study.curves, recommended=recommended),
            title="Learning curves",
        ),
        "hypervolume": hypervolume_figure([volume], title="How the front grew"),
        "trade": trade_figure([trade], title="Epochs against seconds an epoch"),
        "throughput": throughput_figure(
            series.paces(results, study.curves, slowed=[alarm.trial for alarm in alarms]),
            title="Throughput over epochs",
        ),
    }
    return {
        f"dashboard:plot_data:{name}:0": figure.to_json()
        for name, figure in zip(in_order(list(figures)), figures.values(), strict=True)
    }


def in_order(names: Sequence[str]) -> list[str]:
    """The names, each with a number appended, such that a set of them has their order.

    optuna-dashboard shows figures in the order of a set of their names, which differs from one
    start to the next: the front would be anywhere.
    """
    for attempt in range(100_000):
        numbered = [f"{name}.{attempt}" for name in names]
        if list(set(numbered)) == numbered:
            return numbered
    return list(names)


def _note(*sections: str) -> dict[str, Any]:
    """All in one piece: only what is stored has to be cut."""
    text = "\n\n".join(section for section in sections if section)
    return {
        "dashboard:note_ver": 1,
        f"{NOTE}0": text,
        **{f"{NOTE}{index}": "" for index in range(1, MAX_CHUNKS)},
    }
