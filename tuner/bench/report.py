"""The results on disk and on the screen."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from tuner.bench.contender import Measurement, sizes
from tuner.display.terminal import make_console
from tuner.files.durable import put

# From measurements to the rows of the results: medians, and how many times faster than darts.


REFERENCE = "darts"

LIBRARY = "neuralforecast"

REFERENCE_EPOCHS = 48
"""Epochs to convergence of the reference job, as darts has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One contender at one pair of sizes. Times are in seconds; None is what does not exist here.

    Medians are over rounds, and of a round over its epochs. `speedup_*` is the reference's figure
    divided by this one's: darts' at the same sizes, or, of a model of neuralforecast, that
    library's own. Of training steps alone there is only `speedup_step`.
    `epochs48_*` is 48 epochs: alone, with the warm set-up, with the cold one.
    """

    contender: str
    library: str
    variant: str
    backend: str
    hidden_size: int | None
    batch_size: int
    scope: str
    s_per_epoch: float | None = None
    s_per_epoch_min: float | None = None
    s_per_epoch_max: float | None = None
    setup_cold_s: float | None = None
    setup_warm_s: float | None = None
    epochs48_s: float | None = None
    epochs48_warm_s: float | None = None
    epochs48_cold_s: float | None = None
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
    speedup_48_warm: float | None = None
    speedup_48_cold: float | None = None
    failure: str = ""
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
        sizes = row.hidden_size, row.batch_size
        compared.append(_compared(row, own.get((row.variant, *sizes), darts.get(sizes))))
    return compared


def _plain(measured: Measurement) -> Row:
    entry = measured.entry
    identity = {
        "contender": entry.name,
        "library": entry.library,
        "variant": entry.variant,
        "backend": entry.backend,
        "hidden_size": entry.hidden_size,
        "batch_size": entry.batch_size,
        "scope": entry.scope.value,
        "setup_cold_s": measured.cold_setup_s,
        "rounds": len(measured.rounds),
        "failure": measured.failure,
        "note": entry.note,
    }
    if not measured.rounds:
        return Row(**identity)  # type: ignore[arg-type]
    per_round = [
        statistics.median(epoch.seconds for epoch in turn.epochs) for turn in measured.rounds
    ]
    step_s = statistics.median(
        statistics.median(epoch.step_s for epoch in turn.epochs) for turn in measured.rounds
    )
    s_per_epoch = statistics.median(per_round)
    warm = statistics.median(turn.setup_s for turn in measured.rounds)
    last = measured.rounds[-1]
    peaks = [
        turn.peak_memory_bytes for turn in measured.rounds if turn.peak_memory_bytes is not None
    ]
    alone = REFERENCE_EPOCHS * s_per_epoch
    return Row(
        **identity,  # type: ignore[arg-type]
        s_per_epoch=s_per_epoch,
        s_per_epoch_min=min(per_round),
        s_per_epoch_max=max(per_round),
        setup_warm_s=warm,
        epochs48_s=alone,
        epochs48_warm_s=alone + warm,
        epochs48_cold_s=None if measured.cold_setup_s is None else alone + measured.cold_setup_s,
        ms_per_step=1000 * step_s,
        kernels_per_step=measured.kernels_per_step,
        peak_memory_bytes=max(peaks, default=None),
        samples_per_s=last.n_windows / s_per_epoch,
        gpu_utilisation=measured.gpu_utilisation,
        n_parameters=last.n_parameters,
        n_windows=last.n_windows,
        n_steps=last.n_steps,
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


def as_documents(rows: Sequence[Row], circumstances: Circumstances) -> list[dict[str, Any]]:
    """One flat record per row, with the circumstances in each."""
    return [asdict(row) | asdict(circumstances) for row in rows]


FIRST_COLUMNS = tuple(each.name for each in fields(Row)[:3])
"""Of results.csv: by these a table of ours is known."""


def write_results(
    rows: Sequence[Row], circumstances: Circumstances, folder: Path
) -> tuple[Path, Path]:
    """Write results.csv (everything) and results.md (the table) into `folder`, made if need be.

    Each file is at any time the earlier one or the new one, whole.
    """
    return write_table(as_documents(rows, circumstances), markdown(rows, circumstances), folder)


def write_table(documents: Sequence[dict[str, Any]], page: str, folder: Path) -> tuple[Path, Path]:
    """Write `documents`, which have the same keys, as results.csv, and `page` as results.md."""
    folder.mkdir(parents=True, exist_ok=True)
    table, document = folder / "results.csv", folder / "results.md"
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(documents[0]))
    writer.writeheader()
    writer.writerows(documents)
    put(table, text.getvalue().encode())
    put(document, page.encode())
    return table, document


def markdown(rows: Sequence[Row], circumstances: Circumstances) -> str:
    """The table with its circumstances above and its footnotes below."""
    lines = head_of_page(circumstances, circumstances.precision)
    lines += ["", *lines_of_table(rows, COLUMNS), "", *_footnotes(rows, circumstances)]
    return "\n".join(lines) + "\n"


def head_of_page(c: Circumstances, settings: str) -> list[str]:
    """What holds for all of its tables."""
    epochs = f"{c.epochs_per_round} counted epochs a round"
    return [
        f"{c.device}, {c.date}, task {c.task}, {settings}, {epochs}.",
        f"{c.versions}; revision {c.git_revision or 'unknown'}.",
        "",
        f"    {c.command}",
    ]


def lines_of_table(rows: Sequence[object], columns: Sequence[tuple[str, Cell]]) -> Iterator[str]:
    """In Markdown."""
    yield f"| {' | '.join(heading for heading, _ in columns)} |"
    yield f"|{'---|' * len(columns)}"
    for row in rows:
        yield f"| {' | '.join(cell(row) for _, cell in columns)} |"


def on_screen(rows: Sequence[object], columns: Sequence[tuple[str, Cell]]) -> Table:
    """The first column is of names, the others of numbers."""
    table = Table(box=None, padding=(0, 1, 0, 0))
    for number, (heading, _) in enumerate(columns):
        table.add_column(heading, justify="right" if number else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(cell(row) for _, cell in columns))
    return table


def print_table(rows: Sequence[Row], circumstances: Circumstances) -> None:
    """The table's most important columns on the screen."""
    table = on_screen(rows, [each for each in COLUMNS if each[0] in ON_SCREEN])
    table.title = f"bench: {circumstances.task} on {circumstances.device}"
    console = make_console()
    console.print(table)
    for note in _footnotes(rows, circumstances):
        console.print(note)


