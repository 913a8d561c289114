"""What tuner adds to a study in the dashboard: figures, a note that says where it stands, files, names with units."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import optuna
from optuna.storages import BaseStorage

from tuner.dashboard.files import StudyFiles
from tuner.errors import TunerError
from tuner.figures import (
    Subject,
    common_reference,
    front_series,
    learning_curves,
    of_study,
    spans_of,
    trade_series,
    volume_series,
)
from tuner.plots import (
    curves_figure,
    hypervolume_figure,
    pareto_figure,
    table_figure,
    timeline_figure,
    trade_figure,
)
from tuner.storage import Database, Stint, WorkerRow
from tuner.study import builtin_variants, list_studies, load_study_file, open_study
from tuner.study.standing import standing
from tuner.study.verified import Verified

FRESH_S = 4.0
"""Additions younger than this are shown again as they are. A browser asks every few seconds."""
SHARE = 20
"""So are those younger than this many times what it took to make them: watching is not to cost what it watches."""
NOTE = "dashboard:note_str:"
MAX_CHUNKS = 8
"""Of a stored note: those after the first are shown empty, because the first has all of it."""
TIMELINE = 300
"""Attempts that the timeline shows, the latest ones."""
BRIEF = 400
"""From this many trials on, their labels are their numbers: every browser gets all of them again and again."""


@dataclass(slots=True)
class _Made:
    attributes: dict[str, Any]
    until: float


@dataclass(slots=True)
class Additions:
    """Makes the additions to each study, and keeps them for a moment. `storage` is where trials are read."""

    database: Database
    storage: BaseStorage
    files: StudyFiles
    _made: dict[int, _Made] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, study_id: int) -> Mapping[str, Any]:
        """System attributes by the names that optuna-dashboard reads; none for a study that is not tuner's."""
        with self._lock:  # two requests at once: the second takes what the first has made
            made = self._made.get(study_id)
            began = time.monotonic()
            if made is None or began > made.until:
                attributes = self._make(study_id)
                now = time.monotonic()
                made = self._made[study_id] = _Made(attributes, now + max(FRESH_S, SHARE * (now - began)))
            return made.attributes

    def _make(self, study_id: int) -> dict[str, Any]:
        name = self.storage.get_study_name_from_id(study_id)
        if name not in list_studies(self.database):
            return {}
        try:
            opened = open_study(self.database, name)
        except TunerError:  # of another version: its trials can be shown all the same
            return {}
        opened = replace(opened, optuna=optuna.load_study(study_name=name, storage=self.storage))
        subject = of_study(opened)
        results, verified = subject.results, subject.verified()
        workers = opened.roster.working()
        return {
            **_figures(subject, opened.definition.variant, verified, workers),
            **_note(
                self._stored_note(study_id),
                _why(opened.definition.variant),
                standing(opened, results, verified, workers),
            ),
            **self.files.attributes(opened, results),
            "study:metric_names": [with_unit(objective) for objective in opened.definition.objectives],
        }

    def _stored_note(self, study_id: int) -> str:
        attributes = self.storage.get_study_system_attrs(study_id)
        chunks = sum(key.startswith(NOTE) for key in attributes)
        return "".join(attributes[f"{NOTE}{index}"] for index in range(chunks))


def _why(variant: str) -> str:
    """What a built-in variant is, in the words of its study file; nothing for one of the user's own."""
    if variant not in builtin_variants():
        return ""
    file = load_study_file(variant)
    return f"### What `{variant}` is\n{' '.join(file.why.split())}\n\n{file.source}".rstrip()


def with_unit(objective: str) -> str:
    """An objective's name as an axis shows it, e.g. `wall_clock_s (seconds)`."""
    return f"{objective} (seconds)" if objective.endswith("_s") else f"{objective} (units of the data)"


def _figures(
    subject: Subject, variant: str, verified: Sequence[Verified], workers: Sequence[WorkerRow]
) -> dict[str, str]:
    results = subject.results
    front, trade = front_series(results, variant, verified=verified), trade_series(results, variant)
    if len(results.records) >= BRIEF:
        front = replace(front, labels=[label.partition("<br>")[0] for label in front.labels])
        trade = replace(trade, labels=[label.partition("<br>")[0] for label in trade.labels])
    volume = volume_series(results, variant, common_reference([results]))
    history = subject.history()
    figures = {
        "front": pareto_figure([front], title="Front and default", censored=results.censored),
        "curves": curves_figure(learning_curves(results, subject.curves), title="Learning curves"),
        "workers": table_figure(_worker_rows(workers), title="At work now")
        if workers
        else table_figure(_past_rows(history), title="Who was at work", empty="nobody was at work yet"),
        "hypervolume": hypervolume_figure([volume], title="How the front grew"),
        "trade": trade_figure([trade], title="Epochs against seconds an epoch"),
        "timeline": timeline_figure(spans_of(history[-TIMELINE:]), title="Who did what when"),
    }
    return {
        f"dashboard:plot_data:{name}:0": figure.to_json()
        for name, figure in zip(in_order(list(figures)), figures.values(), strict=True)
    }


def in_order(names: Sequence[str]) -> list[str]:
    """The names, each with a number appended, such that a set of them has their order.

    optuna-dashboard shows figures in the order of a set of their names, which differs from one start to the next:
    the front would be anywhere.
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
    """Who worked on the study, the latest first: attempts, those that brought a result, and until when."""
    ended = {worker: max(s.ended for s in history if s.worker == worker) for worker in {s.worker for s in history}}
    return [
        {
            "worker": worker,
            "attempts": str(sum(stint.worker == worker for stint in history)),
            "finished": str(sum(stint.worker == worker and stint.state == "finished" for stint in history)),
            "until (UTC)": time.strftime("%Y-%m-%d %H:%M", time.gmtime(ended[worker])),
        }
        for worker in sorted(ended, key=lambda worker: (-ended[worker], worker))
    ]


def _note(*sections: str) -> dict[str, Any]:
    """All in one piece: only what is stored has to be cut."""
    text = "\n\n".join(section for section in sections if section)
    return {"dashboard:note_ver": 1, f"{NOTE}0": text, **{f"{NOTE}{index}": "" for index in range(1, MAX_CHUNKS)}}


def read_ahead(additions: Callable[[int], object], storage: BaseStorage) -> None:
    """Read all studies once, so that who opens the first page need not wait for thousands of trials."""
    for study in storage.get_all_studies():
        number = study._study_id  # noqa: SLF001
        storage.get_all_trials(number, deepcopy=False)
        additions(number)
