"""Which hyperparameter matters for which objective."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tuner.report.figures.style import finish, label, new_figure, say_nothing_yet, style_of

if TYPE_CHECKING:
    import plotly.graph_objects as go

PATTERNS = ("", "/", ".", "x", "-", "|")


def importances_figure(
    importances: Mapping[str, Mapping[str, float]], *, title: str = ""
) -> go.Figure:
    """Shares of each objective's variation by hyperparameter: `{objective: {hyperparameter: share
    from 0 to 1}}`.

    The hyperparameter with the largest share of any objective stands at the top.
    """
    figure = new_figure()
    names = {name for shares in importances.values() for name in shares}
    largest = {
        name: max(shares.get(name, 0.0) for shares in importances.values()) for name in names
    }
    order = sorted(names, key=lambda name: (largest[name], name))
    for index, (objective, shares) in enumerate(importances.items()):
        style = style_of(index)
        values = [shares.get(name) for name in order]  # None where a study has no such one
        figure.add_bar(
            x=values,
            y=[label(name) for name in order],
            orientation="h",
            name=label(objective),
            text=["" if value is None else f"{value:.0%}" for value in values],
            textposition="outside",
            cliponaxis=False,
            marker={
                "color": style.colour,
                "pattern": {"shape": PATTERNS[index % len(PATTERNS)], "fgcolor": "white"},
            },
            hovertemplate="%{y}<br>%{x:.1%}<extra>%{fullData.name}</extra>",
        )
    if not order:
        say_nothing_yet(figure, "too few finished trials")
    finish(figure, title=title, x="share of the objective's variation", y="", barmode="group")
    figure.update_xaxes(tickformat=".0%", rangemode="tozero")
    return figure