def all_notes(notes: Sequence[str], circumstances: Circumstances) -> list[str]:
    """With what speaks against the whole: first that it is not over, last that it is no good."""
    found = [f"Incomplete: {circumstances.incomplete}."] if circumstances.incomplete else []
    found += notes
    if circumstances.contamination:
        found.append(f"Do not trust these times: {circumstances.contamination}.")
    return found


def _footnotes(rows: Sequence[Row], circumstances: Circumstances) -> list[str]:
    notes: list[str] = []
    notes.append(
        "x: darts' time divided by this one's at the same sizes; of a model of neuralforecast, "
        "that library's; x warm and x cold: of 48 epochs with that set-up."
    )
    steps_only = {row.contender: row for row in rows if "without" in row.scope}
    notes += [f"* {name}: {row.scope}; {row.note}." for name, row in steps_only.items()]
    notes += [f"{row.contender}, {sizes(row)}: {row.failure}" for row in rows if row.failure]
    return all_notes(notes, circumstances)


def as_number(name: str, form: str, *, scale: float = 1.0) -> Cell:
    """A row's field of that name; nothing where it is None."""

    def cell(row: object) -> str:
        value = getattr(row, name)
        return "" if value is None else format(value if scale == 1 else value * scale, form)

    return cell


def _name(row: Row) -> str:
    mark = " *" if "without" in row.scope else ""
    return row.contender + mark + (" (failed)" if row.failure else "")


COLUMNS: tuple[tuple[str, Cell], ...] = (
    ("contender", _name),
    ("hidden", as_number("hidden_size", "d")),
    ("batch", as_number("batch_size", "d")),
    ("s/epoch", as_number("s_per_epoch", ".4f")),
    ("x", as_number("speedup_epoch", ".2f")),
    ("ms/step", as_number("ms_per_step", ".3f")),
    ("x step", as_number("speedup_step", ".2f")),
    ("set-up cold s", as_number("setup_cold_s", ".2f")),
    ("warm s", as_number("setup_warm_s", ".2f")),
    ("48 epochs s", as_number("epochs48_s", ".2f")),
    ("with warm set-up", as_number("epochs48_warm_s", ".2f")),
    ("x warm", as_number("speedup_48_warm", ".2f")),
    ("with cold set-up", as_number("epochs48_cold_s", ".2f")),
    ("x cold", as_number("speedup_48_cold", ".2f")),
    ("kernels", as_number("kernels_per_step", "d")),
    ("peak MiB", as_number("peak_memory_bytes", ".0f", scale=2.0**-20)),
    ("samples/s", as_number("samples_per_s", ".0f")),
    ("GPU %", as_number("gpu_utilisation", ".0f")),
)
"""Heading and cell of the table's columns."""

ON_SCREEN = (
    "contender",
    "hidden",
    "batch",
    "s/epoch",
    "x",
    "ms/step",
    "x step",
    "warm s",
    "x warm",
    "kernels",
)
"""What fits: the rest is in the files."""
