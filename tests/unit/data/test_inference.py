"""The last window of each series, as the network saw windows; and what a table may lack."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tuner.data.prepare import PreparedData, prepare
from tuner.data.recent_rows import Scaling, last_windows, observed, rows_of, timestamp
from tuner.data.source_kinds import CsvSource
from tuner.data.task import Task
from tuner.errors import DataError, TunerError, UsageError

ROWS, INPUT_SIZE, HORIZON = 60, 6, 3


def table() -> pd.DataFrame:
    hours = pd.date_range("2024-01-01 05:00", periods=ROWS, freq="h")
    random = np.random.default_rng(1)
    parts = []
    for name, level in (("north", 10.0), ("south", -300.0)):
        columns = {
            name: level + random.normal(size=ROWS).round(3)
            for name in ("load", "heat", "visitors", "price")
        }
        parts.append(
            pd.DataFrame({"ds": hours.strftime("%Y-%m-%d %H:%M"), "site": name, **columns})
        )
    return pd.concat(parts, ignore_index=True)


def make_task(path: Path, *, future: bool = True) -> Task:
    return Task(
        name="sites",
        source=CsvSource(kind="csv", path=path, id_column="site"),
        target_columns=("load", "heat"),
        frequency="h",
        input_size=INPUT_SIZE,
        horizon=HORIZON,
        calendar=("hour",),
        past_covariates=("visitors",),
        future_covariates=("price",) if future else (),
        static_id=True,
    )


@pytest.fixture(params=[True, False], ids=["future covariates", "calendar only"])
def prepared(request: pytest.FixtureRequest, tmp_path: Path) -> PreparedData:
    path = tmp_path / "sites.csv"
    table().to_csv(path, index=False)
    return prepare(make_task(path, future=request.param), cache_dir=tmp_path / "cache")


def scaling_of(prepared: PreparedData) -> Scaling:
    return Scaling(
        minimum=np.hstack([prepared.minimum, prepared.covariate_minimum]),
        scale=np.hstack([prepared.scale, prepared.covariate_scale]),
    )


def test_the_last_windows_are_those_of_the_prepared_data(prepared: PreparedData) -> None:
    """The table ends where the last test window forecasts: later targets are empty.

    Future covariates are known there.
    """
    frame = table()
    in_series = frame.groupby("site").cumcount()
    test_rows = ROWS - len(prepared.test.targets) // 2
    last = int(prepared.test.starts[prepared.test.series_index == 0][-1])
    end = test_rows + last + INPUT_SIZE
    frame.loc[in_series >= end, ["load", "heat", "visitors"]] = np.nan
    windows = last_windows(
        prepared.task, prepared.series, frame[in_series < end + HORIZON], scaling_of(prepared)
    )
    assert windows.series.tolist() == [0, 1]
    rows = np.hstack([prepared.test.targets, prepared.test.past, prepared.test.future])
    for number in (0, 1):
        first = int(prepared.test.starts[prepared.test.series_index == number][-1])
        assert np.array_equal(windows.past[number], rows[first : first + INPUT_SIZE])
        ahead = slice(first + INPUT_SIZE, first + INPUT_SIZE + HORIZON)
        assert np.array_equal(windows.future[number], prepared.test.future[ahead])
        expected = pd.date_range("2024-01-01 05:00", periods=ROWS, freq="h")[end : end + HORIZON]
        assert np.array_equal(windows.times[number], expected.to_numpy().astype("datetime64[us]"))


def test_series_may_be_some_of_those_known_in_any_order_and_time_a_real_timestamp(
    prepared: PreparedData,
) -> None:
    frame = table().iloc[ROWS:].assign(ds=lambda f: pd.to_datetime(f["ds"]))
    frame.loc[frame.index[-HORIZON:], ["load", "heat"]] = np.nan
    windows = last_windows(prepared.task, prepared.series, frame, scaling_of(prepared))
    assert windows.series.tolist() == [1]
    assert windows.past.shape == (
        1,
        INPUT_SIZE,
        prepared.shapes.n_targets + 1 + prepared.shapes.n_future,
    )


def without(frame: pd.DataFrame, row: int, column: str) -> pd.DataFrame:
    bent = frame.copy()
    bent.loc[row, column] = np.nan
    return bent


LACKING = {
    "a column": (
        lambda f: f.drop(columns="heat"),
        DataError,
        "missing column 'heat'; there are: 'ds', 'site'",
    ),
    "an unknown series": (
        lambda f: f.replace("north", "nroth"),
        UsageError,
        "did you mean 'north'",
    ),
    "no series": (
        lambda f: f.drop(columns="site"),
        UsageError,
        "lacks a column 'site': add a column that holds one of: north, south",
    ),
    "too few rows": (
        lambda f: f.iloc[: INPUT_SIZE - 1],
        DataError,
        "has 5 rows with values, the network sees 6",
    ),
    "a gap": (lambda f: f.drop(index=ROWS - 5), DataError, "where frequency 'h' expects"),
    "newest first": (lambda f: f.iloc[::-1], DataError, "oldest first"),
    "an empty cell": (
        lambda f: without(f, ROWS - 4, "heat"),
        DataError,
        "'heat' has no finite number at 2024-01-03",
    ),
    "text": (
        lambda f: f.astype({"heat": object}).replace({"heat": f["heat"][3]}, "hot"),
        DataError,
        "row 4, column 'heat': 'hot' is not a finite number",
    ),
    "the same name twice": (
        lambda f: pd.concat([f, f["heat"]], axis="columns"),
        DataError,
        "column 'heat' is there 2 times",
    ),
    "a number without end": (
        lambda f: f.assign(heat=f["heat"].mask(f.index == ROWS - 4, 1e300)),
        DataError,
        "'heat' at 2024-01-03 13:00:00 is too large a number for the network",
    ),
    "no timestamps": (
        lambda f: f.assign(ds="yesterday"),
        DataError,
        "row 1, column 'ds': 'yesterday' is not",
    ),
    "no rows": (lambda f: f.iloc[:0], DataError, "has no rows"),
}


@pytest.mark.parametrize("lack", LACKING)
def test_what_a_table_lacks_is_said_in_one_line(lack: str, tmp_path: Path) -> None:
    path = tmp_path / "sites.csv"
    table().to_csv(path, index=False)
    prepared = prepare(make_task(path, future=False), cache_dir=tmp_path / "cache")
    bend, kind, says = LACKING[lack]
    with pytest.raises(TunerError, match=says) as caught:
        last_windows(prepared.task, prepared.series, bend(table()), scaling_of(prepared))
    assert isinstance(caught.value, kind)
    assert "\n" not in str(caught.value)


def test_future_covariates_must_be_known_ahead(tmp_path: Path) -> None:
    path = tmp_path / "sites.csv"
    table().to_csv(path, index=False)
    prepared = prepare(make_task(path), cache_dir=tmp_path / "cache")
    with pytest.raises(
        DataError,
        match=r"'price' must be known for the 3 times to forecast, from 2024-01-03 17:00:00",
    ):
        last_windows(prepared.task, prepared.series, table(), scaling_of(prepared))


AHEAD = {
    "another time": (
        lambda f: f.assign(ds=f["ds"].mask(f.index == ROWS - 2, "2024-01-09 00:00")),
        "2024-01-09 00:00:00 stands where .* expects 2024-01-03 15:00:00; future covariates must",
    ),
    "no number": (
        lambda f: without(f, ROWS - 2, "price"),
        "'price' has no finite number at 2024-01-03 15:00:00",
    ),
    "infinity": (
        lambda f: f.assign(price=f["price"].mask(f.index == ROWS - 1, np.inf)),
        "row 60, column 'price': 'inf' is not a finite number",
    ),
    "too few": (lambda f: f.drop(index=ROWS - 1), "must be known for the 3 times to forecast"),
    "another frequency": (
        lambda f: f.assign(
            ds=pd.date_range("2024-01-01", periods=ROWS, freq="30min").strftime("%Y-%m-%d %H:%M")
        ),
        "2024-01-02 02:00:00 stands where frequency 'h' expects 2024-01-02 02:30:00",
    ),
    "rows of no series": (
        lambda f: f.assign(site=f["site"].mask(f.index == 0)),
        "row 1, column 'site': the cell is empty; name the row's series",
    ),
    "an empty time": (
        lambda f: f.assign(ds=f["ds"].mask(f.index == ROWS - HORIZON - INPUT_SIZE)),
        "row 52, column 'ds': '' is not an ISO 8601 timestamp",
    ),
}


@pytest.mark.parametrize("lack", AHEAD)
def test_what_the_rows_to_forecast_lack_is_said_in_one_line(lack: str, tmp_path: Path) -> None:
    path = tmp_path / "sites.csv"
    table().to_csv(path, index=False)
    prepared = prepare(make_task(path), cache_dir=tmp_path / "cache")
    bend, says = AHEAD[lack]
    frame = table().iloc[:ROWS]
    frame.loc[ROWS - HORIZON :, ["load", "heat", "visitors"]] = np.nan
    last_windows(prepared.task, prepared.series, frame, scaling_of(prepared))
    with pytest.raises(DataError, match=says) as caught:
        last_windows(prepared.task, prepared.series, bend(frame), scaling_of(prepared))
    assert "\n" not in str(caught.value)


def test_a_forecast_from_a_time_on_sees_nothing_later(prepared: PreparedData) -> None:
    whole, cut = table(), table()
    end = ROWS - 10
    in_series = cut.groupby("site").cumcount()
    cut.loc[in_series >= end, ["load", "heat", "visitors"]] = np.nan
    start = pd.date_range("2024-01-01 05:00", periods=ROWS, freq="h")[end]
    seen = [
        last_windows(prepared.task, prepared.series, frame, scaling_of(prepared), start=start)
        for frame in (whole, cut)
    ]
    assert all(np.isfinite(each.past).all() for each in seen)
    assert np.array_equal(seen[0].past, seen[1].past)
    assert np.array_equal(seen[0].future, seen[1].future)
    assert (seen[0].times[:, 0] == start.to_numpy()).all()
    assert np.isfinite(whole["load"]).all(), "the table is left as it was"


@pytest.mark.parametrize("start", ["2024-01-03 05:30", "2024-02-01", "2024-01-03 18:00"])
def test_a_time_from_which_nothing_can_be_forecast_is_refused(
    start: str, prepared: PreparedData
) -> None:
    with pytest.raises(UsageError, match=r"'north' cannot be forecast from .* would begin at"):
        last_windows(
            prepared.task, prepared.series, table(), scaling_of(prepared), start=timestamp(start)
        )


def test_a_time_with_an_offset_is_one_in_utc_and_other_words_are_none() -> None:
    assert timestamp("2024-01-03T05:00+02:00") == pd.Timestamp("2024-01-03 03:00")
    for words in ("now", "", "tomorrow", "2024-13-01"):
        with pytest.raises(UsageError, match="is no time; expected ISO 8601"):
            timestamp(words)


def test_only_the_rows_of_wanted_series_are_looked_at(prepared: PreparedData) -> None:
    task, names = prepared.task, prepared.series
    kept = rows_of(task, names, table(), ["south"])
    assert set(kept["site"]) == {"south"}
    assert list(observed(task, names, kept)) == ["south"]
    nameless = kept.drop(columns="site")
    assert set(rows_of(task, names, nameless, ["south"])["site"]) == {"south"}
    assert "site" not in rows_of(task, names, nameless, ["north", "south"])
    with pytest.raises(UsageError, match="unknown series 'sout'"):
        rows_of(task, names, table(), ["sout"])
    with pytest.raises(UsageError, match="no rows of series 'north' in column 'site'"):
        rows_of(task, names, kept, ["north"])


@pytest.mark.parametrize("as_text", [True, False], ids=["texts", "moments"])
def test_a_table_in_another_zone_is_refused_or_converted_and_told(
    as_text: bool, prepared: PreparedData, caplog: pytest.LogCaptureFixture
) -> None:
    scaling, names, task = scaling_of(prepared), prepared.series, prepared.task
    zoned = task.source.model_copy(update={"timezone": "Europe/Berlin"})
    in_berlin = task.model_copy(update={"source": zoned})
    shown = pd.to_datetime(table()["ds"]).dt.tz_localize("Europe/Berlin")
    frame = table()
    later = frame.groupby("site").cumcount() >= ROWS - HORIZON
    frame.loc[later, ["load", "heat", "visitors"]] = np.nan
    expected = last_windows(in_berlin, names, frame, scaling)

    def with_times(moments: pd.Series) -> pd.DataFrame:
        times = moments.map(lambda each: each.isoformat()) if as_text else moments
        return frame.assign(ds=times)

    with pytest.raises(UsageError, match=r"'ds' has times with an offset .* names no timezone"):
        last_windows(task, names, with_times(shown), scaling)
    same = last_windows(in_berlin, names, with_times(shown), scaling)
    assert not caplog.records
    other = last_windows(in_berlin, names, with_times(shown.dt.tz_convert("Asia/Tokyo")), scaling)
    assert "another offset than Europe/Berlin" in caplog.records[0].getMessage()
    for found in (same, other):
        np.testing.assert_array_equal(found.times, expected.times)
        np.testing.assert_array_equal(found.past, expected.past)
