"""The results on disk and on the screen."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
from rich.table import Table

from tuner.bench.contender import Measurement, sizes
from tuner.display.terminal import make_console, number_table
from tuner.display.text import filled
from tuner.files.durable import put
from tuner.files.plain import in_json

# From measurements to the rows of the results: medians, and how many times faster than darts.


_PAGE = Path(__file__).with_name("page.md")
REFERENCE = "darts"

LIBRARY = "neuralforecast"

REFERENCE_EPOCHS = 48
"""Epochs to convergence of the reference job, as darts has it."""

SPEEDUP_IS = (
    "x: darts' time divided by this one's at the same sizes; of a model of neuralforecast, that "
    "library's; x warm and x cold: of 48 epochs with that set-up."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """What each row of a bench has. Times are in seconds; None is what does not exist here.

    Medians are over rounds, and of a round over its epochs.
    """

    s_per_epoch: float | None = None
    s_per_epoch_min: float | None = None
    s_per_epoch_max: float | None = None
    setup_cold_s: float | None = None
    setup_warm_s: float | None = None
    ms_per_step: float | None = None
    kernels_per_step: int | None = None
    peak_memory_bytes: int | None = None
    samples_per_s: float | None = None
    gpu_utilisation: float | None = None
    n_parameters: int | None = None
    n_windows: int | None = None
    n_steps: int | None = None
    rounds: int = 0
    speedup_step: float | None = None
    speedup_epoch: float | None = None
    failure: str = ""
    """Why it was not measured, or dropped out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row(Timed):
    """One contender at one pair of sizes.

    `speedup_*` is the reference's figure divided by this one's: darts' at the same sizes, or, of a
    model of neuralforecast, that library's own. Of training steps alone there is only
    `speedup_step`. `epochs48_*` is 48 epochs: alone, with the warm set-up, with the cold one.
    """

    contender: str
    library: str
    variant: str
    backend: str
    hidden_size: int | None
    batch_size: int
    scope: str
    epochs48_s: float | None = None
    epochs48_warm_s: float | None = None
    epochs48_cold_s: float | None = None
    speedup_48_warm: float | None = None
    speedup_48_cold: float | None = None
    note: str = ""


def summarise(measurements: Sequence[Measurement]) -> list[Row]:
    """One row each, in their order."""
    plain = [_plain(measured) for measured in measurements]
    darts = {(row.hidden_size, row.batch_size): row for row in plain if row.library == REFERENCE}
    own = {
        (row.variant, row.hidden_size, row.batch_size): row
        for row in plain
        if row.library == LIBRARY and row.variant
    }
    compared = []
    for row in plain:
        at = row.hidden_size, row.batch_size
        compared.append(_compared(row, own.get((row.variant, *at), darts.get(at))))
    return compared


def timed(measured: Measurement) -> Timed:
    """What one contender's turns came to, beside nobody."""
    plain = in_json(measured, "failure", setup_cold_s="cold_setup_s")
    if not measured.rounds:
        return Timed(**plain)
    per_round = [
        statistics.median(epoch.seconds for epoch in turn.epochs) for turn in measured.rounds
    ]
    step_s = statistics.median(
        statistics.median(epoch.step_s for epoch in turn.epochs) for turn in measured.rounds
    )
    s_per_epoch = statistics.median(per_round)
    last = measured.rounds[-1]
    peaks = [
        turn.peak_memory_bytes for turn in measured.rounds if turn.peak_memory_bytes is not None
    ]
    return Timed(
        **plain,
        **in_json(measured, "kernels_per_step", "gpu_utilisation"),
        **in_json(last, "n_parameters", "n_windows", "n_steps"),
        rounds=len(measured.rounds),
        s_per_epoch=s_per_epoch,
        s_per_epoch_min=min(per_round),
        s_per_epoch_max=max(per_round),
        setup_warm_s=statistics.median(turn.setup_s for turn in measured.rounds),
        ms_per_step=1000 * step_s,
        peak_memory_bytes=max(peaks, default=None),
        samples_per_s=last.n_windows / s_per_epoch,
    )


def _plain(measured: Measurement) -> Row:
    entry, found = measured.entry, timed(measured)
    who = in_json(entry, "library", "variant", "backend", "hidden_size", "batch_size", "note")
    row = Row(**who, **asdict(found), contender=entry.name, scope=entry.scope.value)
    if found.s_per_epoch is None:
        return row
    alone, cold, warm = REFERENCE_EPOCHS * found.s_per_epoch, row.setup_cold_s, row.setup_warm_s
    return replace(
        row,
        epochs48_s=alone,
        epochs48_warm_s=None if warm is None else alone + warm,
        epochs48_cold_s=None if cold is None else alone + cold,
    )


def _compared(row: Row, reference: Row | None) -> Row:
    if reference is None:
        return row
    row = replace(row, speedup_step=_ratio(reference.ms_per_step, row.ms_per_step))
    if row.scope != reference.scope:
        return row
    return replace(
        row,
        speedup_epoch=_ratio(reference.s_per_epoch, row.s_per_epoch),
        speedup_48_warm=_ratio(reference.epochs48_warm_s, row.epochs48_warm_s),
        speedup_48_cold=_ratio(reference.epochs48_cold_s, row.epochs48_cold_s),
    )


def _ratio(reference: float | None, own: float | None) -> float | None:
    return None if reference is None or own is None else reference / own


Cell = Callable[[Any], str]
"""Of a row."""


