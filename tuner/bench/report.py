"""The results on disk and on the screen."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from rich.table import Table

from tuner.bench.contender import sizes
from tuner.bench.rows import Row
from tuner.display.terminal import make_console
from tuner.files.durable import put

Cell = Callable[[Row], str]


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
    c = circumstances
    headings = [heading for heading, _ in COLUMNS]
    epochs = f"{c.epochs_per_round} counted epochs a round"
    lines = [
        f"{c.device}, {c.date}, task {c.task}, {c.precision}, {epochs}.",
        f"{c.versions}; revision {c.git_revision or 'unknown'}.",
        "",
        f"    {c.command}",
        "",
        f"| {' | '.join(headings)} |",
        f"|{'---|' * len(headings)}",
    ]
    lines += [f"| {' | '.join(cell(row) for _, cell in COLUMNS)} |" for row in rows]
    return "\n".join([*lines, "", *_footnotes(rows, c)]) + "\n"


def print_table(rows: Sequence[Row], circumstances: Circumstances) -> None:
    """The table's most important columns on the screen."""
    table = Table(
        title=f"bench: {circumstances.task} on {circumstances.device}",
        box=None,
        padding=(0, 1, 0, 0),
    )
    shown = [(heading, cell) for heading, cell in COLUMNS if heading in ON_SCREEN]
    for heading, _ in shown:
        table.add_column(
            heading, justify="left" if heading == "contender" else "right", no_wrap=True
        )
    for row in rows:
        table.add_row(*(cell(row) for _, cell in shown))
    console = make_console()
    console.print(table)
    for note in _footnotes(rows, circumstances):
        console.print(note)


def _footnotes(rows: Sequence[Row], circumstances: Circumstances) -> list[str]:
    notes = [f"Incomplete: {circumstances.incomplete}."] if circumstances.incomplete else []
    notes.append(
        "x: darts' time divided by this one's at the same sizes; of a model of neuralforecast, "
        "that library's; x warm and x cold: of 48 epochs with that set-up."
    )
    steps_only = {row.contender: row for row in rows if "without" in row.scope}
    notes += [f"* {name}: {row.scope}; {row.note}." for name, row in steps_only.items()]
    notes += [f"{_who(row)}: {row.failure}" for row in rows if row.failure]
    if circumstances.contamination:
        notes.append(f"Do not trust these times: {circumstances.contamination}.")
    return notes


def _who(row: Row) -> str:
    return f"{row.contender}, {sizes(row)}"


def _number(name: str, form: str, *, scale: float = 1.0) -> Cell:
    def cell(row: Row) -> str:
        value = getattr(row, name)
        return "" if value is None else format(value if scale == 1 else value * scale, form)

    return cell


def _name(row: Row) -> str:
    mark = " *" if "without" in row.scope else ""
    return row.contender + mark + (" (failed)" if row.failure else "")


COLUMNS: tuple[tuple[str, Cell], ...] = (
    ("contender", _name),
    ("hidden", _number("hidden_size", "d")),
    ("batch", _number("batch_size", "d")),
    ("s/epoch", _number("s_per_epoch", ".4f")),
    ("x", _number("speedup_epoch", ".2f")),
    ("ms/step", _number("ms_per_step", ".3f")),
    ("x step", _number("speedup_step", ".2f")),
    ("set-up cold s", _number("setup_cold_s", ".2f")),
    ("warm s", _number("setup_warm_s", ".2f")),
    ("48 epochs s", _number("epochs48_s", ".2f")),
    ("with warm set-up", _number("epochs48_warm_s", ".2f")),
    ("x warm", _number("speedup_48_warm", ".2f")),
    ("with cold set-up", _number("epochs48_cold_s", ".2f")),
    ("x cold", _number("speedup_48_cold", ".2f")),
    ("kernels", _number("kernels_per_step", "d")),
    ("peak MiB", _number("peak_memory_bytes", ".0f", scale=2.0**-20)),
    ("samples/s", _number("samples_per_s", ".0f")),
    ("GPU %", _number("gpu_utilisation", ".0f")),
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
