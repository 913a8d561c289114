"""Studies while they run: a picture that refreshes on a terminal, plain lines anywhere else."""

from __future__ import annotations

import itertools
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import rich.live
from optuna.trial import TrialState
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table

from tuner.display.terminal import Console, is_live, line, make_console
from tuner.errors import StudyGoneError
from tuner.report.figures.series import volume_series
from tuner.report.figures.style import spread
from tuner.report.study_status import Alarm, alarms_of, duration, in_lines, seconds_left
from tuner.report.terminal.tables import trials_table
from tuner.report.terminal.trial_sections import sparkline
from tuner.storage.queue.roster import WorkerRow
from tuner.storage.records import Counts
from tuner.storage.retry import DATABASE_FAILURES
from tuner.study.open import OpenStudy
from tuner.study.results import StudyResults, TrialRecord, read_results

# How one study looks while it is watched: a bar, its front, the trend of its hypervolume,
# workers, failures.


HEADINGS = 8
"""Columns that the parts' names have."""
SPARK_WIDTH = 24
BESIDE_SPARK = 45
"""Columns that the words beside the trend need: heading, value, and how long ago it last grew."""
FRONT_ROWS = (2, 8)
"""Rows of the front that a study gets at least and at most;
between them, what the terminal's height allows."""
WORKER_ROWS = 8
FAILURE_ROWS = 3


@dataclass(frozen=True, slots=True)
class Look:
    """A study at one moment."""

    name: str
    counts: Counts
    results: StudyResults
    workers: tuple[WorkerRow, ...]
    alarms: tuple[Alarm, ...] = ()

    @staticmethod
    def at(opened: OpenStudy) -> Look:
        results = read_results(opened)
        counts, workers = opened.ledger.counts(), opened.roster.working()
        return Look(opened.name, counts, results, workers, alarms_of(opened, results))


def picture(looks: Sequence[Look], console: Console, *, footer: str = "") -> RenderableType:
    """All studies below each other, as wide as the terminal, and as high where that is possible."""
    others = sum(
        5
        + min(len(look.workers), WORKER_ROWS)
        + min(look.results.of_state(TrialState.FAIL), FAILURE_ROWS)
        + len(in_lines(look.alarms))
        for look in looks
    )
    rows = (console.height - others - 2) // max(len(looks), 1)
    rows = min(max(rows, FRONT_ROWS[0]), FRONT_ROWS[1])
    parts: list[RenderableType] = []
    for look in looks:
        parts += [_head(look, console), _body(look, console, front_rows=rows), ""]
    parts.append(line(_last_line(looks, footer), style="dim"))
    return Group(*parts)