class Column(NamedTuple):
    """Of a table."""

    heading: str
    cell: Cell
    on_screen: bool = True
    """Whether it fits there; the others are in the files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What holds for all rows of a run."""

    date: str
    device: str
    task: str
    precision: str
    epochs_per_round: int
    command: str
    versions: str
    git_revision: str
    contamination: str
    """Why the timings are not to be trusted; empty when nothing was seen."""
    incomplete: str = ""
    """How far the run had come when this was written; empty when it was over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Rows as they are written and shown."""

    name: str
    """Of the rows, in JSON."""
    circumstances: Circumstances
    settings: str
    """Of all rows, at the head of the page."""
    tables: Sequence[tuple[str, Sequence[Timed]]]
    """By their titles: one, without any, or several."""
    columns: Sequence[Column]
    notes: Sequence[str]
    """What is to be known of the rows."""

    @property
    def rows(self) -> list[Timed]:
        return [row for _, rows in self.tables for row in rows]

    def documents(self) -> list[dict[str, Any]]:
        """One flat record per row, with the circumstances in each, but for what a row has of its
        own.
        """
        shared = asdict(self.circumstances)
        return [row | shared | row for row in map(_flat, self.rows)]

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Write results.csv (everything) and results.md (the tables) into `folder`, made if need
        be.

        Each file is at any time the earlier one or the new one, whole.
        """
        folder.mkdir(parents=True, exist_ok=True)
        table, page = folder / "results.csv", folder / "results.md"
        rows = pd.DataFrame(self.documents(), dtype=object)  # a whole number beside none stays one
        put(table, rows.to_csv(index=False).encode())
        put(page, self.page().encode())
        return table, page

    def page(self) -> str:
        """The tables in Markdown, with their circumstances above and their footnotes below."""
        return filled(_PAGE, c=self.circumstances, results=self)

    def show(self) -> None:
        """The tables' most important columns on the screen."""
        console = make_console()
        columns = [each for each in self.columns if each.on_screen]
        for title, rows in self.tables:
            table = on_screen(rows, columns)
            words = f"bench: {self.circumstances.task} on {self.circumstances.device}"
            table.title = f"{words}: {title.lower()}" if title else words
            console.print(table)
        for note in self.all_notes():
            console.print(note)

    def all_notes(self) -> list[str]:
        """With what speaks against the whole: first that it is not over, last that it is no
        good.
        """
        c = self.circumstances
        found = [f"Incomplete: {c.incomplete}."] if c.incomplete else []
        found += self.notes
        if c.contamination:
            found.append(f"Do not trust these times: {c.contamination}.")
        return found


def _flat(row: Timed) -> dict[str, Any]:
    """What the row alone is of comes first: by that a table is known."""
    values = asdict(row)
    return {name: values[name] for name in type(row).__annotations__} | values


def on_screen(rows: Sequence[object], columns: Sequence[Column]) -> Table:
    """The first column is of names, the others of numbers."""
    table = number_table(*(each.heading for each in columns))
    table.columns[0].justify = "left"
    for row in rows:
        table.add_row(*(each.cell(row) for each in columns))
    return table


def results_of(measurements: Sequence[Measurement], circumstances: Circumstances) -> Results:
    """Of a bench that is no ladder."""
    rows = summarise(measurements)
    return Results(
        name="results",
        circumstances=circumstances,
        settings=circumstances.precision,
        tables=[("", rows)],
        columns=COLUMNS,
        notes=_notes(rows),
    )


def _notes(rows: Sequence[Row]) -> list[str]:
    notes = [SPEEDUP_IS]
    steps_only = {row.contender: row for row in rows if "without" in row.scope}
    notes += [f"* {name}: {row.scope}; {row.note}." for name, row in steps_only.items()]
    sized = (row for row in rows if row.failure)
    notes += [f"{r.contender}, {sizes(r.hidden_size, r.batch_size)}: {r.failure}" for r in sized]
    return notes


def as_number(name: str, form: str, *, scale: float = 1.0) -> Cell:
    """A row's field of that name; nothing where it is None."""

    def cell(row: object) -> str:
        value = getattr(row, name)
        return "" if value is None else format(value if scale == 1 else value * scale, form)

    return cell


def _name(row: Row) -> str:
    mark = " *" if "without" in row.scope else ""
    return row.contender + mark + (" (failed)" if row.failure else "")


FIRST_COLUMNS = tuple(Row.__annotations__)[:3]
"""Of results.csv: by these a table of ours is known."""

COLUMNS = (
    Column("contender", _name),
    Column("hidden", as_number("hidden_size", "d")),
    Column("batch", as_number("batch_size", "d")),
    Column("s/epoch", as_number("s_per_epoch", ".4f")),
    Column("x", as_number("speedup_epoch", ".2f")),
    Column("ms/step", as_number("ms_per_step", ".3f")),
    Column("x step", as_number("speedup_step", ".2f")),
    Column("set-up cold s", as_number("setup_cold_s", ".2f"), on_screen=False),
    Column("warm s", as_number("setup_warm_s", ".2f")),
    Column("48 epochs s", as_number("epochs48_s", ".2f"), on_screen=False),
    Column("with warm set-up", as_number("epochs48_warm_s", ".2f"), on_screen=False),
    Column("x warm", as_number("speedup_48_warm", ".2f")),
    Column("with cold set-up", as_number("epochs48_cold_s", ".2f"), on_screen=False),
    Column("x cold", as_number("speedup_48_cold", ".2f"), on_screen=False),
    Column("kernels", as_number("kernels_per_step", "d")),
    Column("peak MiB", as_number("peak_memory_bytes", ".0f", scale=2.0**-20), on_screen=False),
    Column("samples/s", as_number("samples_per_s", ".0f"), on_screen=False),
    Column("GPU %", as_number("gpu_utilisation", ".0f"), on_screen=False),
)
