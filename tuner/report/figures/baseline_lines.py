"""Lines of a figure for what forecasts without a network come to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tuner.report.figures.style import GREY, note_in_corner
from tuner.study.baselines import in_words

if TYPE_CHECKING:
    import plotly.graph_objects as go

EQUAL = 5
"""Digits to which two studies' baselines are the same: those of one task are."""


def draw_baselines(figure: go.Figure, baselines: Sequence[Mapping[str, float]]) -> None:
    """A dashed line for each baseline within the axis; one that lies above is said in a corner."""
    found: dict[tuple[str, str], float] = {}
    for each in baselines:
        for name, mql in each.items():
            found[name, f"{mql:.{EQUAL}g}"] = mql
    span = figure.layout.yaxis.range
    above = []
    for (name, _), mql in sorted(found.items(), key=lambda pair: pair[1]):
        if span is not None and mql > span[1]:
            above.append(f"{in_words(name)}: {mql:.4g}")
            continue
        figure.add_hline(
            y=mql,
            line={"color": GREY, "dash": "dash", "width": 1.5},
            annotation={"text": in_words(name), "font": {"color": GREY, "size": 12}},
            annotation_position="bottom right",
        )
    if above:
        note_in_corner(figure, f"without a network, above: {', '.join(above)}")
