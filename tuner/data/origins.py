"""The test split as blocks of time: rolling origins that a search may see, and a last block that
only a confirmation opens.

A search that chooses by the test split fits it. What is judged on windows that no search was given
is judged on windows that nothing was fitted to.
"""

from __future__ import annotations

from enum import Enum

import numpy as np
import numpy.typing as npt

from tuner.data.prepare import PreparedData
from tuner.errors import UsageError

BLOCKS = 4
"""The last one takes a fourth of a series' test windows; the others share the rest."""

Integers = npt.NDArray[np.int64]


class TestWindows(Enum):
    """Which windows of the test split are forecast."""

    __test__ = False  # pytest takes it for a test, by its name

    ALL = "all"
    SEARCHED = "searched"
    """All blocks but the last."""
    LAST_BLOCK = "last block"

    def blocks(self) -> tuple[int, ...]:
        """Their numbers, from 1, in the order of time; none where the split is not cut."""
        if self is TestWindows.ALL:
            return ()
        return (BLOCKS,) if self is TestWindows.LAST_BLOCK else tuple(range(1, BLOCKS))


def blocks_of(starts: Integers, series_index: Integers, horizon: int) -> Integers:
    """The block of each window, (N,), from 1 to `BLOCKS`; 0 for one that is in none.

    Each series is cut for itself. Its last block begins after three fourths of its windows. Those
    before it whose forecast reaches into it are in no block; what is left is cut into equal parts.

    Args:
        starts: first rows of the windows, (N,), in the order of time within a series.
        series_index: series of the windows, (N,).
        horizon: rows that a window forecasts.
    """
    found = np.zeros(len(starts), dtype=np.int64)
    for series in np.unique(series_index):
        places = np.flatnonzero(series_index == series)
        first = _first_of_last_block(len(places))
        found[places[first:]] = BLOCKS
        # All windows have the same history, so their forecasts are as far apart as they are.
        before = places[:first]
        apart = before[starts[before] + horizon <= starts[places[first]]]
        for number, part in enumerate(np.array_split(apart, BLOCKS - 1), start=1):
            found[part] = number
    return found


def check_blocks(prepared: PreparedData) -> None:
    """Whether the test split of each series can be cut.

    Raises:
        UsageError: it has too few windows.
    """
    split, horizon = prepared.test, prepared.task.horizon
    blocks = blocks_of(split.starts, split.series_index, horizon)
    for number, name in enumerate(prepared.series):
        mine = split.series_index == number
        if set(range(1, BLOCKS + 1)) <= set(blocks[mine].tolist()):
            continue
        starts = split.starts[mine]
        stride = int(starts[1] - starts[0]) if len(starts) > 1 else horizon
        raise UsageError(
            f"--mql-split origins: series {name!r} has {len(starts)} test windows, expected at "
            f"least {least_windows(horizon, stride)} to cut into {BLOCKS} blocks; give more rows "
            "or a larger test split, or choose --mql-split val"
        )


def least_windows(horizon: int, stride: int) -> int:
    """How many windows a series must have, that lie `stride` rows apart."""
    reaching = -(-horizon // stride) - 1
    windows = BLOCKS
    while _first_of_last_block(windows) - reaching < BLOCKS - 1:
        windows += 1
    return windows


def _first_of_last_block(windows: int) -> int:
    return windows * (BLOCKS - 1) // BLOCKS
