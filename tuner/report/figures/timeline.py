"""What each worker did when: a bar a trial, from its claim to its end."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.report.figures.style import (
    COLOURS,
    GREY,
    INK,
    finish,
    label,
    new_figure,
    say_nothing_yet,
)

if TYPE_CHECKING:
    import plotly.graph_objects as go


LOOKS = {
    "converged": (COLOURS[0], ""),
    "limit": (COLOURS[5], "/"),
    "pruned": (COLOURS[4], "."),
    "failed": (COLOURS[1], "x"),
    "handed back": (GREY, "-"),
    "lost": (COLOURS[3], "|"),
    "running": (COLOURS[2], ""),
}
"""Outcome of an attempt: its colour, and the pattern that tells it without colour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """One attempt at one trial by one worker.
    Times are seconds since 1970 (UTC); `outcome` is one of `LOOKS`.
    """

    worker: str
    label: str
    began: float
    ended: float
    outcome: str
    study: str = ""
    """Needed where spans of several studies are drawn together."""


OUTLINED = 1 / 200
"""Bars longer than this share of the whole have an outline;
of a shorter one it would leave nothing to see."""


def timeline_figure(spans: Sequence[Span], *, title: str = "") -> go.Figure:
    """Workers from top to bottom, time from left to right (UTC), a bar an attempt.

    Where there are several studies, a worker has a lane for each one that it was at, below the
    study's name.
    """
    figure = new_figure()
    whole = max((span.ended for span in spans), default=0.0) - min(
        (span.began for span in spans), default=0.0
    )
    several = len({span.study for span in spans}) > 1
    lanes = [
        _lane(span, several=several)
        for span in sorted(spans, key=lambda s: (s.study, s.worker), reverse=True)
    ]
    lanes = list(dict.fromkeys(lanes))
    for outcome, (colour, pattern) in LOOKS.items():
        these = [span for span in spans if span.outcome == outcome]
        if not these:
            continue
        figure.add_bar(
            orientation="h",
            y=[_lane(span, several=several) for span in these],
            base=[_time(span.began) for span in these],
            x=[
                1000.0 * max(span.ended - span.began, 0.0) for span in these
            ],  # milliseconds, on an axis of dates
            text=[label(span.label) for span in these],
            textposition="inside",
            insidetextanchor="middle",
            customdata=[f"{span.ended - span.began:.1f} s" for span in these],
            hovertemplate="%{y}<br>%{text}, %{customdata}<br>from %{base|%H:%M:%S}<extra>"
            + outcome
            + "</extra>",
            name=outcome,
            marker={
                "color": colour,
                "line": {
                    "color": "white",
                    "width": [int(span.ended - span.began > OUTLINED * whole) for span in these],
                },
                "pattern": {"shape": pattern, "fgcolor": "white", "solidity": 0.2},
            },
        )
    if not spans:
        say_nothing_yet(figure, "no worker has started a trial yet")
    finish(figure, title=title, x="time (UTC)", y="", barmode="overlay")
    figure.update_xaxes(type="date")
    figure.update_layout(
        legend={"y": -0.3}
    )  # below the second line of the ticks, which has the day
    figure.update_layout(
        uniformtext={"mode": "hide", "minsize": 9}, bargap=max(0.35, 1 - 0.2 * len(lanes))
    )
    figure.update_yaxes(categoryorder="array", categoryarray=lanes)
    return figure


def _lane(span: Span, *, several: bool) -> str:
    worker = label(span.worker)
    return f"{label(span.study)}<br>{worker}" if several else worker


def _time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")


# Who is at work, as a table: for a page where only figures can be shown.


def table_figure(
    rows: Sequence[Mapping[str, str]], *, title: str = "", empty: str = "nothing to show"
) -> go.Figure:
    """A table with the keys of the first row as its head; without rows, `empty` says why."""
    figure = new_figure()
    figure.update_layout(
        title={"text": title, "x": 0.02, "font": {"size": 17}} if title else None,
        template="plotly_white",
        font={"family": "Helvetica, Arial, DejaVu Sans, sans-serif", "size": 13, "color": INK},
        margin={"l": 10, "r": 10, "t": 50 if title else 10, "b": 10},
    )
    if not rows:
        figure.update_xaxes(visible=False)
        figure.update_yaxes(visible=False)
        return say_nothing_yet(figure, empty)
    figure.add_table(
        header={
            "values": [f"<b>{label(key)}</b>" for key in rows[0]],
            "align": "left",
            "fill": {"color": "#EEF3F7"},
            "line": {"color": "white"},
            "height": 28,
        },
        cells={
            "values": [[label(row[key]) for row in rows] for key in rows[0]],
            "align": "left",
            "fill": {"color": "white"},
            "line": {"color": "#E6E6E6"},
            "height": 26,
        },
    )
    return figure
