"""Parallel coordinates: an axis for each hyperparameter and objective, a line for each
configuration. It shows which values the good ones share.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tuner.display.text import shown_value
from tuner.report.figures import style
from tuner.report.figures.style import GREY, INK, label
from tuner.study.results import StudyResults, TrialRecord

if TYPE_CHECKING:
    import plotly.graph_objects as go

MOST = 400
"""Configurations drawn grey of a study, the latest ones."""
SPREAD = 10.0
"""An axis whose largest value is so many times its smallest is logarithmic."""
Values = dict[str, float]


LOOKS: dict[str, tuple[dict[str, Any], float]] = {
    "others": ({"color": GREY, "width": 1}, 0.35),
    "front": ({"width": 1.6}, 0.9),
    "default": ({"color": INK, "width": 2, "dash": "dash"}, 1.0),
    "recommended": ({"width": 4}, 1.0),
}
"""How the lines of each kind look, in the study's colour where no other is said; and their opacity,
the last on top."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelSeries:
    """The configurations of one study, each as its value on every axis, by their kinds: those of
    `LOOKS`.
    """

    name: str
    variant: str
    lines: Mapping[str, Sequence[Values]]


def parallel_series(
    results: StudyResults, name: str, variant: str, recommended: int | None
) -> ParallelSeries:
    """Of a study's configurations with values; those hyperparameters that are numbers."""
    there, front = results.configurations, results.on_front
    kinds = {
        "others": [each for each in there if each.number not in front][-MOST:],
        "front": results.front,
        "default": [results.default] if results.default is not None else [],
        "recommended": [each for each in there if each.number == recommended],
    }
    lines = {kind: [_values(each) for each in found] for kind, found in kinds.items()}
    return ParallelSeries(name=name, variant=variant, lines=lines)


def _values(record: TrialRecord) -> Values:
    numbers = {
        name: float(value)
        for name, value in record.params.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    return numbers | (record.named_values or {})


def parallel_figure(series: Sequence[ParallelSeries]) -> go.Figure:
    """Each study's front in its colour, its default dashed, what it recommends bold."""
    figure = style.new_figure()
    everything = [each for one in series for found in one.lines.values() for each in found]
    names = [name for name in dict.fromkeys(n for v in everything for n in v)
             if all(name in each for each in everything)]  # fmt: skip
    axes = {name: _Axis.of([each[name] for each in everything]) for name in names}
    told: set[str] = set()
    for each, look in zip(series, style.looks([s.variant for s in series]), strict=True):
        for kind, (line, opacity) in LOOKS.items():
            if each.lines[kind]:
                x, y = _lines(each.lines[kind], axes)
                # Of several studies the legend says once what is grey, dashed and bold.
                named = kind if len(series) > 1 and kind != "front" else f"{each.name}: {kind}"
                shown = {"name": label(named), "showlegend": named not in told}
                own = {"color": look.colour} | line
                figure.add_scatter(x=x, y=y, mode="lines", line=own, opacity=opacity, **shown)
                told.add(named)
    style.finish(figure, x="", y="", hovermode=False)
    figure.update_yaxes(visible=False, range=[-0.12, 1.12])
    places = list(range(len(names)))
    ends = [-0.3, len(names) - 0.7]
    figure.update_xaxes(
        range=ends, tickvals=places, ticktext=[label(name) for name in names], showgrid=False
    )
    for place, axis in zip(places, axes.values(), strict=True):
        figure.add_vline(x=place, line={"color": GREY, "width": 1})
        for at, value, anchor in ((-0.02, axis.low, "top"), (1.02, axis.high, "bottom")):
            said = shown_value(0.0 if at < 0 and axis.from_zero else value, 3)
            where = {"x": place, "y": at, "yanchor": anchor, "showarrow": False}
            figure.add_annotation(text=said, font={"size": 11, "color": GREY}, **where)
    if not everything:
        style.say_nothing_yet(figure, "no trial has finished yet")
    return figure


@dataclass(frozen=True, slots=True)
class _Axis:
    low: float
    high: float
    logarithmic: bool
    from_zero: bool = False
    """Its lowest value is 0, which has no logarithm."""

    @classmethod
    def of(cls, values: Sequence[float]) -> _Axis:
        above = min((each for each in values if each > 0), default=0.0)
        low, high = min(values), max(values)
        if low >= 0 and above and high / above > SPREAD:
            return cls(above, high, logarithmic=True, from_zero=low == 0)
        return cls(low, high, logarithmic=False)

    def place(self, value: float) -> float:
        """From 0 to 1."""
        if self.high == self.low:
            return 0.5
        if self.logarithmic:
            value = max(value, self.low)  # 0 is below all others
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def _lines(
    found: Iterable[Values], axes: dict[str, _Axis]
) -> tuple[list[float | None], list[float | None]]:
    """All of them as one trace with gaps."""
    x: list[float | None] = []
    y: list[float | None] = []
    for each in found:
        x += [*range(len(axes)), None]
        y += [*(axis.place(each[name]) for name, axis in axes.items()), None]
    return x, y
