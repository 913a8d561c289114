"""Who is at work, as a table: for a page where only figures can be shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tuner.report.figures.style import INK, label, new_figure, say_nothing_yet

if TYPE_CHECKING:
    import plotly.graph_objects as go


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
