"""Files as strangers have them become tasks that prepare."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.support import strangers_data as strangers
from tuner.data.prepare import PreparedData, prepare
from tuner.data.proposal.proposed_task import Proposal, propose, task_name
from tuner.data.proposal.sheet import read_sheet
from tuner.data.proposal.task_text import task_text
from tuner.data.proposal.told import Told
from tuner.data.task import load_task
from tuner.errors import DataError, UsageError

Make = Callable[[Path], Path]


def proposal_for(file: Path, told: Told | None = None) -> Proposal:
    told = told or Told()
    header = None if told.header is None else told.header == "yes"
    return propose(read_sheet(file, header=header), told, task_name(file))


def prepared_by(file: Path, proposal: Proposal, folder: Path) -> PreparedData:
    """Through the text, as a person would have it."""
    path = folder / "task.toml"
    path.write_text(task_text(proposal, file, path), encoding="utf-8")
    return prepare(load_task(str(path)), cache_dir=folder / "cache")


def lines_to(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def hourly(rows: int = 500) -> list[str]:
    times = pd.date_range("2024-01-01", periods=rows, freq="h")
    return ["ds,y", *(f"{time},{i * 7 % 13}.5" for i, time in enumerate(times))]


EXPECTED: dict[Make, tuple[dict[str, object], str, int, int, int, tuple[str, ...]]] = {
    strangers.headerless_daily: (
        {"kind": "csv", "index": True, "header": False}, "D", 8, 56, 14,
        ("time_column", "frequency"),
    ),
    strangers.without_dates: (
        {"kind": "csv", "index": True}, "D", 2, 56, 14, ("time_column", "frequency"),
    ),
    strangers.with_holidays_left_out: (
        {"kind": "csv", "time_column": "Date", "gaps": "skip"}, "B", 2, 60, 10, ("gaps",),
    ),
    strangers.quarter_hours_in_local_time: (
        {"kind": "csv", "time_column": "timestamp", "timezone": "Europe/Berlin"},
        "15min", 2, 672, 96, ("timezone",),
    ),
    strangers.parquet: ({"kind": "parquet", "time_column": "time"}, "h", 3, 84, 24, ()),
    strangers.long_with_twenty_series: (
        {"kind": "csv", "time_column": "day", "id_column": "shop"}, "D", 1, 32, 7, (),
    ),
    strangers.german: (
        {
            "kind": "csv", "time_column": "Zeit", "time_format": "%d.%m.%Y %H:%M",
            "separator": ";", "decimal": ",", "encoding": "cp1252",
        },
        "h", 2, 84, 24, (),
    ),
}  # fmt: skip


@pytest.mark.parametrize("make", EXPECTED, ids=lambda make: make.__name__)
def test_a_strangers_file_becomes_a_task_that_prepares(make: Make, tmp_path: Path) -> None:
    file = make(tmp_path)
    source, frequency, targets, input_size, horizon, unsure = EXPECTED[make]
    proposal = proposal_for(file)
    assert dict(proposal.source) == source
    assert proposal.frequency == frequency
    assert (len(proposal.targets), proposal.sizes.input_size, proposal.sizes.horizon) == (
        targets, input_size, horizon,
    )  # fmt: skip
    assert tuple(guess.key for guess in proposal.guesses) == unsure
    prepared = prepared_by(file, proposal, tmp_path)
    assert prepared.task.target_columns == proposal.targets
    assert min(len(split.starts) for split in (prepared.train, prepared.val, prepared.test)) >= 4
    text = (tmp_path / "task.toml").read_text(encoding="utf-8")
    assert text.count("# A guess: ") == len(unsure)


def test_headerless_rows_are_all_read(tmp_path: Path) -> None:
    file = strangers.headerless_daily(tmp_path)
    prepared = prepared_by(file, proposal_for(file), tmp_path)
    rows = sum(len(split.targets) for split in (prepared.train, prepared.val, prepared.test))
    assert rows == 7588


def test_other_columns_are_named_with_the_reason(tmp_path: Path) -> None:
    assert proposal_for(strangers.parquet(tmp_path)).left_out == ("weather: not numbers",)
    lines = hourly()
    lines[0] += ",n,one,gone,late"
    lines[1:] = [f"{line},{i},7,,{'' if i < 9 else i * i % 11}" for i, line in enumerate(lines[1:])]
    found = proposal_for(lines_to(tmp_path / "x.csv", lines))
    assert found.targets == ("y",)
    assert found.left_out == (
        "n: counts the rows (Unix time is no time here: write dates)",
        "one: constant",
        "gone: empty",
        "late: empty in the first row of a series",
    )


def test_missing_hours_are_filled(tmp_path: Path) -> None:
    lines = hourly()
    del lines[100:104]
    found = proposal_for(lines_to(tmp_path / "x.csv", lines))
    assert (found.source["gaps"], found.missing_rows) == ("fill", 4)
    assert prepared_by(tmp_path / "x.csv", found, tmp_path).filled_rows == (4,)


def test_empty_cells_are_filled(tmp_path: Path) -> None:
    lines = hourly()
    lines[40] = lines[40].partition(",")[0] + ","
    found = proposal_for(lines_to(tmp_path / "x.csv", lines))
    assert (found.source["gaps"], found.missing_cells) == ("fill", 1)
    assert prepared_by(tmp_path / "x.csv", found, tmp_path).filled_cells == (1,)


@pytest.mark.parametrize(
    ("frequency", "calendar", "usual"),
    [
        ("min", ("minute", "hour"), (672, 96)),
        ("h", ("hour", "day_of_week", "month"), (168, 24)),
        ("2h", ("hour", "day_of_week", "month"), (84, 12)),
        ("D", ("day_of_week", "month"), (56, 14)),
        ("B", ("day_of_week", "month"), (60, 10)),
        ("W-SUN", ("month",), (52, 8)),
        ("W-WED", ("month",), (52, 8)),
        ("MS", ("month",), (36, 12)),
        ("ME", ("month",), (36, 12)),
        ("QS-JAN", ("quarter",), (16, 4)),
        ("QE-MAR", ("quarter",), (16, 4)),
        ("YS-JAN", (), (12, 3)),
    ],
)
def test_each_frequency_is_recognised(
    tmp_path: Path, frequency: str, calendar: tuple[str, ...], usual: tuple[int, int]
) -> None:
    rows = 9000 if frequency in ("min", "h", "2h") else 250 if frequency[0] in "QY" else 1500
    times = pd.date_range(
        "1890-01-01" if rows < 9000 else "2000-01-01", periods=rows, freq=frequency
    )
    values = np.sin(np.arange(rows) / 3)
    lines = ["when,y", *(f"{t:%Y-%m-%d %H:%M},{v:.3f}" for t, v in zip(times, values, strict=True))]
    found = proposal_for(lines_to(tmp_path / "x.csv", lines))
    assert (found.frequency, found.calendar) == (frequency, calendar)
    assert (found.sizes.input_size, found.sizes.horizon) == usual
    assert not found.guesses


def test_sizes_are_never_more_than_the_splits_allow(tmp_path: Path) -> None:
    for rows in (20, 30, 50, 100, 200):
        file = lines_to(tmp_path / "x.csv", hourly(rows))
        found = proposal_for(file)
        assert found.sizes.shortened
        assert min(len(prepared_by(file, found, tmp_path).test.starts), 1) == 1


def test_what_is_said_counts(tmp_path: Path) -> None:
    file = strangers.parquet(tmp_path)
    told = Told(horizon=3, input_size=5, targets=("b",), time_column="none", frequency="W-MON")
    found = proposal_for(file, told)
    assert (found.sizes.horizon, found.sizes.input_size, found.targets) == (3, 5, ("b",))
    assert dict(found.source) == {"kind": "parquet", "index": True}
    assert found.frequency == "W-MON"
    assert not found.guesses


def test_an_answer_settles_a_guess(tmp_path: Path) -> None:
    file = strangers.with_holidays_left_out(tmp_path)
    found = proposal_for(file, Told(gaps="fill"))
    assert not found.guesses
    assert prepared_by(file, found, tmp_path).filled_rows == (found.missing_rows,)


def test_days_and_months_are_told_apart_by_their_steps(tmp_path: Path) -> None:
    days = pd.date_range("2024-01-01", periods=200)
    for form in ("%d/%m/%Y", "%m/%d/%Y"):
        lines = ["date,y", *(f"{day:{form}},{i % 9}" for i, day in enumerate(days))]
        found = proposal_for(lines_to(tmp_path / "x.csv", lines))
        assert (found.source["time_format"], found.frequency) == (form, "D")


def test_days_as_whole_numbers_are_times(tmp_path: Path) -> None:
    days = pd.date_range("2024-01-01", periods=200)
    lines = ["date,y", *(f"{day:%Y%m%d},{i % 9}" for i, day in enumerate(days))]
    found = proposal_for(lines_to(tmp_path / "x.csv", lines))
    assert (found.source["time_format"], found.frequency) == ("%Y%m%d", "D")


def test_a_table_of_pandas_with_its_index_is_read(tmp_path: Path) -> None:
    index = pd.date_range("2024-01-01", periods=300, freq="h")
    pd.DataFrame({"y": np.arange(300) % 9}, index=index).to_csv(tmp_path / "x.csv")
    found = proposal_for(tmp_path / "x.csv")
    assert (found.source["time_column"], found.targets) == ("column_1", ("y",))
    prepared_by(tmp_path / "x.csv", found, tmp_path)


def test_a_first_row_of_years_may_be_a_header(tmp_path: Path) -> None:
    lines = ["2019,2020", *(f"{i % 7}.5,{i % 5}.5" for i in range(200))]
    (guess, *_) = proposal_for(lines_to(tmp_path / "x.csv", lines)).guesses
    assert (guess.key, guess.value, guess.choices) == ("header", "no", ("yes", "no"))
    named = proposal_for(tmp_path / "x.csv", Told(header="yes"))
    assert named.targets == ("2019", "2020")


def test_irregular_times_are_skipped_over(tmp_path: Path) -> None:
    minutes = [60 * i + 7 * (i % 3) for i in range(300)]
    times = pd.Timestamp("2024-01-01") + pd.to_timedelta(minutes, "min")
    lines = ["ds,y", *(f"{time},{i % 9}" for i, time in enumerate(times))]
    found = proposal_for(lines_to(tmp_path / "x.csv", lines))
    assert found.source["gaps"] == "skip"
    prepared_by(tmp_path / "x.csv", found, tmp_path)


def test_a_column_that_is_not_there_is_refused(tmp_path: Path) -> None:
    file = strangers.without_dates(tmp_path)
    with pytest.raises(UsageError, match=r"unknown column of --targets 'hea'.*did you mean 'heat'"):
        proposal_for(file, Told(targets=("hea",)))
    with pytest.raises(DataError, match=r"--time-column: .* has no column 'when'; there are"):
        proposal_for(file, Told(time_column="when"))
    with pytest.raises(DataError, match=r"--time-column: column 'load' .* holds no times"):
        proposal_for(file, Told(time_column="load"))
    with pytest.raises(UsageError, match="--frequency: 'often' is no pandas frequency"):
        proposal_for(file, Told(frequency="often"))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("exchange_rate.csv", "exchange_rate"),
        ("Meine Daten (neu).csv", "Meine-Daten-neu"),
        ("demo.csv", "demo-own"),
        ("__.csv", "mine"),
        ("ü.csv", "mine"),
        (f"{'x' * 90}.csv", "x" * 56),
    ],
)
def test_a_task_is_named_like_its_file(name: str, expected: str) -> None:
    assert task_name(Path(name)) == expected


def test_days_and_times_of_day_in_two_columns_are_refused(tmp_path: Path) -> None:
    times = pd.date_range("2024-01-01", periods=400, freq="h")
    lines = ["Date,Time,y", *(f"{t:%d/%m/%Y},{t:%H:%M:%S},{i % 9}" for i, t in enumerate(times))]
    with pytest.raises(DataError, match="the day stands in column 'Date' and the time of day in"):
        proposal_for(lines_to(tmp_path / "x.csv", lines))


def test_unix_time_is_no_target(tmp_path: Path) -> None:
    lines = ["time,y", *(f"{1_700_000_000 + 3600 * i},{i % 9}" for i in range(400))]
    assert proposal_for(lines_to(tmp_path / "x.csv", lines)).targets == ("y",)


def test_columns_of_the_same_name_are_left_out(tmp_path: Path) -> None:
    lines = [f"{line},{line.partition(',')[2]}" for line in hourly()]
    lines[0] = "ds,y,y"
    file = lines_to(tmp_path / "x.csv", [f"{line},{i % 9}" for i, line in enumerate(lines)])
    found = proposal_for(file)
    assert found.targets == ("0",)
    assert found.left_out == ("2 columns: others have the same name; rename them",)


def test_series_in_local_time_below_each_other_are_told_apart(tmp_path: Path) -> None:
    utc = pd.date_range("2024-01-01", "2024-12-31", freq="h", tz="UTC")
    lines = ["time,site,y"]
    for site in "xyz":
        local = utc.tz_convert("America/New_York")
        lines += [f"{t:%Y-%m-%d %H:%M},{site},{i % 17}" for i, t in enumerate(local)]
    file = lines_to(tmp_path / "x.csv", lines)
    found = proposal_for(file)
    assert (found.source["id_column"], found.source["timezone"]) == ("site", "America/New_York")
    assert prepared_by(file, found, tmp_path).series == ("x", "y", "z")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig", "latin-1"])
@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
def test_each_encoding_and_separator_is_found_out(
    tmp_path: Path, encoding: str, separator: str
) -> None:
    text = "\n".join(line.replace(",", separator) for line in hourly()).replace("y", "Wärme")
    (tmp_path / "x.csv").write_bytes(text.encode(encoding))
    found = proposal_for(tmp_path / "x.csv")
    assert found.targets == ("Wärme",)
    prepared_by(tmp_path / "x.csv", found, tmp_path)


def test_days_that_could_be_months_are_asked_about(tmp_path: Path) -> None:
    days = [f"{day:02d}/{day:02d}/2024" for day in range(1, 13)]
    times = [f"{day} {hour:02d}:00" for day in days for hour in range(24)]
    file = lines_to(tmp_path / "x.csv", ["date,y", *(f"{t},{i % 9}" for i, t in enumerate(times))])
    guesses = {guess.key: guess for guess in proposal_for(file).guesses}
    assert guesses["time_format"].choices == ("%d/%m/%Y %H:%M", "%m/%d/%Y %H:%M")
    told = Told(time_format="%m/%d/%Y %H:%M")
    found = proposal_for(file, told)
    assert found.source["time_format"] == "%m/%d/%Y %H:%M"
    assert "time_format" not in {guess.key for guess in found.guesses}


def test_an_unknown_time_zone_is_refused(tmp_path: Path) -> None:
    file = strangers.quarter_hours_in_local_time(tmp_path)
    with pytest.raises(UsageError, match="unknown time zone 'Berlin'"):
        proposal_for(file, Told(timezone="Berlin"))
    assert not proposal_for(file, Told(timezone="Europe/Paris")).guesses


def test_names_write_nothing_into_the_file(tmp_path: Path) -> None:
    lines = hourly()
    lines[0] += ',"mood\nhorizon = 9\n[x]","it\'s ""hot"" # 5"'
    lines[1:] = [f"{line},good,{i % 9}" for i, line in enumerate(lines[1:])]
    file = lines_to(tmp_path / "it's # 1.csv", lines)
    found = proposal_for(file)
    assert found.targets == ("y", """it's "hot" # 5""")
    prepared = prepared_by(file, found, tmp_path)
    assert prepared.task.target_columns == found.targets
    assert prepared.task.horizon == found.sizes.horizon != 9


def test_what_the_file_only_mentions_can_be_said(tmp_path: Path) -> None:
    file = strangers.without_dates(tmp_path)
    path = tmp_path / "task.toml"
    text = task_text(proposal_for(file), file, path)
    for mentioned in ("objective", "start", "calendar", "past_covariates", "future_covariates"):
        text, changes = re.subn(rf"^# ({mentioned} = .*)$", r"\1", text, flags=re.MULTILINE)
        assert changes == 1, mentioned
    path.write_text(text, encoding="utf-8")
    task = load_task(str(path))
    assert (task.objective.value, task.calendar) == ("scaled", ("day_of_week", "month"))
    prepare(task, cache_dir=tmp_path / "cache")
