"""What people see of a retune: one line for each stage, and at the end the verdict in sentences."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

import rich.live

from tuner.display.terminal import Console, is_live, line, make_console
from tuner.report import comparison_files as files
from tuner.report.terminal.live import PLAIN_S, Meanwhile
from tuner.storage.retry import DATABASE_FAILURES
from tuner.study.open import OpenStudy
from tuner.verdict.compare.findings import Report
from tuner.verdict.compare.short_answer import ANSWER

COST = "What it cost, and what it gives"


@dataclass(slots=True)
class StageLines:
    """On a terminal the line of the stage that is under way is drawn over; elsewhere it is printed
    now and then. What is over stays.
    """

    console: Console = field(default_factory=lambda: make_console(stderr=True))
    _display: rich.live.Live | None = None
    _last: str = ""
    _next: float = 0.0
    _meanwhile: Meanwhile = field(default_factory=Meanwhile)

    @contextmanager
    def live(self) -> Iterator[None]:
        """Draw over the line as long as the context lasts, where that can be done."""
        if not is_live(self.console):
            yield
            return
        with rich.live.Live(console=self.console, auto_refresh=False, transient=True) as display:
            self._display = display
            try:
                yield
            finally:
                self._display = None

    def show(self, words: str, *, stays: bool) -> None:
        """A stage stands so; `stays`: it is over, or begins."""
        if stays or self._display is None:
            if stays or (time.monotonic() >= self._next and words != self._last):
                self._last, self._next = words, time.monotonic() + PLAIN_S
                self._meanwhile.said()
                self.console.print(words, soft_wrap=True)
        else:
            self._display.update(line(words), refresh=True)

    def trains(self, studies: Sequence[OpenStudy]) -> None:
        """What does meanwhile, where the stage has nothing new to say."""
        if self._display is None:
            with suppress(*DATABASE_FAILURES):
                for words in self._meanwhile.lines(studies):
                    self.console.print(words, soft_wrap=True)


def verdict_sections(report: Report, lines: Sequence[str]) -> list[tuple[str, list[str]]]:
    """What a retune ends with, by titles: sentences of the comparison, and what it cost."""
    missing = [f"{each}." for each in nothing_recommended(report)]
    cost = [f"{each}." for each in lines]
    ends = [("Nothing recommended", missing), (COST, cost)]
    parts = [(ANSWER, list(report.answer)), *files.sections_of(report), *ends]
    return [(title, told) for title, told in parts if told]


def nothing_recommended(report: Report) -> list[str]:
    """Why studies have no confirmation, a sentence each."""
    from tuner.verdict.same_quality import answer_of

    confirmed = {each.confirmation.study for each in report.confirmed}
    found = []
    for study in report.studies:
        if study.name not in confirmed:
            answer = answer_of(study)
            why = answer if isinstance(answer, str) else "its confirmation has no runs"
            found.append(f"{study.name}: {why}")
    return found
