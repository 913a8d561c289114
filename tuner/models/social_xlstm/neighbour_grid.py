"""Which detectors lie in which cell of the square around each one: made once, from positions.

Source: Alahi et al., "Social LSTM: Human Trajectory Prediction in Crowded Spaces", CVPR 2016,
equation 1: around each one lies a square grid, and the hidden states of the others in a cell are
added up. People walk, so there the grid is new at each step; detectors stand, so here it is one
table.

Legend: N detectors, G cells that are not empty everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from tuner.errors import UsageError

Floats = npt.NDArray[np.float64]

MOST_DETECTORS = 4096
"""Of which a table of all pairs is made: gigabytes from here on."""
FEW_NEIGHBOURS = 2
"""Fewer are less than one to each side of a road."""
SLACK = 1e-9
"""Of a cell's width: what lies on an edge but for rounding lies inside."""


def neighbour_cells(
    positions: Sequence[tuple[float, float]], *, radius: float, grid: int
) -> npt.NDArray[np.float32]:
    """A table of ones and zeros: whether detector M is in cell G of the grid around detector N.

    Nobody is in a grid of his own. A cell that is empty around everybody is left out.

    Args:
        positions: (N, 2), in any one unit of length.
        radius: half the side of the square, in `usual_distance`s; at least 1.
        grid: cells to a side, an even number.

    Returns:
        (N, G, N).

    Raises:
        UsageError: all at one place, or more detectors than a table of all pairs can have.
    """
    if len(positions) > MOST_DETECTORS:
        raise UsageError(
            f"social pooling keeps a table of all pairs, for at most {MOST_DETECTORS:,} detectors, "
            f"and the task has {len(positions):,}; split the task, or set pooling = 'none' under "
            "[model_settings]"
        )
    places = np.asarray(positions, dtype=np.float64)
    reach = radius * usual_distance(places)
    apart = places[None, :] - places[:, None]  # (N, M, 2): from each one to the others
    width = 2 * reach / grid
    near: npt.NDArray[np.bool_] = np.all(np.abs(apart) <= reach * (1 + SLACK), axis=-1)
    inside = near & ~np.eye(len(places), dtype=np.bool_)
    # The same to both sides: a neighbour on an edge is in the nearer of two cells.
    rings = np.ceil(np.abs(apart) / width - SLACK).astype(np.int64).clip(1, grid // 2)
    steps = np.where(apart >= 0, grid // 2 + rings - 1, grid // 2 - rings)
    cells = steps[..., 0] * grid + steps[..., 1]
    of, other = np.nonzero(inside)
    used, column = np.unique(cells[inside], return_inverse=True)
    table = np.zeros((len(places), len(used), len(places)), dtype=np.float32)
    table[of, column, other] = 1.0
    return table


def pooling_in_words(positions: Sequence[tuple[float, float]], radius: float) -> str:
    """Over how many others each detector pools, for the person who chose the radius.

    Args:
        positions: (N, 2), in any one unit of length.
        radius: half the side of the square, in `usual_distance`s.

    Raises:
        UsageError: as `neighbour_cells`.
    """
    table = neighbour_cells(positions, radius=radius, grid=2)
    others = table.sum(axis=(1, 2))
    usual = usual_distance(np.asarray(positions, dtype=np.float64))
    least, middle, most = int(others.min()), float(np.median(others)), int(others.max())
    pairs = ""
    if middle < FEW_NEIGHBOURS:
        pairs = (
            "; where detectors stand in pairs, such as of two carriageways, that distance is one "
            "within a pair, and pool_radius has to be larger"
        )
    return (
        f"a detector pools over {least} to {most} others, {middle:g} in the median: those within "
        f"{radius:g} times {usual:.4g}, the usual distance to the next one{pairs}"
    )


def usual_distance(places: Floats) -> float:
    """The median distance from a detector, (N, 2), to the nearest one at another place.

    Raises:
        UsageError: there is no other place.
    """
    nearest = []
    for place in places:  # row by row: a table of all distances would hold N * N numbers again
        distances = np.hypot(*(places - place).T)
        elsewhere = distances[distances > 0]
        if len(elsewhere):
            nearest.append(float(elsewhere.min()))
    if not nearest:
        raise UsageError(
            "social pooling needs detectors at two places at least, and the task's are all at one; "
            "correct its positions, or set pooling = 'none' under [model_settings]"
        )
    return float(np.median(nearest))
