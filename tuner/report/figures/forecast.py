"""From a model and a table to fan charts: what was seen, what is forecast, and what came."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from tuner.data.recent_rows import id_column, observed, time_column
from tuner.errors import UsageError, unknown_name
from tuner.report.figures.fan import Fan

if TYPE_CHECKING:
    import pandas as pd

    from tuner.data.recent_rows import Observed
    from tuner.export.saved_model import SavedModel

MOST_PANELS = 24
HORIZONS_SEEN = 3
"""At most so many horizons of the past are drawn: of more, the forecast would be a sliver."""


def fans_of(
    model: SavedModel, frame: pd.DataFrame, forecast: pd.DataFrame, *, columns: Sequence[str] = ()
) -> list[Fan]:
    """A fan for each series and target column of a forecast.

    Args:
        model: what forecast.
        frame: the rows that it was given; those of times that were forecast say what came.
        forecast: what `model.predict` made of them.
        columns: target columns to draw; all where none is named.

    Raises:
        UsageError: an unknown column, or more panels than a figure can show.
    """
    task = model.task
    for name in columns:
        if name not in task.target_columns:
            raise unknown_name("target column", name, task.target_columns)
    wanted = columns or task.target_columns
    found = observed(task, model.series, frame)
    if len(found) * len(wanted) > MOST_PANELS:
        raise UsageError(
            f"the figure would have {len(found) * len(wanted)} panels, one for each series and "
            f"column; at most {MOST_PANELS} fit: choose some with --series and --column"
        )
    several = len(model.series) > 1
    return [
        _fan(model, name, column, rows, forecast, named=several)
        for name, rows in found.items()
        for column in wanted
    ]


def _fan(
    model: SavedModel,
    series: str,
    column: str,
    rows: Observed,
    forecast: pd.DataFrame,
    *,
    named: bool,
) -> Fan:
    task = model.task
    mine = forecast[(forecast[id_column(task)] == series) & (forecast["column"] == column)]
    times = mine[time_column(task)].to_numpy()
    values = rows.values[:, task.target_columns.index(column)]
    known = np.isfinite(rows.values).any(axis=1) & (rows.times < times[0])
    end = int(np.flatnonzero(known)[-1]) + 1  # what comes before is in order: it was checked
    begin = end - min(task.input_size, HORIZONS_SEEN * task.horizon)
    came = dict(zip(rows.times[end:].to_numpy(), values[end:], strict=True))
    return Fan(
        name=f"{series}, {column}" if named else column,
        unit=column,
        seen_times=rows.times[begin:end].to_numpy(),
        seen=values[begin:end],
        times=times,
        levels=task.quantiles,
        forecast=mine[[str(level) for level in task.quantiles]].to_numpy(dtype=np.float64),
        actual=np.array([came.get(time, np.nan) for time in times]),
    )
