"""One time series as it was read, before splitting and scaling."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Series:
    """A named, gap-free series in original units.

    `timestamps` is (R,) datetime64[us] without a time zone; `values` is (R, C + P + known) float64,
    all finite: targets, past covariates, then future covariates, in the task's order.
    """

    name: str
    timestamps: npt.NDArray[np.datetime64]
    values: npt.NDArray[np.float64]
