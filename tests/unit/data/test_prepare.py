from __future__ import annotations

import shutil
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.small_csv import LONG, TASK, csv_lines
from tuner.data.prepare import PreparedData, prepare
from tuner.data.source_kinds import CsvSource, DemoSource
from tuner.data.splits import split_sizes
from tuner.data.task import Task, load_task
from tuner.errors import DataError, UsageError

Prepare = Callable[..., PreparedData]


@pytest.fixture(scope="module")
def etth(etth_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    return prepare(load_task("etth"), data_dir=etth_dir, cache_dir=tmp_path_factory.mktemp("cache"))


def test_the_reference_job_has_the_protocols_counts(etth: PreparedData) -> None:
    assert etth.series == ("ETTh1", "ETTh2")
    assert [len(split.targets) for split in (etth.train, etth.val, etth.test)] == [
        2 * 10_452,
        2 * 3_484,
        2 * 3_484,
    ]
    assert [len(split.starts) for split in (etth.train, etth.val, etth.test)] == [
        20_522,
        6_586,
        2 * 138,
    ]
    assert np.bincount(etth.train.series_index).tolist() == [10_261, 10_261]
    assert etth.static.tolist() == [[0.0], [1.0]]
    assert {split.targets.dtype for split in (etth.train, etth.val, etth.test)} == {
        np.dtype(np.float32)
    }


def test_scaled_values_of_the_reference_job_are_those_of_the_file(
    etth: PreparedData, etth_dir: Path
) -> None:
    raw = np.genfromtxt(etth_dir / "ETTh2.csv", delimiter=",", skip_header=1, usecols=range(1, 8))
    low, high = raw[:10_452].min(axis=0), raw[:10_452].max(axis=0)
    np.testing.assert_allclose(etth.minimum[1], low, rtol=1e-12)
    np.testing.assert_allclose(etth.scale[1], high - low, rtol=1e-12)
    expected = (raw[10_452 + 3_484 :] - low) / (high - low)
    np.testing.assert_allclose(etth.test.targets[3_484:], expected, atol=1e-6)


def test_the_first_test_forecast_starts_after_one_input_of_the_test_split(
    etth: PreparedData,
) -> None:
    assert etth.test.starts[:3].tolist() == [0, 24, 48]
    assert etth.test.starts[138] == 3_484


def test_the_reference_jobs_calendar_is_the_protocols(etth: PreparedData) -> None:
    row = 5 * 24 + 7  # 2016-07-06 07:00, a Wednesday in July
    angles = 2 * np.pi * np.array([7 / 24, 2 / 7, 6 / 12])
    expected = np.stack([np.sin(angles), np.cos(angles)], axis=1).reshape(-1)
    np.testing.assert_allclose(etth.train.future[row], expected, atol=1e-6)


@pytest.mark.parametrize(
    ("rows", "split", "sizes"),
    [
        (17_420, (0.6, 0.2, 0.2), (10_452, 3_484, 3_484)),
        (1_601, (0.6, 0.2, 0.2), (960, 320, 321)),
        (10, (0.7, 0.1, 0.2), (7, 1, 2)),  # 0.7 + 0.1 is below 0.8 in binary
        (10, (0.1, 0.2, 0.7), (1, 2, 7)),
    ],
)
def test_split_sizes_are_exact(
    rows: int, split: tuple[float, float, float], sizes: tuple[int, int, int]
) -> None:
    assert split_sizes(rows, split) == sizes


def demo_of(rows: int, input_size: int, horizon: int, split: tuple[float, float, float]) -> Task:
    task = load_task("demo")
    source = DemoSource(kind="demo", rows=rows, seed=3)
    return task.model_copy(
        update={
            "source": source,
            "input_size": input_size,
            "horizon": horizon,
            "split": split,
            "calendar": ("hour",),
        }
    )


@settings(max_examples=25)
@given(
    extra=st.integers(0, 150),
    input_size=st.integers(1, 12),
    horizon=st.integers(1, 6),
    split=st.sampled_from([(0.6, 0.2, 0.2), (0.5, 0.25, 0.25), (0.7, 0.15, 0.15), (0.2, 0.3, 0.5)]),
)
def test_windows_never_cross_a_split_or_a_series(
    tmp_path_factory: pytest.TempPathFactory,
    extra: int,
    input_size: int,
    horizon: int,
    split: tuple[float, float, float],
) -> None:
    window = input_size + horizon
    rows = int(window / min(split)) + 8 + extra
    prepared = prepare(
        demo_of(rows, input_size, horizon, split),
        cache_dir=tmp_path_factory.getbasetemp() / "demos",
    )
    sizes = split_sizes(rows, split)
    for one, size, stride in zip(
        (prepared.train, prepared.val, prepared.test), sizes, (1, 1, horizon), strict=True
    ):
        assert len(one.targets) == 2 * size
        first_series, last_series = one.starts // size, (one.starts + window - 1) // size
        assert (first_series == one.series_index).all()
        assert (last_series == one.series_index).all()
        for number in (0, 1):
            starts = one.starts[one.series_index == number] - number * size
            assert starts.tolist() == list(range(0, size - window + 1, stride))


def test_scaling_is_fitted_on_train_only(prepare_small: Prepare) -> None:
    before = prepare_small(csv_lines(60))
    lines = csv_lines(60)
    for row in range(38, 62):  # validation and test rows
        lines[row - 1] = lines[row - 1].rsplit(",", 1)[0] + ",1000"
    after = prepare_small(lines)
    np.testing.assert_array_equal(after.minimum, before.minimum)
    np.testing.assert_array_equal(after.scale, before.scale)
    np.testing.assert_array_equal(after.train.targets, before.train.targets)
    assert after.val.targets[:, 1].min() == pytest.approx(100.0)


def test_a_constant_column_works(prepare_small: Prepare) -> None:
    lines = [
        lines if i == 0 else lines.rsplit(",", 1)[0] + ",42"
        for i, lines in enumerate(csv_lines(60))
    ]
    prepared = prepare_small(lines)
    assert prepared.scale[0, 1] == 1.0
    assert prepared.minimum[0, 1] == 42.0
    assert (prepared.train.targets[:, 1] == 0).all()


def test_values_that_scaling_makes_too_large_are_named(prepare_small: Prepare) -> None:
    lines = [
        line if i == 0 else line.rsplit(",", 1)[0] + f",{i % 2}e-30"
        for i, line in enumerate(csv_lines(60))
    ]
    lines[-1] = lines[-1].rsplit(",", 1)[0] + ",1e30"
    with pytest.raises(
        Exception, match=r"small\.csv: series 'small', column 'b': the values are too large"
    ):
        prepare_small(lines)


def test_values_whose_range_is_beyond_all_numbers_are_named_in_one_line(
    prepare_small: Prepare,
) -> None:
    """Without a warning of NumPy before it."""
    lines = [
        line if i == 0 else line.rsplit(",", 1)[0] + ("," + "-" * (i % 2) + "1e308")
        for i, line in enumerate(csv_lines(60))
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(DataError, match="'b': the values are too large for 32-bit"):
            prepare_small(lines)


def test_covariates_are_scaled_and_the_calendar_is_not(prepare_small: Prepare) -> None:
    toml = TASK.replace('["a", "b"]', '["a"]').replace(
        "horizon = 2", 'horizon = 2\nfuture_covariates = ["b"]\ncalendar = ["day_of_month"]'
    )
    prepared = prepare_small(csv_lines(60), toml)
    assert prepared.train.past.shape == (36, 0)
    np.testing.assert_allclose(
        prepared.train.future[:, 0], [(i * 3 % 11) / 10 for i in range(36)], rtol=1e-6
    )
    angle = 2 * np.pi * 1 / 31  # the second of January
    np.testing.assert_allclose(
        prepared.train.future[24, 1:], [np.sin(angle), np.cos(angle)], rtol=1e-6
    )


def test_an_objective_series_that_is_not_there_is_a_usage_error(prepare_small: Prepare) -> None:
    toml = LONG.replace("horizon = 2", 'horizon = 2\nobjective_series = "nort"')
    lines = ["unique_id,ds,y", *(f"north,{line.rsplit(',', 1)[0]}" for line in csv_lines(60)[1:])]
    with pytest.raises(
        UsageError, match=r"unknown objective_series 'nort' \(did you mean 'north'\?\)"
    ):
        prepare_small(lines, toml)


def test_without_a_static_id_there_is_no_static_covariate(prepare_small: Prepare) -> None:
    prepared = prepare_small(csv_lines(60))
    assert prepared.static.shape == (1, 0)
    assert prepared.shapes.n_static == 0


def test_the_hash_does_not_depend_on_where_the_file_lies(
    task_file: Callable[..., Task], tmp_path: Path
) -> None:
    task = task_file(csv_lines(60))
    other = tmp_path / "elsewhere"
    other.mkdir()
    shutil.copy(tmp_path / "small.csv", other / "renamed.csv")
    source = task.source
    assert isinstance(source, CsvSource)
    moved = task.model_copy(
        update={"source": source.model_copy(update={"path": other / "renamed.csv"})}
    )
    hashes = [
        prepare(t, cache_dir=tmp_path / f"cache{i}").data_hash for i, t in enumerate((task, moved))
    ]
    assert hashes[0] == hashes[1]


def test_the_hash_changes_with_one_cell_with_a_timestamp_and_with_the_task(
    prepare_small: Prepare,
) -> None:
    lines = csv_lines(60)
    one_cell = [*lines[:-1], lines[-1].rsplit(",", 1)[0] + ",99"]
    one_day_later = [line.replace("2024-01", "2024-03") for line in lines]
    hashes = {prepare_small(some).data_hash for some in (lines, one_cell, one_day_later)}
    hashes.add(prepare_small(lines, TASK.replace("horizon = 2", "horizon = 3")).data_hash)
    assert len(hashes) == 4


def test_the_hash_does_not_change_with_the_description_or_an_unused_column(
    prepare_small: Prepare,
) -> None:
    plain = prepare_small(csv_lines(60)).data_hash
    assert prepare_small(csv_lines(60), 'description = "words"\n' + TASK).data_hash == plain
    assert prepare_small([f"{line},c" for line in csv_lines(60)]).data_hash == plain


def test_the_hash_of_the_demo_is_the_same_everywhere() -> None:
    """Values are rounded, so another machine's sine changes nothing; another generator does."""
    hashed = prepare(load_task("demo")).data_hash
    assert hashed == "b11a790cd50a359d8c6c3dc0a5f0edc19f485529eb84f78dcb0393c0d1e8ff7e"
