from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support.paths import REPOSITORY
from tests.support.small_csv import TASK, csv_lines
from tuner.api import load_data
from tuner.data.prepare import PreparedData, prepare
from tuner.data.task import load_task
from tuner.data.windows import to_device
from tuner.errors import UsageError


def check_against_slicing(prepared: PreparedData, dtype: torch.dtype) -> None:
    on_device = to_device(prepared, "cpu", dtype=dtype)
    length, sizes = prepared.shapes.input_size, prepared.shapes
    pairs = [
        (prepared.train, on_device.train),
        (prepared.val, on_device.val),
        (prepared.test, on_device.test),
    ]
    for arrays, split in pairs:
        assert len(split) == len(arrays.starts)
        index = torch.randperm(len(split), generator=torch.Generator().manual_seed(0))[:7]
        batch = split.gather(index)
        for place, number in enumerate(index.tolist()):
            start = int(arrays.starts[number])
            history, ahead = (
                slice(start, start + length),
                slice(start + length, start + length + sizes.horizon),
            )
            past = np.hstack(
                [arrays.targets[history], arrays.past[history], arrays.future[history]]
            )
            np.testing.assert_array_equal(batch.past[place].numpy(), past)
            np.testing.assert_array_equal(batch.target[place].numpy(), arrays.targets[ahead])
            if batch.future is not None:
                np.testing.assert_array_equal(batch.future[place].numpy(), arrays.future[ahead])
            if batch.static is not None:
                assert batch.static[place].tolist() == [float(arrays.series_index[number])]
        assert (batch.future is None) == (sizes.n_future == 0)
        assert (batch.static is None) == (sizes.n_static == 0)
        assert {t.dtype for t in (batch.past, batch.target)} == {dtype}
        assert batch.past.shape == (
            len(index),
            length,
            sizes.n_targets + sizes.n_past + sizes.n_future,
        )


def test_a_gathered_batch_equals_slices_of_the_reference_job(
    etth_dir: Path, tmp_path: Path
) -> None:
    check_against_slicing(
        prepare(load_task("etth"), data_dir=etth_dir, cache_dir=tmp_path), torch.float32
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_gathered_batch_equals_slices_of_the_demo(dtype: torch.dtype) -> None:
    check_against_slicing(prepare(load_task("demo")), dtype)


def test_a_gathered_batch_equals_slices_with_past_covariates_only(
    prepare_small: Callable[..., PreparedData],
) -> None:
    toml = TASK.replace('["a", "b"]', '["a"]').replace(
        "horizon = 2", 'horizon = 2\npast_covariates = ["b"]'
    )
    check_against_slicing(prepare_small(csv_lines(100), toml), torch.float32)


def test_the_inverse_gives_back_original_units(prepare_small: Callable[..., PreparedData]) -> None:
    prepared = prepare_small(csv_lines(100))
    data = to_device(prepared, "cpu")
    batch = data.test.gather(torch.tensor([1]))
    series = data.test.series_index[torch.tensor([1])]
    restored = batch.target * data.scale[series].unsqueeze(1) + data.minimum[series].unsqueeze(1)
    rows = range(80 + 2 + 6, 80 + 2 + 8)  # the second test window's horizon
    np.testing.assert_allclose(
        restored[0].numpy(), [(i % 7 + 0.5, i * 3 % 11) for i in rows], rtol=1e-6, atol=1e-6
    )


def test_the_tensors_do_not_share_memory_with_the_arrays(
    prepare_small: Callable[..., PreparedData],
) -> None:
    prepared = prepare_small(csv_lines(100))
    before = prepared.minimum.copy()
    to_device(prepared, "cpu").minimum.add_(1.0)
    np.testing.assert_array_equal(prepared.minimum, before)


def test_data_says_what_it_is_in_one_line(tmp_path: Path) -> None:
    data = to_device(prepare(load_task("demo"), cache_dir=tmp_path), "cpu")
    assert repr(data) == (
        f"<demo: demo1, demo2; {len(data.train)} train, {len(data.val)} val, "
        f"{len(data.test)} test windows; on cpu>"
    )
    assert repr(data.train) == f"<{len(data.train)} windows on cpu>"


def test_who_sees_less_of_the_past_forecasts_the_same_rows() -> None:
    whole = to_device(prepare(load_task("demo")), "cpu")
    length = whole.shapes.input_size
    part = whole.seeing(length - 7)
    assert part is whole.seeing(length - 7)
    assert whole.seeing(None) is whole.seeing(length) is whole
    assert part.shapes.input_size == part.task.input_size == length - 7
    for ours, theirs in ((part.train, whole.train), (part.val, whole.val), (part.test, whole.test)):
        assert len(ours) == len(theirs)
        index = torch.tensor([0, len(ours) // 2, len(ours) - 1])
        less, more = ours.gather(index), theirs.gather(index)
        assert torch.equal(less.past, more.past[:, 7:])
        assert torch.equal(less.target, more.target)
        assert less.future is not None
        assert more.future is not None
        assert torch.equal(less.future, more.future)
    for wrong in (0, length + 1):
        with pytest.raises(UsageError, match=f"input_size {wrong}"):
            whole.seeing(wrong)


def test_a_task_file_may_be_a_path_and_a_device_that_is_not_here_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = REPOSITORY / "notebooks" / "data" / "quick.toml"
    assert load_data(quick).shapes == load_data(str(quick)).shapes
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match="device 'cuda': torch has none here"):
        load_data("demo", device="cuda", data_dir=tmp_path)
