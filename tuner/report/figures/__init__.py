"""From studies to figures: notebooks, reports, the dashboard and `tuner plot` show the same ones.

One module a figure. Each takes plain records, which `series` makes of a study, and returns a plotly
figure; `draw` does both by the figure's name, and `save` writes it to a file.
"""

from tuner.report.figures.curves import (
    Curve,
    Pace,
    VolumeSeries,
    curves_figure,
    hypervolume_figure,
    throughput_figure,
)
from tuner.report.figures.draw import KINDS, draw, importances_figure
from tuner.report.figures.fan import Fan, fan_figure
from tuner.report.figures.front import FrontSeries, VerifiedPoint, pareto_figure
from tuner.report.figures.save import save
from tuner.report.figures.series import (
    common_reference,
    front_series,
    learning_curves,
    paces,
    spans_of,
    trade_series,
    verified_points,
    volume_series,
)
from tuner.report.figures.style import COLOURS
from tuner.report.figures.timeline import Span, table_figure, timeline_figure
from tuner.report.figures.trade import TradeSeries, trade_figure
from tuner.verdict.stats.intervals import Interval

__all__ = [
    "COLOURS",
    "KINDS",
    "Curve",
    "Fan",
    "FrontSeries",
    "Interval",
    "Pace",
    "Span",
    "TradeSeries",
    "VerifiedPoint",
    "VolumeSeries",
    "common_reference",
    "curves_figure",
    "draw",
    "fan_figure",
    "front_series",
    "hypervolume_figure",
    "importances_figure",
    "learning_curves",
    "paces",
    "pareto_figure",
    "save",
    "spans_of",
    "table_figure",
    "throughput_figure",
    "timeline_figure",
    "trade_figure",
    "trade_series",
    "verified_points",
    "volume_series",
]
