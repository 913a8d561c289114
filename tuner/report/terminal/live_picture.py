"""How one study looks while it is watched: a bar, its front,
the trend of its hypervolume, workers, failures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from optuna.trial import TrialState
from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table

from tuner.display.terminal import Console, line
from tuner.report.alarms import Alarm, alarms_of, in_lines
from tuner.report.figures.series import volume_series
from tuner.report.terminal.sparkline import sparkline
from tuner.storage.queue.roster import WorkerRow
from tuner.storage.records import Counts
from tuner.study.open import OpenStudy
from tuner.study.results import StudyResults, TrialRecord, read_results

WIDE = 90
"""Columns from which on the front's rows name hyperparameters too."""
SPARK_WIDTH = 24
BESIDE_SPARK = 45
"""Columns that the words beside the trend need: heading, value, and how long ago it last grew."""
FRONT_ROWS = (2, 8)
"""Rows of the front that a study gets at least and at most;
between them, what the terminal's height allows."""
WORKER_ROWS = 8
FAILURE_ROWS = 3
RECENT = 10
"""Finished trials whose durations say how long the rest will take."""


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
        return Look(
            opened.name,
            opened.ledger.counts(),
            results,
            opened.roster.working(),
            alarms_of(opened, results),
        )

    @property
    def seconds_left(self) -> float | None:
        """By the durations of the latest trials,
        shared among the workers of now; None where either is missing.
        """
        recent = [r.recorded.total_s for r in self.results.records if r.state.is_finished()][
            -RECENT:
        ]
        known = [float(seconds) for seconds in recent if seconds]
        if not known or not self.counts.running:
            return None
        return sum(known) / len(known) * self.counts.left / self.counts.running


def picture(looks: Sequence[Look], console: Console, *, footer: str = "") -> RenderableType:
    """All studies below each other, as wide as the terminal, and as high where that is possible."""
    others = sum(
        5
        + min(len(look.workers), WORKER_ROWS)
        + min(_failed(look), FAILURE_ROWS)
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
    body.add_column(no_wrap=True, overflow="ellipsis", max_width=console.width - 8)
    plain = console.options.ascii_only
    for heading, found in (
        ("front", _front(look, wide=console.width >= WIDE, rows=front_rows)),
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


def _front(look: Look, *, wide: bool, rows: int) -> Iterator[RenderableType]:
    front = [record for record in look.results.front if record.values]
    if not front:
        yield line("no finished trial yet", style="dim")
        return
    heading = " trial    time s       MQL  epochs"
    yield line(heading + ("  hidden  batch        lr" if wide else ""), style="dim")
    shown = (
        front
        if len(front) <= rows
        else [front[round(i * (len(front) - 1) / (rows - 1))] for i in range(rows)]
    )
    for record in shown:
        yield line(_row(record, wide=wide))
    notes = []
    if len(shown) < len(front):
        notes.append(f"{len(shown)} of {len(front)} shown")
    if look.results.censored:
        notes.append("nothing converged yet: times are where a limit cut")
    if notes:
        yield line("; ".join(notes), style="dim")


def _epochs(record: TrialRecord) -> str:
    return "" if record.recorded.epochs is None else str(record.recorded.epochs)


def _row(record: TrialRecord, *, wide: bool) -> str:
    assert record.values is not None, "only complete trials are on a front"
    seconds, error = record.values
    words = f"{record.number:>6} {seconds:>9.3f} {error:>9.4f} {_epochs(record):>7}"
    if wide:
        p, rate = record.params, record.params.get("learning_rate")
        shown = "-" if rate is None else f"{rate:.2e}"
        words += f" {p.get('hidden_size', '-'):>7} {p.get('batch_size', '-'):>6} {shown:>9}"
    marks = "default" if record.is_default else ""
    marks += " contaminated" if record.recorded.contaminated else ""
    marks += f" {record.runs_in_words}"
    return f"{words}  {marks.strip()}".rstrip()


def _volume(look: Look, *, plain: bool, width: int) -> Iterator[RenderableType]:
    series = volume_series(look.results, look.name, look.results.reference)
    if not series.volume:
        return
    trend = sparkline(series.volume, width=max(width, 1), plain=plain)
    last = series.volume[-1]
    gained = next(
        (
            i
            for i in range(len(series.volume) - 1, 0, -1)
            if series.volume[i] > series.volume[i - 1]
        ),
        0,
    )
    since = look.counts.finished - series.finished[gained]
    ago = (
        f"last grew {since} trial{'s' if since > 1 else ''} ago"
        if since > 0
        else "grew with the last trial"
    )
    yield line((trend, "cyan"), f" {last:.4g}, {ago}")


def _workers(look: Look) -> Iterator[RenderableType]:
    busy = [worker for worker in look.workers if worker.trial_number is not None]
    for worker in busy[:WORKER_ROWS]:
        yield line(worker_in_words(worker))
    rest = len(look.workers) - len(busy[:WORKER_ROWS])
    if rest:
        yield line(
            f"{rest} more" if busy else f"{rest} between trials or at another study", style="dim"
        )


def worker_in_words(worker: WorkerRow) -> str:
    """What it trains."""
    loss = f", loss {worker.val_loss:.4f}" if worker.val_loss is not None else ""
    return (
        f"{worker.device}: trial {worker.trial_number}, epoch {worker.epoch or 0}{loss}"
        f"{_silence(worker)}"
    )


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
    if len(failed) > FAILURE_ROWS:
        yield line(
            f"{len(failed) - FAILURE_ROWS} earlier ones; see: tuner trial NUMBER", style="dim"
        )


def _failed(look: Look) -> int:
    return look.results.of_state(TrialState.FAIL)


def _last_line(looks: Iterable[Look], footer: str) -> str:
    left = [
        seconds for look in looks if (seconds := look.seconds_left) is not None and look.counts.left
    ]
    estimate = f"about {duration(max(left))} left" if left else ""
    return "; ".join(part for part in (estimate, footer) if part)


def duration(seconds: float) -> str:
    """Seconds as people say them: `40 s`, `12 min`, `3 h 20 min`."""
    minute, hour = 60, 3600
    if seconds < 2 * minute:
        return f"{seconds:.0f} s"
    if seconds < 2 * hour:
        return f"{seconds / minute:.0f} min"
    return f"{seconds // hour:.0f} h {seconds % hour / minute:.0f} min"
