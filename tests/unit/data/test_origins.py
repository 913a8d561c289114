"""The test split as blocks: in the order of time, equal, and none that reaches into the last."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.tiny_tasks import tiny_task
from tuner.data.prepare import (
    BLOCKS,
    PreparedData,
    TestWindows,
    blocks_of,
    prepare,
)
from tuner.errors import UsageError
from tuner.launch.plan import refuse_few_windows

HISTORY = 10


@pytest.mark.parametrize(("stride", "horizon"), [(6, 6), (1, 6), (4, 6), (7, 6), (1, 1)])
@pytest.mark.parametrize("windows", [30, 31, 61])
def test_no_window_of_the_search_forecasts_a_row_of_the_last_block(
    windows: int, stride: int, horizon: int
) -> None:
    starts = 5 + stride * np.arange(windows)
    blocks = blocks_of(starts, np.zeros(windows, dtype=np.int64), horizon)
    rows = {
        number: {
            row
            for start in starts[blocks == number]
            for row in range(start + HISTORY, start + HISTORY + horizon)
        }
        for number in range(1, BLOCKS + 1)
    }
    searched = set().union(*(rows[number] for number in range(1, BLOCKS)))
    assert max(searched) < min(rows[BLOCKS])
    # Of those that reach into it, and no others, there are none: nothing else is left out.
    first = starts[blocks == BLOCKS][0]
    left_out = starts[blocks == 0].tolist()
    assert left_out == [start for start in starts if first - horizon < start < first]
    assert len(left_out) == -(-horizon // stride) - 1
    # In the order of time, and as equal as whole windows can be.
    kept = blocks[blocks > 0]
    assert list(kept) == sorted(kept)
    sizes = [int((blocks == number).sum()) for number in range(1, BLOCKS)]
    assert max(sizes) - min(sizes) <= 1
    assert (blocks == BLOCKS).sum() == windows - windows * (BLOCKS - 1) // BLOCKS


def test_each_series_is_cut_for_itself() -> None:
    starts = np.array([*range(0, 80, 10), *range(100, 500, 10)])
    series = np.array([0] * 8 + [1] * 40)
    both = blocks_of(starts, series, 10)
    assert both[:8].tolist() == [1, 1, 2, 2, 3, 3, 4, 4]
    assert both[8:].tolist() == [1] * 10 + [2] * 10 + [3] * 10 + [4] * 10


def test_the_search_and_a_confirmation_share_no_block() -> None:
    assert TestWindows.SEARCHED.blocks() == (1, 2, 3)
    assert TestWindows.LAST_BLOCK.blocks() == (4,)
    assert TestWindows.ALL.blocks() == ()


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    return prepare(tiny_task(), cache_dir=tmp_path_factory.mktemp("prepared"))


def test_a_test_split_that_is_too_short_is_named_with_what_it_needs(
    prepared: PreparedData,
) -> None:
    refuse_few_windows(prepared)
    for kept in (0, 1, 3):
        short = _with_windows(prepared, kept)
        with pytest.raises(UsageError) as refused:
            refuse_few_windows(short)
        assert str(refused.value).startswith(
            f"--mql-split origins: series 'demo2' has {kept} test windows, too few to cut into 4 "
            "blocks of time; "
        )
    refuse_few_windows(_with_windows(prepared, 4))


def test_windows_that_overlap_need_more_of_them() -> None:
    for windows, enough in ((10, False), (11, True)):
        blocks = blocks_of(np.arange(windows), np.zeros(windows, dtype=np.int64), 6)
        assert ({1, 2, 3, 4} <= set(blocks.tolist())) is enough


def _with_windows(prepared: PreparedData, count: int) -> PreparedData:
    """With so many test windows of the second series."""
    split = prepared.test
    keep = split.series_index == 0
    keep[np.flatnonzero(split.series_index == 1)[:count]] = True
    shorter = replace(split, starts=split.starts[keep], series_index=split.series_index[keep])
    return replace(prepared, test=shorter)
