"""Missing rows and empty cells of a series, filled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np
import numpy.typing as npt
import pandas as pd

from tuner.data.times import TimeColumn, Times, off_the_grid
from tuner.errors import DataError

Floats = npt.NDArray[np.float64]


def with_missing_rows(
    times: Times, values: Floats, rows: Sequence[int], frequency: str, where: TimeColumn
) -> tuple[Times, Floats]:
    """Every timestamp that `frequency` gives between the first and the last, with its values; NaN
    in those that the file lacks.

    Args:
        times: ascending, (R,).
        values: (R, C).
        rows: where each stands in the file.
        frequency: a pandas alias.
        where: the time column.

    Raises:
        DataError: a timestamp that is none of the frequency's, or more rows to make up than there
            are.
    """
    grid = _grid(times, frequency, where)
    if not len(grid) or grid[0] != times[0]:
        following = pd.date_range(pd.Timestamp(times[0]), periods=1, freq=frequency)[0]
        expected = np.datetime64(following.to_pydatetime(), "us")
        raise DataError(off_the_grid(times[0], rows[0], expected, frequency, where))
    places = np.searchsorted(grid, times)
    known = np.minimum(places, len(grid) - 1)
    strange = np.flatnonzero(grid[known] != times)
    if strange.size:
        first = int(strange[0])
        raise DataError(
            f"{where.at(rows[first])}: {where.show(times[first])} does not fit frequency "
            f"{frequency!r}, which has {where.show(grid[places[first] - 1])} before it; correct "
            "the row or the frequency, or set gaps = 'skip' under [source]"
        )
    if len(grid) > 2 * len(times):
        raise DataError(_too_many(len(grid) - len(times), len(times), where))
    filled = np.full((len(grid), values.shape[1]), np.nan)
    filled[places] = values
    return grid, filled


def fill_cells(values: Floats, how: Literal["forward", "interpolate"]) -> Floats:
    """`values`, (R, C), without its NaN: the value before; or a line to the next one, the value
    before where there is none. The first row has no NaN.
    """
    filled = values.copy()
    positions = np.arange(len(values))
    for column in range(values.shape[1]):
        known = np.isfinite(values[:, column])
        if how == "forward":
            last = np.maximum.accumulate(np.where(known, positions, 0))
            filled[:, column] = values[last, column]
        else:
            filled[:, column] = np.interp(positions, positions[known], values[known, column])
    return filled


def _grid(times: Times, frequency: str, where: TimeColumn) -> Times:
    first, last = pd.Timestamp(times[0]), pd.Timestamp(times[-1])
    offset = pd.tseries.frequencies.to_offset(frequency)
    if isinstance(offset, pd.offsets.Tick):
        steps = int((times[-1] - times[0]) // np.timedelta64(max(1, offset.nanos // 1000), "us"))
        if steps + 1 > 2 * len(times):  # before the memory for them is asked for
            raise DataError(_too_many(steps + 1 - len(times), len(times), where))
    grid: Times = pd.date_range(first, last, freq=frequency).to_numpy().astype("datetime64[us]")
    return grid


def _too_many(missing: int, there: int, where: TimeColumn) -> str:
    return (
        f"{where.file}: {missing:,} rows are missing between {there:,} that are there, and more "
        "than half would be made up; correct the frequency or the times, or set gaps = 'skip' "
        "under [source]"
    )
