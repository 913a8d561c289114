"""A ladder on disk and on the screen: the changes cumulated, then each for itself."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from rich.table import Table

from tuner.bench.ladder.ladder_rows import LadderRow
from tuner.bench.report import Circumstances, write_table
from tuner.display.terminal import make_console

Cell = Callable[[LadderRow], str]
TITLES = {
    "cumulated": "Each change on top of those before it",
    "alone": "Each change alone",
}
FIRST_LADDER_COLUMNS = tuple(each.name for each in fields(LadderRow)[:3])
"""Of results.csv: by these a table of a ladder is known."""


def as_ladder_documents(
    rows: Sequence[LadderRow], circumstances: Circumstances
) -> list[dict[str, Any]]:
    """One flat record per rung, with the circumstances in each, but for the precision, which each
    rung has of its own.
    """
    shared = {name: value for name, value in asdict(circumstances).items() if name != "precision"}
    return [asdict(row) | shared for row in rows]


def write_ladder(
    rows: Sequence[LadderRow], circumstances: Circumstances, folder: Path
) -> tuple[Path, Path]:
    """Write results.csv (everything) and results.md (the tables) into `folder`, made if need be.

    Each file is at any time the earlier one or the new one, whole.
    """
    documents = as_ladder_documents(rows, circumstances)
    return write_table(documents, markdown_of(rows, circumstances), folder)


def markdown_of(rows: Sequence[LadderRow], circumstances: Circumstances) -> str:
    """The tables with their circumstances above and their footnotes below."""
    c = circumstances
    epochs = f"{c.epochs_per_round} counted epochs a round"
    lines = [
        f"{c.device}, {c.date}, task {c.task}, variant {rows[0].variant}, {epochs}.",
        f"{c.versions}; revision {c.git_revision or 'unknown'}.",
        "",
        f"    {c.command}",
    ]
    for kind, title in TITLES.items():
        columns = _columns(rows)
        lines += [
            "",
            f"**{title}**",
            "",
            f"| {' | '.join(heading for heading, _ in columns)} |",
            f"|{'---|' * len(columns)}",
        ]
        shown = [row for row in rows if row.kind == kind]
        lines += [f"| {' | '.join(cell(row) for _, cell in columns)} |" for row in shown]
    return "\n".join([*lines, "", *(f"- {note}" for note in _notes(rows, c))]) + "\n"


def print_ladder(rows: Sequence[LadderRow], circumstances: Circumstances) -> None:
    """The tables' most important columns on the screen."""
    console = make_console()
    for kind, title in TITLES.items():
        table = Table(
            title=f"{circumstances.task} on {circumstances.device}: {title.lower()}",
            title_justify="left",
            box=None,
            padding=(0, 1, 0, 0),
        )
        shown = [each for each in _columns(rows) if each[0] in ON_SCREEN]
        for heading, _ in shown:
            table.add_column(
                heading, justify="left" if heading == "change" else "right", no_wrap=True
            )
        for row in rows:
            if row.kind == kind:
                table.add_row(*(cell(row) for _, cell in shown))
        console.print(table)
    for note in _notes(rows, circumstances):
        console.print(note)


def _notes(rows: Sequence[LadderRow], circumstances: Circumstances) -> list[str]:
    notes = [f"Incomplete: {circumstances.incomplete}."] if circumstances.incomplete else []
    notes.append(
        "x: the first rung's time divided by this one's in the same round, with the least and the "
        "greatest over the rounds."
    )
    if any(row.seeds for row in rows):
        notes.append(
            "Trained to convergence with the first rung's learning rate: means over seeds with "
            "95 % intervals; change: from the first rung, on the same seeds."
        )
    if reckoned := [_who(row) for row in rows if row.reckoned_clock]:
        notes.append(
            "Trained in a captured step, which differs by rounding; the time to "
            f"convergence is the epochs times the rung's own s/epoch: {', '.join(reckoned)}."
        )
    notes += [f"{_who(row)}: {row.failure}." for row in rows if row.failure]
    by_reason: dict[str, list[str]] = {}
    for row in rows:
        if row.not_trained:
            by_reason.setdefault(row.not_trained, []).append(_who(row))
    notes += [f"Fewer trainings, as {why}: {', '.join(who)}." for why, who in by_reason.items()]
    if circumstances.contamination:
        notes.append(f"Do not trust these times: {circumstances.contamination}.")
    return notes


def _who(row: LadderRow) -> str:
    return f"{row.change} ({row.kind})"


def _number(name: str, form: str, *, scale: float = 1.0) -> Cell:
    def cell(row: LadderRow) -> str:
        value = getattr(row, name)
        return "" if value is None else format(value if scale == 1 else value * scale, form)

    return cell


def _interval(name: str, form: str) -> Cell:
    def cell(row: LadderRow) -> str:
        value, low, high = (getattr(row, f"{name}{end}") for end in ("", "_low", "_high"))
        if value is None:
            return ""
        middle = format(value, form)
        return middle if low is None else f"{middle} [{low:{form}}, {high:{form}}]"

    return cell


def _change(row: LadderRow) -> str:
    return row.change + (" (not here)" if row.failure and not row.rounds else "")


def _speedup(row: LadderRow) -> str:
    if row.speedup_epoch is None:
        return ""
    return f"{row.speedup_epoch:.2f} ({row.speedup_epoch_min:.2f} to {row.speedup_epoch_max:.2f})"


def _converged(row: LadderRow) -> str:
    return f"{row.converged} of {row.seeds}" if row.seeds else ""


TIMES: tuple[tuple[str, Cell], ...] = (
    ("change", _change),
    ("ms/step", _number("ms_per_step", ".3f")),
    ("x step", _number("speedup_step", ".2f")),
    ("s/epoch", _number("s_per_epoch", ".4f")),
    ("x", _speedup),
    ("samples/s", _number("samples_per_s", ".0f")),
    ("GPU %", _number("gpu_utilisation", ".0f")),
    ("peak MiB", _number("peak_memory_bytes", ".0f", scale=2.0**-20)),
    ("kernels", _number("kernels_per_step", "d")),
    ("set-up warm s", _number("setup_warm_s", ".2f")),
)
"""Heading and cell of the columns that every ladder has."""

QUALITY: tuple[tuple[str, Cell], ...] = (
    ("converged", _converged),
    ("epochs", _number("epochs", ".1f")),
    ("to convergence s", _interval("wall_clock_s", ".2f")),
    ("val loss", _interval("val_loss", ".4f")),
    ("test MQL", _interval("test_mql", ".4f")),
    ("MQL change", _interval("test_mql_change", "+.4f")),
)
"""The same where there were trainings."""

ON_SCREEN = (
    "change",
    "ms/step",
    "s/epoch",
    "x",
    "GPU %",
    "peak MiB",
    "epochs",
    "to convergence s",
    "test MQL",
    "MQL change",
)
"""What fits: the rest is in the files."""


def _columns(rows: Sequence[LadderRow]) -> tuple[tuple[str, Cell], ...]:
    return (*TIMES, *QUALITY) if any(row.seeds for row in rows) else TIMES