def _head(look: Look, console: Console) -> RenderableType:
    counts = look.counts
    head = Table.grid(expand=True, padding=(0, 1))
    head.add_column(no_wrap=True, overflow="ellipsis", style="bold", max_width=console.width // 2)
    head.add_column(ratio=1)
    head.add_column(no_wrap=True, justify="right")
    bar = ProgressBar(total=max(counts.budget, 1), completed=counts.finished, complete_style="cyan")
    head.add_row(look.name, bar, _tally(look))
    return head


def _tally(look: Look) -> str:
    words = [f"{look.counts.finished}/{look.counts.budget}"]
    for state, word in ((TrialState.PRUNED, "pruned"), (TrialState.FAIL, "failed")):
        if number := look.results.of_state(state):
            words.append(f"{number} {word}")
    return ", ".join(words)


def _body(look: Look, console: Console, *, front_rows: int) -> RenderableType:
    body = Table.grid(padding=(0, 1))
    body.add_column(no_wrap=True, style="dim", width=7)
    body.add_column(no_wrap=True, overflow="ellipsis", max_width=console.width - HEADINGS)
    plain = console.options.ascii_only
    for heading, found in (
        ("front", _front(look, width=console.width - HEADINGS, rows=front_rows)),
        (
            "volume",
            _volume(look, plain=plain, width=min(SPARK_WIDTH, console.width - BESIDE_SPARK)),
        ),
        ("workers", _workers(look)),
        ("slowed", (line(each, style="yellow") for each in in_lines(look.alarms))),
        ("failed", _failures(look)),
    ):
        for index, each in enumerate(found):
            body.add_row("" if index else heading, each)
    return body


def _front(look: Look, *, width: int, rows: int) -> Iterator[RenderableType]:
    front = look.results.front
    if not front:
        yield line("no finished trial yet", style="dim")
        return
    shown = [front[place] for place in spread(len(front), rows)]
    yield trials_table(shown, look.results.objectives, width)
    if len(shown) < len(front):
        yield line(f"{len(shown)} of {len(front)} shown", style="dim")
    if look.results.censored:
        yield line("nothing converged yet: times are where a limit cut", style="dim")


def _volume(look: Look, *, plain: bool, width: int) -> Iterator[RenderableType]:
    series = volume_series(look.results, look.name, look.results.reference)
    if not series.volume:
        return
    trend = sparkline(series.volume, width=max(width, 1), plain=plain)
    last = series.volume[-1]
    gained = 0
    for number, (before, after) in enumerate(itertools.pairwise(series.volume), 1):
        gained = number if after > before else gained
    since = look.counts.finished - series.finished[gained]
    ago = "grew with the last trial"
    if since > 0:
        ago = f"last grew {since} trial{'s' if since > 1 else ''} ago"
    yield line((trend, "cyan"), f" {last:.4g}, {ago}")


def _workers(look: Look) -> Iterator[RenderableType]:
    busy = [worker for worker in look.workers if worker.trial_number is not None]
    for worker in busy[:WORKER_ROWS]:
        yield line(worker_in_words(worker))
    rest = len(look.workers) - len(busy[:WORKER_ROWS])
    if rest:
        what = "more" if busy else "between trials or at another study"
        yield line(f"{rest} {what}", style="dim")


def worker_in_words(worker: WorkerRow) -> str:
    """What it trains."""
    loss = f", loss {worker.val_loss:.4f}" if worker.val_loss is not None else ""
    at = f"trial {worker.trial_number}, epoch {worker.epoch or 0}"
    return f"{worker.device}: {at}{loss}{_silence(worker)}"


def _silence(worker: WorkerRow) -> str:
    """Only worth a word when it is long: a worker reports every few seconds.
    Or what keeps it from working.
    """
    if worker.note:
        return f"; {worker.note}"
    return f", silent {worker.silent_s:.0f} s" if worker.silent_s > 30 else ""  # noqa: PLR2004


def _failures(look: Look) -> Iterator[RenderableType]:
    failed = [record for record in look.results.records if record.state == TrialState.FAIL]
    for record in failed[-FAILURE_ROWS:]:
        reason = record.recorded.failure or record.recorded.stopped_by or "no reason recorded"
        yield line(f"trial {record.number}: {reason}", style="red")
    if (earlier := len(failed) - FAILURE_ROWS) > 0:
        yield line(f"{earlier} earlier ones; see: tuner trial NUMBER", style="dim")


def _last_line(looks: Iterable[Look], footer: str) -> str:
    each = (seconds_left(look.results, look.counts) for look in looks if look.counts.left)
    left = [seconds for seconds in each if seconds is not None]
    estimate = f"about {duration(max(left))} left" if left else ""
    return "; ".join(part for part in (estimate, footer) if part)


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
            ended = (r for r in read_results(each).records if r.state.is_finished())
            self._seen[each.name] = {record.number for record in ended}

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
    counts, left = study.ledger.counts(), ""
    seconds = seconds_left(read_results(study), counts)
    if seconds is not None and counts.left:
        left = f", about {duration(seconds)} left"
    elif (most_s := _most_left_s(study, busy[0].trial_number)) is not None:
        left = f", at most {duration(most_s)} left of it"
    more = f" ({len(busy) - 1} more train)" if len(busy) > 1 else ""
    done = f"{counts.finished}/{counts.budget}"
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
    what = record.recorded.failure or "failed"
    if record.values:
        seconds, error = record.values
        what = f"{seconds:.3f} s, MQL {error:.4f}, {record.recorded.epochs} epochs"
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
