"""How far a reading is from the team's figures, and the table of all of them."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.readings.tried import TRIED

Row = Mapping[str, Any]
Figures = tuple[float, float, float]
"""Log of the epochs, best validation loss, ETTh1's test MQL."""

TEAM: Mapping[str, Figures] = {
    "rmsnorm": (math.log(95), 0.224, 0.835),
    "layernorm": (math.log(112), 0.224, 0.839),
    "simple": (math.log(60), 0.228, 0.848),
}
SEED_SD: Figures = (0.11, 0.0009, 0.006)
"""Of one training, by its seed alone."""

FIRST, NEXT, LAST = (0,), (0, 1, 2, 3), tuple(range(100, 110))
"""The seeds of all readings, of the nearest eight, and of the nearest three."""
EIGHT, THREE = 8, 3
T_975 = 2.262157
"""Student's, of nine degrees of freedom: what a single training's interval of ten seeds takes."""


def figures(row: Row) -> Figures:
    """NaN where a training has none."""
    values = (row["val_loss"], row["mql"])
    val_loss, mql = (math.nan if value is None else value for value in values)
    return math.log(max(row["epochs"], 1)), val_loss, mql


def of_variant(
    rows: Sequence[Row], reading: str, variant: str, seeds: Sequence[int]
) -> list[Figures]:
    """Of each training, in the order of the seeds."""
    chosen = [
        row
        for row in rows
        if (row["reading"], row["variant"]) == (reading, variant) and row["seed"] in seeds
    ]
    return [figures(row) for row in sorted(chosen, key=lambda row: row["seed"])]


def means(found: Sequence[Figures]) -> Figures:
    log_epochs, val_loss, mql = (statistics.fmean(each) for each in zip(*found, strict=True))
    return log_epochs, val_loss, mql


def distance(rows: Sequence[Row], reading: str, seeds: Sequence[int]) -> float | None:
    """Squared differences of the means over these seeds from the team's figures, each over its
    seed's standard deviation, summed over figures and variants. None where a training is missing;
    infinite where one diverged.
    """
    total = 0.0
    for variant, team in TEAM.items():
        found = of_variant(rows, reading, variant, seeds)
        if len(found) < len(seeds):
            return None
        for mine, theirs, sd in zip(means(found), team, SEED_SD, strict=True):
            total += ((mine - theirs) / sd) ** 2
    return total if math.isfinite(total) else math.inf


def nearest(
    rows: Sequence[Row], readings: Sequence[str], seeds: Sequence[int], n: int
) -> list[str]:
    """The nearest `n`, nearest first; none as long as one of the readings lacks a training."""
    found = {reading: distance(rows, reading, seeds) for reading in readings}
    known = {reading: value for reading, value in found.items() if value is not None}
    if len(known) < len(readings):
        return []
    return sorted(known, key=lambda reading: known[reading])[:n]


def stages(
    rows: Sequence[Row], readings: Sequence[str]
) -> dict[str, tuple[list[str], Sequence[int]]]:
    """The readings and seeds of each stage, as far as the earlier ones have decided them."""
    eight = nearest(rows, readings, FIRST, EIGHT)
    three = nearest(rows, eight, NEXT, THREE) if eight else []
    return {"one": (list(readings), FIRST), "eight": (eight, NEXT), "three": (three, LAST)}


def missing(rows: Sequence[Row], readings: Sequence[str], stage: str) -> list[tuple[str, str, int]]:
    """(reading, variant, seed) of what this stage has not trained yet; `auto`: the first stage that
    lacks something.
    """
    there = {(row["reading"], row["variant"], row["seed"]) for row in rows}
    for name, (chosen, seeds) in stages(rows, readings).items():
        if stage not in ("auto", name):
            continue
        wanted = [(each, variant, seed) for each in chosen for seed in seeds for variant in TEAM]
        if left := [each for each in wanted if each not in there]:
            return left
    return []


def read(file: Path) -> list[dict[str, Any]]:
    """The rows so far; a line that a kill cut short is not one, and is trained again."""
    rows = []
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else []:
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            continue
    return rows


def table(rows: Sequence[Row], readings: Sequence[str], nearest: int | None = None) -> str:
    """Markdown: all readings by distance, or so many and today's, each over the most seeds that it
    has; then the check.
    """
    lines = [
        "| reading | seeds | rmsnorm: epochs, val, MQL | layernorm | simple | distance | expected |",
        "|---|---|---|---|---|---|---|",
        "| **the team's** | 1 | " + " | ".join(_cell(team) for team in TEAM.values()) + " | 0 | |",
    ]
    known = []
    for reading in readings:
        for seeds in (LAST, NEXT, FIRST):
            if (far := distance(rows, reading, seeds)) is not None:
                known.append((far, reading, seeds))
                break
    by_distance = sorted(known, key=lambda each: each[0])
    for place, (far, reading, seeds) in enumerate(by_distance):
        if nearest is not None and place >= nearest and reading != "today":
            continue
        cells = [_cell(means(of_variant(rows, reading, variant, seeds))) for variant in TEAM]
        count, expected = len(seeds), TRIED[reading].expected
        lines.append(f"| {reading} | {count} | {' | '.join(cells)} | {far:.1f} | {expected} |")
    return "\n".join([*lines, "", *interval_lines(rows, stages(rows, readings)["three"][0])])


def _cell(found: Figures) -> str:
    return f"{math.exp(found[0]):.0f}, {found[1]:.4f}, {found[2]:.4f}"


def intervals(rows: Sequence[Row], reading: str) -> dict[str, list[tuple[float, float, bool]]]:
    """By variant, for each figure: where 95 % of single trainings are expected, by ten seeds, and
    whether the team's is in there. Epochs are counted in logarithms. Empty without all ten.
    """
    found: dict[str, list[tuple[float, float, bool]]] = {}
    for variant, team in TEAM.items():
        seeds = of_variant(rows, reading, variant, LAST)
        if len(seeds) < len(LAST):
            return {}
        found[variant] = []
        for values, theirs in zip(zip(*seeds, strict=True), team, strict=True):
            mean, sd = statistics.fmean(values), statistics.stdev(values)
            half = T_975 * sd * math.sqrt(1 + 1 / len(values))
            inside = mean - half <= theirs <= mean + half
            found[variant].append((mean - half, mean + half, inside))
    return found


def interval_lines(rows: Sequence[Row], readings: Sequence[str]) -> list[str]:
    """Which of the nine figures are within the intervals of each finalist, as a Markdown table."""
    lines = [
        "| finalist | within its intervals | epochs | validation loss | MQL |",
        "|---|---|---|---|---|",
    ]
    for reading in readings:
        if not (found := intervals(rows, reading)):
            continue
        inside = sum(each[2] for of_one in found.values() for each in of_one)
        cells = []
        for figure in range(3):
            names = [variant for variant, of_one in found.items() if of_one[figure][2]]
            cells.append(", ".join(names) or "-")
        lines.append(f"| {reading} | {inside} of 9 | {' | '.join(cells)} |")
    return lines if len(lines) > 2 else []
