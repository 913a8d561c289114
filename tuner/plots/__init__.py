"""Figures, once for all: notebooks, reports, the dashboard and `tuner plot` show the same ones.

One module a figure. Each takes plain records (`tuner.figures` makes them from a study) and returns a plotly figure;
`save` writes it to a file.
"""

from tuner.plots.curves import Curve, curves_figure
from tuner.plots.files import save
from tuner.plots.front import FrontSeries, Interval, VerifiedPoint, pareto_figure
from tuner.plots.hypervolume import VolumeSeries, hypervolume_figure
from tuner.plots.importances import importances_figure
from tuner.plots.style import COLOURS
from tuner.plots.table import table_figure
from tuner.plots.timeline import Span, timeline_figure
from tuner.plots.trade import TradeSeries, trade_figure

__all__ = [
    "COLOURS",
    "Curve",
    "FrontSeries",
    "Interval",
    "Span",
    "TradeSeries",
    "VerifiedPoint",
    "VolumeSeries",
    "curves_figure",
    "hypervolume_figure",
    "importances_figure",
    "pareto_figure",
    "save",
    "table_figure",
    "timeline_figure",
    "trade_figure",
]
