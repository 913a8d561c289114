"""From studies to figures: notebooks, reports, the dashboard and `tuner plot` show the same ones.

One module a figure. Each takes plain records, which `series` makes of a study, and returns a plotly
figure; `draw` does both by the figure's name, and `save` writes it to a file.
"""

from tuner.report.figures.draw import draw, importances_figure
from tuner.report.figures.front import pareto_figure
from tuner.report.figures.save import save, show
from tuner.report.figures.series import front_series

__all__ = ["draw", "front_series", "importances_figure", "pareto_figure", "save", "show"]
