"""The Pareto front: seconds to convergence against the error, one series a study."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tuner.report.figures import style
from tuner.report.figures.style import GREY, Style, label
from tuner.spec.pareto import Point, front_indices
from tuner.study.baselines import in_words
from tuner.verdict.stats.intervals import Interval

if TYPE_CHECKING:
    import plotly.graph_objects as go


# What forecasts without a network come to.


EQUAL = 5
"""Digits to which two studies' baselines are the same: those of one task are."""


def draw_baselines(figure: go.Figure, baselines: Sequence[Mapping[str, Point]]) -> None:
    """A point for each baseline within the axis, at the seconds that it takes to fit and forecast;
    a dashed line where nobody knows these. One that lies above is said in a corner.
    """
    found: dict[tuple[str, str], Point] = {}
    for each in baselines:
        for name, point in each.items():
            found.setdefault((name, f"{point[1]:.{EQUAL}g}"), point)
    span = figure.layout.yaxis.range
    above = []
    for (name, _), (seconds, mql) in sorted(found.items(), key=lambda pair: pair[1][1]):
        words = in_words(name)
        if span is not None and mql > span[1]:
            above.append(f"{words}: {mql:.4g}")
        elif math.isnan(seconds):
            figure.add_hline(
                y=mql,
                line={"color": GREY, "dash": "dash", "width": 1.5},
                annotation={"text": words, "font": {"color": GREY, "size": 12}},
                annotation_position="bottom right",
            )
        else:
            figure.add_scatter(
                x=[seconds],
                y=[mql],
                mode="markers+text",
                marker={"color": GREY, "symbol": "diamond", "size": 9},
                text=[words],
                textposition="middle right",
                textfont={"color": GREY, "size": 12},
                hovertemplate=f"{words}, no network: fitted and forecast in<br>{PLACE}",
                showlegend=False,
            )
    if above:
        style.note_in_corner(figure, f"without a network, above: {', '.join(above)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifiedPoint:
    """A configuration that ran again on fresh seeds: seconds and MQL, each with its interval."""

    label: str
    time: Interval
    mql: Interval

    @property
    def at(self) -> Point:
        return self.time.estimate, self.mql.estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontSeries:
    """The trials of one study to draw: points (seconds,
    MQL), a label each, and which one is the default.

    Labels are HTML, as plotly takes it.
    """

    name: str
    points: Sequence[Point]
    labels: Sequence[str]
    variant: str = ""
    """Whose colour it has; by its name where none is said."""
    default: int | None = None
    recommended: int | None = None
    """Which one the study recommends."""
    cut_default: Point | None = None
    """Where a limit cut the default configuration,
    when it did not converge and so is none of the points."""
    verified: Sequence[VerifiedPoint] = ()
    interval: str = "interval"
    """What the verified points' bars are, e.g. `95 % interval of 10 seeds`."""
    baselines: Mapping[str, Point] = field(default_factory=dict)
    """Seconds, maybe NaN, and MQL of forecasts without a network, by their names."""


def pareto_figure(
    series: Sequence[FrontSeries],
    *,
    censored: bool = False,
    clock: str = "time to convergence (s)",
    error: str = "test MQL",
) -> go.Figure:
    """Time to convergence against MQL: all trials small and grey, each study's front as thin steps,
    the default as a star.

    What a study recommends has a ring. Verified points are large, in the middle of their
    intervals, with bars to both ends. Times that span a decade have a logarithmic axis. The figure
    looks at fronts, defaults, what is recommended and verified points: it says how many trials are
    above it.
    """
    figure = style.new_figure()
    most = max(MOST // max(len(series), 1), FEWEST)
    for each, look in zip(series, style.looks([s.variant or s.name for s in series]), strict=True):
        _draw(figure, each, look, most=most)
    if not any(each.points or each.verified for each in series):
        style.say_nothing_yet(figure, "no trial has finished yet")
    figure = style.finish(
        figure, x="time to a limit, not to convergence (s)" if censored else clock, y=error
    )
    if len(series) > style.MANY:
        intervals = next((each.interval for each in series if each.verified), "")
        style.key(
            figure,
            [
                (": trials", "grey: trials", {"opacity": 0.6, "size": 4}),
                (": default", "star: default hyperparameters", {"symbol": "star", "size": 13}),
                (": recommended", "ring: recommended", {"symbol": "circle-open", "size": 17}),
                (": verified", f"large: verified, {intervals}", {"size": 12}),
            ],
        )
    _frame(figure, series)
    draw_baselines(figure, [each.baselines for each in series])
    return figure


def _frame(figure: go.Figure, series: Sequence[FrontSeries]) -> None:
    """Choose the axes' ranges: a few slow or bad trials would press the fronts into a corner."""
    everything = [point for each in series for point in each.points]
    looked_at = [point for each in series for point in _looked_at(each)]
    if not looked_at:
        return
    without = [point for each in series for point in each.baselines.values()]
    times = [time for time, _ in (*everything, *looked_at, *without) if not math.isnan(time)]
    if min(times) > 0 and max(times) / min(times) > WIDE:
        figure.update_xaxes(style.logarithmic(min(times), max(times)))
    low, high = (pick(error for _, error in looked_at) for pick in (min, max))
    top = high + ROOM * (high - low)
    above = sum(error > top for _, error in everything)
    if high > low and above:
        margin = 0.05 * (top - low)
        figure.update_yaxes(range=[min(low, *(error for _, error in everything)) - margin, top])
        text = f"{above} trial{'s' if above > 1 else ''} above"
        style.note_in_corner(figure, text, right=True, inside=True)


def _looked_at(series: FrontSeries) -> list[Point]:
    """Front, default and verified points, with the ends of their intervals."""
    found = [series.points[i] for i in front_indices(series.points)]
    found += [series.points[series.default]] if series.default is not None else []
    found += [series.points[series.recommended]] if series.recommended is not None else []
    found += [series.cut_default] if series.cut_default is not None else []
    for point in series.verified:
        found += [(point.time.low, point.mql.low), (point.time.high, point.mql.high)]
    return found


WIDE = 10.0
"""Times that differ by more have a logarithmic axis."""
MOST, FEWEST = 4000, 60
"""Grey points that a figure has in all, and those of a study at least: of more nobody sees one."""
ROOM = 0.5
"""Above what is looked at, as a share of its height."""
PLACE = "%{x:.3f} s<br>MQL %{y:.4f}"
HOVER = f"%{{text}}<br>{PLACE}"


def _draw(figure: go.Figure, series: FrontSeries, look: Style, *, most: int) -> None:
    """Its trials, its front, and the marks of single configurations."""
    points, labels, name = series.points, series.labels, series.name
    dust = style.spread(len(points), most)
    style.draw_points(
        figure,
        [points[i] for i in dust],
        look,
        study=name,
        what="trials",
        marker={"color": GREY, "opacity": 0.35, "size": 4},
        text=[labels[i] for i in dust],
        hovertemplate=HOVER,
    )
    front = front_indices(points)
    style.draw_points(
        figure,
        [points[i] for i in front],
        look,
        study=name,
        what="front",
        marker={"size": 6},
        mode="lines+markers",
        line={"color": look.colour, "shape": "hv", "width": 1.2, "dash": look.dash},
        text=[labels[i] for i in front],
        hovertemplate=HOVER,
    )
    if series.default is not None:
        hover = f"default<br>{PLACE}"
        style.draw_default(figure, points[series.default], look, study=name, hovertemplate=hover)
    if series.cut_default is not None:
        style.draw_points(
            figure,
            [series.cut_default],
            look,
            study=name,
            what="default hyperparameters, cut by a limit",
            marker={"size": 17, "symbol": "star-open", "line": {"width": 2}},
            hovertemplate=f"default, not converged<br>{PLACE}",
        )
    if series.verified:
        what = f"verified, {series.interval}"
        draw_verified(figure, series.verified, look, study=name, what=what, filled=True)
    if series.recommended is not None:
        style.draw_points(
            figure,
            [points[series.recommended]],
            look,
            study=name,
            what="recommended",
            marker={"size": 21, "symbol": "circle-open", "line": {"width": 2.5}},
            text=[labels[series.recommended]],
            hovertemplate=f"recommended<br>{HOVER}",
        )


def draw_verified(
    figure: go.Figure,
    points: Sequence[VerifiedPoint],
    look: Style,
    *,
    study: str,
    what: str,
    filled: bool = False,
) -> None:
    """Configurations that ran on fresh seeds, in the middle of their intervals: hollow marks, or
    `filled` ones.
    """
    ink = {"color": look.colour if filled else "white"}
    style.draw_points(
        figure,
        (point.at for point in points),
        look,
        study=study,
        what=what,
        marker={"size": 11, "line": {"color": look.colour, "width": 2.5}} | ink,
        error_x=bars([point.time for point in points], look),
        error_y=bars([point.mql for point in points], look),
        text=[label(point.label) for point in points],
        hovertemplate=HOVER,
    )


def bars(intervals: Sequence[Interval], look: Style) -> dict[str, Any]:
    """Error bars to both ends of each interval, as plotly takes them."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [each.high - each.estimate for each in intervals],
        "arrayminus": [each.estimate - each.low for each in intervals],
        "color": look.colour,
        "thickness": 1.8,
        "width": 5,
    }
