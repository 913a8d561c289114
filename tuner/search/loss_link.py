"""The error that a validation loss may come with, by the trials that have finished."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
LINKED = 1000
"""Trials at most that the slope of the link is fitted to:
the pairs of more take as long as a short training."""


@dataclass(frozen=True, slots=True)
class Link:
    """The error that a validation loss may come with:
    a line in logarithms, moved to a low residual.

    Below the lowest finished loss, where nothing was seen, the error falls at least in proportion:
    both are quantile losses, and trials that all ended at one loss would else say that a better one
    gains nothing.
    """

    slope: float
    intercept: float
    lowest: float
    """Logarithm of the lowest finished loss."""

    def __call__(self, log_loss: float) -> float:
        """MQL, optimistically, of a training whose best validation loss has this logarithm."""
        beyond = min(0.0, log_loss - self.lowest)
        return math.exp(
            self.intercept + self.slope * (log_loss - beyond) + max(self.slope, 1.0) * beyond
        )

    @staticmethod
    def fitted(losses: Sequence[float], mqls: Sequence[float], *, quantile: float) -> Link:
        """The line through finished trials,
        by the median of the slopes of all pairs, and never falling.

        Of more than `LINKED` trials as many stand for all in the slope, spread evenly over the
        order of their losses.

        Source: Sen, "Estimates of the regression coefficient based on Kendall's tau", JASA 63
            (1968).
        """
        x, y = np.log(losses), np.log(mqls)
        some_x, some_y = x, y
        if len(x) > LINKED:
            some = np.argsort(x, kind="stable")[np.linspace(0, len(x) - 1, LINKED).astype(int)]
            some_x, some_y = x[some], y[some]
        i, j = np.triu_indices(len(some_x), k=1)
        apart = some_x[i] != some_x[j]
        slopes = (some_y[i] - some_y[j])[apart] / (some_x[i] - some_x[j])[apart]
        slope = max(0.0, float(np.median(slopes))) if slopes.size else 0.0
        return Link(
            slope, float(np.quantile(y - slope * x, quantile, method="lower")), float(x.min())
        )
