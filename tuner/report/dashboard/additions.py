"""What tuner adds to a study in the dashboard: figures, a note that says where it stands, files,
names with units.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optuna.storages import BaseStorage
from optuna.trial import TrialState

from tuner.display.text import in_markdown
from tuner.errors import TunerError
from tuner.record import Recorded
from tuner.report.dashboard.downloads import StudyFiles
from tuner.report.figures import series
from tuner.report.figures.curves import throughput_figure
from tuner.report.figures.draw import draw
from tuner.report.figures.style import in_both_themes, titled
from tuner.report.overview import CAPTIONS
from tuner.report.study_status import Alarm, alarms_of, in_lines
from tuner.spec.study_file import builtin_variants, load_study_file
from tuner.storage.database import Database
from tuner.study.open import OpenStudy, list_studies, open_study
from tuner.study.results import StudyResults
from tuner.study.snapshot import StudySnapshot, snapshot

# Where a study stands, in words: what the dashboard shows below the note that says what the study
# is.


_REPEATED = (
    "A configuration with several runs is one point, under its first trial's number: the medians "
    "of their seconds and of their MQL. optuna-dashboard's own plots draw each run for itself, and "
    "its own front is that of the luckiest."
)


def standing(opened: OpenStudy, results: StudyResults, *, alarms: Sequence[Alarm] = ()) -> str:
    """Where the study stands at this moment, and where its answer is. Markdown."""
    counts = opened.ledger.counts()
    failed = [record for record in results.records if record.state == TrialState.FAIL]
    tally = [f"{counts.finished} of {counts.budget} trials finished"]
    pruned = results.of_state(TrialState.PRUNED)
    for number, word in ((counts.running, "running"), (pruned, "pruned"), (len(failed), "failed")):
        tally += [f"{number} {word}"] if number else []
    lines = [
        "### Where it stands",
        f"{', '.join(tally)}. Device: {in_markdown(opened.device_model() or 'none yet')}.",
        "",
        f"[The answer, and what trains now](/study/{opened.study_id})",
    ]
    if results.repeated:
        lines += ["", _REPEATED]
    if alarms:
        lines += ["", "Throughput fell:"]
        lines += [f"- {in_markdown(line)}" for line in in_lines(alarms)]
    if failed:
        lines += ["", "Failures:"]
        lines += [f"- trial {r.number}: {_reason(r.recorded)}" for r in failed[-10:]]
    return "\n".join(lines)


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
FIGURES = ("front", "curves", "hypervolume", "trade", "throughput")
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
class Additions:
    """Makes the additions to each study, and keeps them for a moment.
    `storage` has what Optuna has of studies.
    """

    database: Database
    storage: BaseStorage
    files: StudyFiles
    studies: OwnStudies = field(init=False)
    _made: dict[str, tuple[dict[str, Any], float]] = field(default_factory=dict)
    """By study, and until when it is shown as it is."""
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
            attributes, until = self._made.get(opened.key(), ({}, -math.inf))
            began = time.monotonic()
            if began > until:
                attributes = self._make(opened)
                now = time.monotonic()
                until = now + max(FRESH_S, SHARE * (now - began))
                self._made[opened.key()] = attributes, until
            return attributes

    def _make(self, opened: OpenStudy) -> dict[str, Any]:
        study = snapshot(opened)
        results = study.results
        alarms = alarms_of(opened, results)
        return {
            **_figures(study, alarms),
            **_note(
                self._stored_note(opened.study_id),
                _why(opened.definition.variant),
                standing(opened, results, alarms=alarms),
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


def _figures(study: StudySnapshot, alarms: Sequence[Alarm]) -> dict[str, str]:
    slowed = series.paces(study.results, study.curves, slowed=[alarm.trial for alarm in alarms])
    figures = {kind: draw(kind, [study]) for kind in FIGURES}
    figures["throughput"] = throughput_figure(slowed)  # of those at work, too
    for kind, figure in figures.items():
        titled(figure, CAPTIONS[kind][0])
        for trace in figure.data if len(study.results.records) >= BRIEF else ():
            trace.text = trace.text and [text.partition("<br>")[0] for text in trace.text]
    return {
        f"dashboard:plot_data:{name}:0": in_both_themes(figure).to_json()
        for name, figure in zip(in_order(FIGURES), figures.values(), strict=True)
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
