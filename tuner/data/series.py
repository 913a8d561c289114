"""One time series as it was read, before splitting and scaling."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Series:
    """A named, gap-free series in original units.

    `timestamps` is (R,) datetime64[us] without a time zone; `values` is (R, C + P + known) float64,
    all finite: targets, past covariates, then future covariates, in the task's order. `clock` (R,)
    is what clocks showed at those times, where that is not the same; the calendar goes by it.
    `filled_rows` were missing and are made up, and so are `filled_cells` of rows that are there.
    """

    name: str
    timestamps: npt.NDArray[np.datetime64]
    values: npt.NDArray[np.float64]
    clock: npt.NDArray[np.datetime64] | None = None
    filled_rows: int = 0
    filled_cells: int = 0
