"""A ladder on disk and on the screen: the changes cumulated, then each for itself."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from rich.table import Table

from tuner.bench.contender import Measurement
from tuner.bench.ladder.to_convergence import Ladder, Rung, Trained, Trainings
from tuner.bench.report import Circumstances, summarise, write_table
from tuner.config import StopReason
from tuner.display.terminal import make_console
from tuner.verdict.stats.intervals import CONFIDENCE
from tuner.verdict.stats.permutation import paired_t_interval

# From measurements and trainings to the rows of a ladder: each beside the first rung.


LEAST_SEEDS = 2
"""Fewer give no interval."""

Figures = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderRow:
    """One rung. Times are in seconds; None is what does not exist here, or was not measured.

    Medians are over rounds, and of a round over its epochs. `speedup_*` is the first rung's figure
    divided by this one's in the same round: median, least and greatest over the rounds. Of
    trainings the figures are means over `seeds`, with the 95 % interval of Student's t; `*_change`
    is the mean difference from the first rung on the same seeds.
    """

    kind: str
    change: str
    variant: str
    backend: str
    precision: str
    hidden_size: int | None
    batch_size: int
    validate_every: int
    ms_per_step: float | None = None
    speedup_step: float | None = None
    s_per_epoch: float | None = None
    s_per_epoch_min: float | None = None
    s_per_epoch_max: float | None = None
    speedup_epoch: float | None = None
    speedup_epoch_min: float | None = None
    speedup_epoch_max: float | None = None
    samples_per_s: float | None = None
    gpu_utilisation: float | None = None
    peak_memory_bytes: int | None = None
    kernels_per_step: int | None = None
    setup_cold_s: float | None = None
    setup_warm_s: float | None = None
    n_windows: int | None = None
    n_steps: int | None = None
    rounds: int = 0
    seeds: int = 0
    converged: int = 0
    """Of the trainings; the others a limit cut."""
    reckoned_clock: bool = False
    """Trained in a captured step: the time to convergence is epochs times its own `s_per_epoch`."""
    epochs: float | None = None
    wall_clock_s: float | None = None
    wall_clock_s_low: float | None = None
    wall_clock_s_high: float | None = None
    val_loss: float | None = None
    val_loss_low: float | None = None
    val_loss_high: float | None = None
    val_loss_change: float | None = None
    val_loss_change_low: float | None = None
    val_loss_change_high: float | None = None
    test_mql: float | None = None
    test_mql_low: float | None = None
    test_mql_high: float | None = None
    test_mql_change: float | None = None
    test_mql_change_low: float | None = None
    test_mql_change_high: float | None = None
    failure: str = ""
    """Why it was not measured, or dropped out."""
    not_trained: str = ""
    """Why it has fewer trainings than were asked for."""


def ladder_rows(
    ladder: Ladder,
    measurements: Sequence[Measurement],
    trainings: Trainings | None = None,
    *,
    seeds: int = 0,
) -> list[LadderRow]:
    """One row a rung, in their order; `seeds` is how many trainings of each were asked for."""
    first = ladder.contender_of(ladder.rungs[0])
    assert first is not None, "a ladder has a first rung"
    made = trainings or Trainings()
    rows = []
    for rung in ladder.rungs:
        row, number = _of(rung, ladder.variant), ladder.contender_of(rung)
        if number is None:
            rows.append(replace(row, failure=rung.why_not))
            continue
        row = _timed(row, measurements[number], measurements[first])
        own = made.of.get(number, [])
        row = replace(row, **_trained(own, made.of.get(first, []), row.s_per_epoch))
        missing = made.failures.get(number) or made.missing
        rows.append(row if len(own) >= seeds else replace(row, not_trained=missing))
    return rows


def _of(rung: Rung, variant: str) -> LadderRow:
    sizes, training = rung.config.hyperparameters, rung.config.training
    return LadderRow(
        kind=rung.kind,
        change=rung.change,
        variant=variant,
        backend=training.backend.value,
        precision=training.precision.value,
        hidden_size=sizes.hidden_size,
        batch_size=sizes.batch_size,
        validate_every=training.validate_every,
    )


def _timed(row: LadderRow, own: Measurement, first: Measurement) -> LadderRow:
    """With its times, those of the bench's own row, and with how often they go into the first
    rung's.
    """
    (plain,) = summarise([own])
    same = (
        "ms_per_step s_per_epoch s_per_epoch_min s_per_epoch_max samples_per_s gpu_utilisation "
        "peak_memory_bytes kernels_per_step setup_cold_s setup_warm_s n_windows n_steps rounds "
        "failure"
    )
    found: Figures = {name: getattr(plain, name) for name in same.split()}
    epochs = _ratios(own, first, lambda epoch: epoch.seconds)
    steps = _ratios(own, first, lambda epoch: epoch.step_s)
    if epochs:
        found |= {
            "speedup_epoch": statistics.median(epochs),
            "speedup_epoch_min": min(epochs),
            "speedup_epoch_max": max(epochs),
            "speedup_step": statistics.median(steps),
        }
    return replace(row, **found)


def _ratios(own: Measurement, first: Measurement, of: Callable[[Any], float]) -> list[float]:
    """The first rung's median of a round by this one's of the same round."""
    return [
        statistics.median(map(of, before.epochs)) / statistics.median(map(of, after.epochs))
        for before, after in zip(first.rounds, own.rounds, strict=False)
    ]


def _trained(
    own: Sequence[Trained], first: Sequence[Trained], s_per_epoch: float | None
) -> Figures:
    if not own:
        return {}
    is_first = own is first
    converged = sum(each.stopped_by == StopReason.CONVERGED for each in own)
    found: Figures = {
        "seeds": len(own),
        "converged": converged,
        "epochs": statistics.fmean(each.epochs for each in own),
    }
    if own[0].captured:
        found["reckoned_clock"] = s_per_epoch is not None
        own = [replace(each, wall_clock_s=each.epochs * (s_per_epoch or 0.0)) for each in own]
    before = {each.seed: each for each in first}
    pairs = [(before[each.seed], each) for each in own if each.seed in before]
    for name in ("wall_clock_s", "val_loss", "test_mql"):
        if name == "wall_clock_s" and own[0].captured and s_per_epoch is None:
            continue
        found |= _mean(name, [getattr(each, name) for each in own])
        if name != "wall_clock_s" and pairs and not is_first:
            changes = [getattr(after, name) - getattr(was, name) for was, after in pairs]
            found |= _mean(f"{name}_change", changes)
    return found


def _mean(name: str, values: Sequence[float]) -> Figures:
    found: Figures = {name: statistics.fmean(values)}
    if len(values) >= LEAST_SEEDS:
        low, high = paired_t_interval(values, 1 - CONFIDENCE)
        found |= {f"{name}_low": low, f"{name}_high": high}
    return found


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
