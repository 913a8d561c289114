"""The dashboard's first page, and a page for each study: what tuner makes of the database, before
optuna-dashboard's own pages.

A browser polls one fragment. What is behind it is read in a thread, only while somebody looks, and
never for more than a small share of the time: watching is not to cost what it watches.
"""

from __future__ import annotations

import functools
import hashlib
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sqlalchemy import func, select

from tuner.errors import TunerError
from tuner.report.dashboard.additions import FRESH_S, SHARE, OwnStudies
from tuner.report.figures.draw import draw, fronts
from tuner.report.figures.style import in_both_themes
from tuner.report.overview import (
    CAPTIONS,
    Answer,
    Overview,
    StudyLine,
    answers_of,
    job_of,
    live_line,
    reference_first,
    with_looks,
)
from tuner.report.pages import FOLDER, rendered
from tuner.storage.database import Database
from tuner.storage.optuna.private import study_id_of
from tuner.storage.optuna.trials import OtherStudy, reading, studies_of_others
from tuner.storage.retry import DATABASE_FAILURES
from tuner.storage.schema import OF_A_VARIANT, studies, work
from tuner.study.open import OpenStudy
from tuner.study.snapshot import StudySnapshot, snapshot

WAIT_S = 0.4
"""A page that is asked for waits so long for what is new."""
LONGEST_S = 15.0
"""What is shown is never older, while somebody looks."""
STILL = "is still being read"
_FIGURE = re.compile(r"/tuner/figure/([0-9a-f]{12}|s[0-9]{1,10})/([a-z]+)")
_STUDY = re.compile(r"/study/([0-9]{1,10})")
_FRAGMENT = re.compile(r"/tuner/fragment(?:/([0-9]{1,10}))?")
_FILES = {
    "/tuner/page.css": ("page.css", "text/css; charset=utf-8"),
    "/tuner/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
HTML = "text/html; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Served:
    """What a question gets."""

    body: bytes
    kind: str
    tag: str


@dataclass(frozen=True, slots=True)
class _Known:
    """A study as it was read."""

    stamp: object
    opened: OpenStudy
    study: StudySnapshot


@dataclass(slots=True)
class FirstPage:
    """Answers paths of its own; of any other one None."""

    database: Database
    studies: OwnStudies
    _known: dict[int, _Known] = field(default_factory=dict)
    _lines: dict[int, StudyLine] = field(default_factory=dict)
    _seen: Overview = field(default_factory=lambda: Overview(answers=(), lines=(), reading=1))
    _versions: dict[str, str] = field(default_factory=dict)
    """Of each job or study, what its figures are of."""
    _figures: dict[tuple[str, str], tuple[str, bytes]] = field(default_factory=dict)
    _asked: threading.Event = field(default_factory=threading.Event)
    _fresh: threading.Condition = field(default_factory=threading.Condition)
    _failed: bool = False
    _read_at: float = float("-inf")

    # -- what a browser asks -----------------------------------------------------------------------

    def __call__(self, path: str) -> Served | None:
        """The page, fragment, figure or file of that path.

        Raises:
            TunerError: the database cannot be read right now.
            KeyError: there is no such study.
        """
        if path in _FILES:
            name, kind = _FILES[path]
            return _served((FOLDER / name).read_bytes(), kind)
        if path == "/tuner/plotly.js":
            return _plotly()
        if found := _FIGURE.fullmatch(path):
            return self._figure(found[1], found[2])
        if found := _FRAGMENT.fullmatch(path):
            self._ask()
            return _served(self._fragment(found[1]).encode(), HTML)
        if path == "" or (found := _STUDY.fullmatch(path)):
            self._ask()
            return self._page(found[1] if found else None)
        return None

    def _page(self, number: str | None) -> Served:
        fragment = self._fragment(number)
        pages = [("optuna-dashboard: all studies", "/dashboard")]
        name = Path(self.database.address.url.database or "").name
        title, where = f"What the searches in {name} found", "/tuner/fragment"
        if number is not None:
            title, where = self._lines[int(number)].name, f"/tuner/fragment/{number}"
            of = f"/dashboard/studies/{number}"
            pages = [("All studies", "/"), ("optuna-dashboard: history", of)]
            for name, part in (("trials", "trials"), ("table", "trialTable"), ("note", "note")):
                pages.append((name, f"{of}/{part}"))
        said = {"title": title, "pages": pages, "fragment": fragment, "from_": where}
        tag = _tag(fragment.encode())
        return _served(rendered("live.html", tag=f'"{tag}"', **said).encode(), HTML)

    def _fragment(self, number: str | None) -> str:
        if self._failed:
            raise TunerError("the database cannot be read right now")
        if number is None:
            return rendered("fragment.html", versions=self._versions, **self._seen.as_dict())
        line = self._lines[int(number)]
        line = next((each for each in self._seen.lines if each.number == line.number), line)
        known = self._known.get(int(number))
        if known is None:
            one = Answer(heading=line.name, sentences=(f"{line.name} {STILL}.",))
            return rendered("study.html", one=one, lines=[line], figures=[])
        (one,) = answers_of([known.study])
        version = self._versions[f"s{number}"]
        where = f"/tuner/figure/s{number}/{{}}?v={version}"
        kinds = [kind for kind in CAPTIONS if kind != "confirmed" or kind == one.figure]
        figures = [(*CAPTIONS[kind], where.format(kind)) for kind in kinds]
        return rendered("study.html", one=one, lines=[line], figures=figures)

    def _figure(self, key: str, kind: str) -> Served | None:
        if kind not in CAPTIONS:
            return None
        version = self._versions.get(key)
        known = self._figures.get((key, kind))
        if known is None or known[0] != version:
            if key.startswith("s"):
                found = [self._known[int(key[1:])].study]
            else:
                found = [k.study for k in self._known.values() if job_of(k.study)[1] == key]
            if not found:
                return None
            # What is recommended takes a model of each study: of one it is worth waiting for.
            found = reference_first(found)
            figure = fronts(found) if kind == "front" and len(found) > 1 else draw(kind, found)
            known = version or "", in_both_themes(figure).to_json().encode()
            self._figures[key, kind] = known
        return _served(known[1], "application/json")

    # -- what is read ------------------------------------------------------------------------------

    def _ask(self) -> None:
        """Have it read, and wait a moment where what is known is old."""
        self._asked.set()
        if time.monotonic() - self._read_at > FRESH_S:
            with self._fresh:
                self._fresh.wait(WAIT_S)

    def watch(self) -> None:
        """Read whenever somebody has asked, for ever: the work of a thread."""
        self._asked.set()  # at once, while the browser opens
        while True:
            self._asked.wait()
            self._asked.clear()
            began = time.monotonic()
            try:
                self._read()
                self._failed = False
            except (*DATABASE_FAILURES, TunerError):
                self._failed = True
            self._read_at = time.monotonic()
            with self._fresh:
                self._fresh.notify_all()
            # What it took to read everything once says nothing of what has changed since.
            time.sleep(min(max(FRESH_S / 2, SHARE * (self._read_at - began)), LONGEST_S))

    def _read(self) -> None:
        """Each study that has changed; the page fills while that goes on."""
        stamps, budgets = self._stamps()
        every = self.database.optuna.get_all_studies()
        named = {study_id_of(each): each for each in every}
        own = [number for number in budgets if number in named]
        for number in [each for each in self._known if each not in own]:
            del self._known[number]
            self._lines.pop(number, None)
        names = [each.study_name for key, each in named.items() if key in budgets]
        others = studies_of_others(self.database.engine, names)
        unreadable: dict[str, str] = {}
        left = [number for number in own if self._stamp_of(number) != stamps.get(number)]
        for number in own:
            if number not in self._lines:
                finished, running = _counted(stamps.get(number, ()))
                self._lines[number] = StudyLine(
                    name=named[number].study_name, variant="", task="", search="",
                    state="searches" if running else STILL, finished=finished,
                    budget=budgets[number], number=number,
                )  # fmt: skip
        self._say(own, others, unreadable, reading=len(left))
        for number in own:
            try:
                self._read_one(number, stamps.get(number))
            except TunerError as error:
                unreadable[named[number].study_name] = str(error)
                self._known.pop(number, None)
            if number in left:
                left.remove(number)
                self._say(own, others, unreadable, reading=len(left), answers=not left)
        self._say(own, others, unreadable, reading=0, answers=True)

    def _stamp_of(self, number: int) -> object:
        return self._known[number].stamp if number in self._known else None

    def _read_one(self, number: int, stamp: object) -> None:
        opened = self.studies(number)
        if opened is None:
            raise TunerError("it is of another version of tuner")
        known = self._known.get(number)
        if known is None or known.stamp != stamp or known.opened is not opened:
            study = snapshot(opened).with_runs_read()
            known = self._known[number] = _Known(stamp, opened, study)
            told = hashlib.sha256(repr((opened.key(), stamp)).encode()).hexdigest()[:12]
            self._versions[f"s{number}"] = told
        self._lines[number] = live_line(known.study, opened, opened.ledger.counts())

    def _say(
        self,
        own: Sequence[int],
        others: Sequence[OtherStudy],
        unreadable: Mapping[str, str],
        *,
        reading: int,
        answers: bool = False,
    ) -> None:
        told: Sequence[Answer] = self._seen.answers
        if answers:
            read = [self._known[number].study for number in own if number in self._known]
            told = answers_of(read)
            for each in told:
                parts = [self._versions[f"s{k}"] for k in own if k in self._known
                         and job_of(self._known[k].study)[1] == each.key]  # fmt: skip
                self._versions[each.key] = hashlib.sha256("".join(parts).encode()).hexdigest()[:12]
        lines = with_looks([self._lines[number] for number in own if number in self._lines])
        self._seen = Overview(
            answers=told, lines=lines, others=others, unreadable=dict(unreadable), reading=reading
        )

    def _stamps(self) -> tuple[dict[int, Any], dict[int, int]]:
        """Of each of our studies what changes with its trials and runs, and its budget."""
        c = work.c
        kinds = (c.study_id, c.kind, c.state)
        query = select(*kinds, func.count(), func.max(c.work_id)).group_by(*kinds)
        asked = select(studies.c.study_id, studies.c.budget).where(OF_A_VARIANT)
        asked = asked.order_by(studies.c.study_id)
        stamps: dict[int, Any] = {}
        with reading(self.database.engine) as connection:
            for number, *rest in connection.execute(query):
                stamps.setdefault(number, []).append(tuple(rest))
            budgets = {row.study_id: row.budget for row in connection.execute(asked)}
        return {number: tuple(sorted(rows)) for number, rows in stamps.items()}, budgets


def _counted(stamp: Sequence[tuple[str, str, int, int]]) -> tuple[int, int]:
    """Trials that have finished, and that run."""
    of = {state: many for kind, state, many, _ in stamp if kind == "trial"}
    return of.get("finished", 0), of.get("running", 0)


def _tag(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()[:16]


def _served(body: bytes, kind: str) -> Served:
    return Served(body, kind, _tag(body))


@functools.cache
def _plotly() -> Served:
    """Plotly's script, from its own package."""
    import plotly

    script = Path(plotly.__file__).parent / "package_data" / "plotly.min.js"
    return _served(script.read_bytes(), "text/javascript; charset=utf-8")


Pages = Callable[[str], Served | None]
