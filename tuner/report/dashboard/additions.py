"""What tuner adds to a study in the dashboard: figures, a note that says where it stands, files,
names with units.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from optuna.storages import BaseStorage

from tuner.display.text import in_code
from tuner.errors import TunerError
from tuner.report.alarms import Alarm, alarms_of
from tuner.report.dashboard.downloads import StudyFiles
from tuner.report.figures.curves import curves_figure, hypervolume_figure, throughput_figure
from tuner.report.figures.draw import axes
from tuner.report.figures.front import pareto_figure
from tuner.report.figures.series import (
    common_reference,
    front_series,
    learning_curves,
    paces,
    spans_of,
    trade_series,
    volume_series,
)
from tuner.report.figures.timeline import table_figure, timeline_figure
from tuner.report.figures.trade import trade_figure
from tuner.report.standing import standing
from tuner.spec.study_file import builtin_variants, load_study_file
from tuner.storage.database import Database
from tuner.storage.optuna.private import study_id_of
from tuner.storage.queue.claims import Stint
from tuner.storage.queue.roster import WorkerRow
from tuner.study.open import OpenStudy, list_studies, open_study
from tuner.study.snapshot import StudySnapshot, snapshot
from tuner.verdict.same_quality import recommended_trial
from tuner.verdict.verified import Verified, verified_in

# What each study recommends, for a page that is asked for every few seconds.


KEPT_FOR = 50
"""What took so long to find is kept for so many times as long at least: it takes seconds, and a
trial more seldom changes it."""


@dataclass(frozen=True, slots=True)
class _Found:
    trial: int | None
    of: Hashable
    until: float


@dataclass(slots=True)
class Recommended:
    """The trial that a study recommends, kept while the study is as it was, and for a while."""

    _found: dict[str, _Found] = field(default_factory=dict)

    def __call__(self, key: str, study: StudySnapshot) -> int | None:
        """None while there is none. `key` is the study's: what no other has."""
        complete = len(study.results.complete)
        ran_again = sum(run.result is not None for run in study.runs)
        now_of = (complete, ran_again, study.policy, study.results.reference)
        known, began = self._found.get(key), time.monotonic()
        if known is not None and (known.of == now_of or began < known.until):
            return known.trial
        trial = recommended_trial(study)
        took = time.monotonic() - began
        self._found[key] = _Found(trial, now_of, began + KEPT_FOR * took)
        return trial


FRESH_S = 4.0
"""Additions younger than this are shown again as they are. A browser asks every few seconds."""
SHARE = 20
"""So are those younger than this many times what it took to make them:
watching is not to cost what it watches."""
NOTE = "dashboard:note_str:"
MAX_CHUNKS = 8
"""Of a stored note: those after the first are shown empty, because the first has all of it."""
TIMELINE = 300
"""Attempts that the timeline shows, the latest ones."""
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
    _recommended: Recommended = field(default_factory=Recommended)
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
                made = self._made[opened.key()] = _Made(
                    attributes, now + max(FRESH_S, SHARE * (now - began))
                )
            return made.attributes

    def _make(self, opened: OpenStudy) -> dict[str, Any]:
        study = snapshot(opened)
        results, verified = study.results, tuple(verified_in(study).values())
        alarms = alarms_of(opened, results)
        workers, recommended = opened.roster.working(), self._recommended(opened.key(), study)
        return {
            **_figures(study, verified, workers, recommended, alarms),
            **_note(
                self._stored_note(opened.study_id),
                _why(opened.definition.variant),
                standing(opened, results, verified, workers, recommended, alarms=alarms),
            ),
            **self.files.attributes(opened, results),
            "study:metric_names": [
                with_unit(objective) for objective in opened.definition.objectives
            ],
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
    return f"### What {in_code(variant)} is\n{' '.join(file.why.split())}\n\n{file.source}".rstrip()


def with_unit(objective: str) -> str:
    """An objective's name as an axis shows it, e.g. `wall_clock_s (seconds)`."""
    return (
        f"{objective} (seconds)" if objective.endswith("_s") else f"{objective} (units of the data)"
    )


def _figures(
    study: StudySnapshot,
    verified: Sequence[Verified],
    workers: Sequence[WorkerRow],
    recommended: int | None,
    alarms: Sequence[Alarm],
) -> dict[str, str]:
    results, variant = study.results, study.variant
    front = front_series(results, variant, verified=verified, recommended=recommended)
    trade = trade_series(results, variant)
    if len(results.records) >= BRIEF:
        front = replace(front, labels=[label.partition("<br>")[0] for label in front.labels])
        trade = replace(trade, labels=[label.partition("<br>")[0] for label in trade.labels])
    clock, error = axes([study])
    volume = volume_series(results, variant, common_reference([results]))
    history = study.attempts()
    figures = {
        "front": pareto_figure(
            [front], title="Front and default", censored=results.censored, clock=clock, error=error
        ),
        "curves": curves_figure(
            learning_curves(results, study.curves, recommended=recommended), title="Learning curves"
        ),
        "workers": table_figure(_worker_rows(workers), title="At work now")
        if workers
        else table_figure(
            _past_rows(history), title="Who was at work", empty="nobody was at work yet"
        ),
        "hypervolume": hypervolume_figure([volume], title="How the front grew"),
        "trade": trade_figure([trade], title="Epochs against seconds an epoch"),
        "throughput": throughput_figure(
            paces(results, study.curves, slowed=[alarm.trial for alarm in alarms]),
            title="Throughput over epochs",
        ),
        "timeline": timeline_figure(
            spans_of(history[-TIMELINE:], study.name), title="Who did what when"
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


def _worker_rows(workers: Sequence[WorkerRow]) -> list[dict[str, str]]:
    return [
        {
            "worker": worker.worker,
            "device": worker.device,
            "trial": "-" if worker.trial_number is None else str(worker.trial_number),
            "epoch": "-" if worker.epoch is None else str(worker.epoch),
            "validation loss": "-" if worker.val_loss is None else f"{worker.val_loss:.4f}",
            "last heard": f"{worker.silent_s:.0f} s ago",
        }
        for worker in workers
    ]


def _past_rows(history: Sequence[Stint]) -> list[dict[str, str]]:
    """Who worked on the study, the latest first:
    attempts, those that brought a result, and until when.
    """
    ended = {
        worker: max(s.ended for s in history if s.worker == worker)
        for worker in {s.worker for s in history}
    }
    return [
        {
            "worker": worker,
            "attempts": str(sum(stint.worker == worker for stint in history)),
            "finished": str(
                sum(stint.worker == worker and stint.state == "finished" for stint in history)
            ),
            "until (UTC)": time.strftime("%Y-%m-%d %H:%M", time.gmtime(ended[worker])),
        }
        for worker in sorted(ended, key=lambda worker: (-ended[worker], worker))
    ]


def _note(*sections: str) -> dict[str, Any]:
    """All in one piece: only what is stored has to be cut."""
    text = "\n\n".join(section for section in sections if section)
    return {
        "dashboard:note_ver": 1,
        f"{NOTE}0": text,
        **{f"{NOTE}{index}": "" for index in range(1, MAX_CHUNKS)},
    }


def read_ahead(additions: Callable[[int], object], storage: BaseStorage) -> None:
    """Read all studies once, so that who opens the first
    page need not wait for thousands of trials.
    """
    for study in storage.get_all_studies():
        number = study_id_of(study)
        storage.get_all_trials(number, deepcopy=False)
        additions(number)
