"""Studies while they run: a picture that refreshes on a terminal, plain lines anywhere else."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import rich.live

from tuner.display.terminal import Console, is_live, line, make_console
from tuner.errors import StudyGoneError
from tuner.report.terminal.live_picture import Look, duration, picture, worker_in_words
from tuner.storage.retry import DATABASE_FAILURES
from tuner.study.open import OpenStudy
from tuner.study.results import TrialRecord, read_results

REFRESH_S = 2.0
"""Looking costs CPU time, which on a CPU run is the workers' own: not more often than this."""
PLAIN_S = 30.0
"""Where nothing can be drawn over, a line so often."""
AWAY = "the database is away; waiting"

Studies = Callable[[], Sequence[OpenStudy]]


@dataclass(slots=True)
class Live(ABC):
    """Something that looks again when it is asked to, and shows what changed."""

    _next: float = field(default=0.0, init=False)

    def refresh(self) -> None:
        """Look, if the last look is old enough."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + REFRESH_S
        self.look()

    @abstractmethod
    def look(self) -> None:
        """Look now."""


@contextmanager
def live_view(
    opened: Sequence[OpenStudy] | Studies,
    *,
    stderr: bool = True,
    footer: str = "Ctrl-C stops cleanly",
    stay: bool = False,
    before_lines: Callable[[], None] = lambda: None,
) -> Iterator[Live]:
    """A picture of the studies on a terminal, plain lines where there is none.

    `opened` may be a function that finds them anew at each look. With `stay` the last picture is
    left standing. Lines are of what ends from now on; `before_lines` says what comes first.
    """
    studies = opened if callable(opened) else lambda: opened
    console = make_console(stderr=stderr)
    if not is_live(console):
        before_lines()
        with seen_to_the_end(_PlainLines(studies, console)) as lines:
            yield lines
        return
    with (
        rich.live.Live(console=console, auto_refresh=False, transient=not stay) as display,
        seen_to_the_end(_Picture(studies, console, display, footer)) as shown,
    ):
        yield shown


@contextmanager
def seen_to_the_end(view: Live) -> Iterator[Live]:
    """What ended since the last look is shown as well,
    unless it is Ctrl-C that ends the watching.
    """
    try:
        yield view
    except StudyGoneError:  # there is nothing left to look at
        raise
    except Exception:
        view.look()
        raise
    view.look()


@dataclass(slots=True)
class Meanwhile:
    """What trains, for whoever has read nothing for `PLAIN_S`. It is what workers have reported."""

    _next: float = field(default_factory=lambda: time.monotonic() + PLAIN_S)

    def said(self) -> None:
        """Something else was read."""
        self._next = time.monotonic() + PLAIN_S

    def lines(self, studies: Sequence[OpenStudy]) -> list[str]:
        """A line for each study with a training; none where it is too soon."""
        if time.monotonic() < self._next:
            return []
        self.said()
        return [words for each in studies if (words := _training(each))]


@dataclass(slots=True)
class _PlainLines(Live):
    """One line for each trial that ends."""

    studies: Studies
    console: Console
    _seen: dict[str, set[int]] = field(default_factory=dict)
    _away: bool = False
    _meanwhile: Meanwhile = field(default_factory=Meanwhile)

    def __post_init__(self) -> None:
        for each in self.studies():
            self._seen[each.name] = {
                r.number for r in read_results(each).records if r.state.is_finished()
            }

    def look(self) -> None:
        """Say what ended since the last look."""
        try:
            for each in self.studies():
                self._report(each)
            for words in self._meanwhile.lines(self.studies()):
                self._say(words)
            self._away = False
        except DATABASE_FAILURES:
            if not self._away:
                self._say(AWAY)
            self._away = True

    def _report(self, each: OpenStudy) -> None:
        results = read_results(each)
        seen = self._seen.setdefault(each.name, set())
        fresh = [r for r in results.records if r.state.is_finished() and r.number not in seen]
        if not fresh:
            return
        budget = each.ledger.counts().budget
        for record in fresh:
            seen.add(record.number)
            self._say(f"{each.name} {len(seen)}/{budget}: {in_one_line(record)}")

    def _say(self, words: str) -> None:
        self._meanwhile.said()
        self.console.print(words, soft_wrap=True)


def _training(study: OpenStudy) -> str:
    busy = [each for each in study.roster.working() if each.trial_number is not None]
    if not busy:
        return ""
    look = Look(study.name, study.ledger.counts(), read_results(study), tuple(busy))
    left = ""
    if look.seconds_left is not None and look.counts.left:
        left = f", about {duration(look.seconds_left)} left"
    elif (most_s := _most_left_s(study, busy[0].trial_number)) is not None:
        left = f", at most {duration(most_s)} left of it"
    more = f" ({len(busy) - 1} more train)" if len(busy) > 1 else ""
    done = f"{look.counts.finished}/{look.counts.budget}"
    return f"{study.name} {done}: {worker_in_words(busy[0])}{left}{more}"


def _most_left_s(study: OpenStudy, trial: int | None) -> float | None:
    """To the limit of epochs, by the pace of those that the trial has; it may end before."""
    epochs = () if trial is None else study.epochs.of_trial(trial)
    if not epochs:
        return None
    last, most = epochs[-1], study.definition.training.max_epochs
    seeds_left = study.definition.seeds_per_trial - 1 - last.repeat
    return last.elapsed_s / last.epoch * (most - last.epoch + most * seeds_left)


def in_one_line(record: TrialRecord) -> str:
    """How a trial ended, e.g. `trial 3 converged: 5.731 s, MQL 0.9848, 29 epochs`."""
    what = (
        f"{record.values[0]:.3f} s, MQL {record.values[1]:.4f}, {record.recorded.epochs} epochs"
        if record.values
        else record.recorded.failure or "failed"
    )
    return f"trial {record.number} {record.recorded.stopped_by}: {what}"


@dataclass(slots=True)
class _Picture(Live):
    studies: Studies
    console: Console
    display: rich.live.Live
    footer: str

    def look(self) -> None:
        """Draw the studies as they are."""
        try:
            looks = [Look.at(each) for each in self.studies()]
            self.display.update(picture(looks, self.console, footer=self.footer), refresh=True)
        except DATABASE_FAILURES:
            self.display.update(line(AWAY, style="yellow"), refresh=True)
