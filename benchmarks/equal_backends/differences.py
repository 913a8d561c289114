"""How far backends' trainings are apart: means with their errors, and differences with intervals."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

FIGURES = ("val_loss", "test_mql", "epochs")
MARGIN = 0.012
"""What a seed alone moves the test MQL of the reference job by: a mean further off than this is another model."""
Run = dict[str, Any]


def summary(runs: Sequence[Run]) -> dict[str, Any]:
    """Of one backend: mean and standard error of each figure; no error of a single run."""
    found: dict[str, Any] = {
        "runs": len(runs),
        "stopped_by": sorted({run["stopped_by"] for run in runs}),
    }
    for name in FIGURES:
        values = [float(run[name]) for run in runs]
        error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else None
        found[name] = {"mean": statistics.fmean(values), "standard_error": error}
    return found


def difference(reference: Sequence[float], other: Sequence[float]) -> dict[str, float] | None:
    """The difference of the means, with a 95 % interval by Welch; None where one of them has no spread."""
    from scipy.stats import ttest_ind

    if min(len(reference), len(other)) < 2 or not statistics.stdev(reference) + statistics.stdev(
        other
    ):
        return None
    interval = ttest_ind(other, reference, equal_var=False).confidence_interval(0.95)
    mean = statistics.fmean(other) - statistics.fmean(reference)
    return {"mean": mean, "low": float(interval.low), "high": float(interval.high)}


def compare(runs: Sequence[Run], backends: Sequence[str]) -> dict[str, Any]:
    """Every backend's summary, and its differences from the first one that has runs."""
    by = {backend: [run for run in runs if run["backend"] == backend] for backend in backends}
    there = [backend for backend in backends if by[backend]]
    found: dict[str, Any] = {backend: summary(by[backend]) for backend in there}
    for backend in there[1:]:
        found[backend]["from"] = there[0]
        found[backend]["difference"] = {
            name: difference([r[name] for r in by[there[0]]], [r[name] for r in by[backend]])
            for name in FIGURES
        }
    return found


def table(found: Mapping[str, Any]) -> list[str]:
    """The comparison in Markdown."""
    lines = [
        "| backend | runs | val loss | test MQL | epochs | MQL minus the first's |",
        "|---|---|---|---|---|---|",
    ]
    for backend, each in found.items():
        cells = [
            _with_error(each[name], form)
            for name, form in zip(FIGURES, (".5f", ".4f", ".1f"), strict=True)
        ]
        apart = (each.get("difference") or {}).get("test_mql")
        said = ""
        if apart is not None:
            inside = apart["low"] > -MARGIN and apart["high"] < MARGIN
            words = f"within a seed's {MARGIN}" if inside else f"**not surely within {MARGIN}**"
            said = f"{apart['mean']:+.4f} [{apart['low']:+.4f}, {apart['high']:+.4f}], {words}"
        lines.append(f"| {backend} | {each['runs']} | {' | '.join(cells)} | {said} |")
    return lines


def _with_error(figure: Mapping[str, Any], form: str) -> str:
    mean, error = figure["mean"], figure["standard_error"]
    return f"{mean:{form}}" + ("" if error is None else f" ± {error:{form}}")
