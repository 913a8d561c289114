"""Files as strangers have them become tasks that prepare."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.support import strangers_data as strangers
from tests.support.proposed_tasks import hourly, lines_to, prepared_by, proposal_for
from tuner.cli.task_text import task_text
from tuner.data.prepare import prepare
from tuner.data.proposal.proposed_task import task_name
from tuner.data.proposal.sheet import Told
from tuner.data.task import load_task
from tuner.errors import DataError, UsageError

Make = Callable[[Path], Path]
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
    strangers.parquet: ({"kind": "parquet", "time_column": "time"}, "h", 3, 84, 24, ("bounds",)),
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
        "n: counts the rows",
        "one: constant",
        "gone: empty",
        "late: empty in the first row of a series",
    )


@pytest.mark.parametrize("written", ["csv", "parquet"])
@pytest.mark.parametrize("index", ["of each series", "with rows lost"])
def test_the_index_of_a_data_frame_is_no_target(index: str, written: str, tmp_path: Path) -> None:
    """As `df.to_csv()` writes it: a first column without a name."""
    frames = [
        pd.DataFrame(
            {
                "shop": shop,
                "when": pd.date_range("2024-01-01", periods=200, freq="h"),
                "sold": np.cumsum(np.arange(200) % 7 + 1),
                "y": np.sin(np.arange(200) + len(shop)),
            }
        )
        for shop in ("north", "south")
    ]
    if index == "with rows lost":
        frames = [each.set_index(each.index * 3 + each.index % 2) for each in frames]
    whole, file = pd.concat(frames), tmp_path / f"x.{written}"
    if written == "csv":
        whole.to_csv(file)
    else:
        whole.to_parquet(file, index=True)
    found = proposal_for(file)
    assert found.targets == ("sold", "y"), "a count is none of rows because it goes up"
    (left,) = found.left_out
    assert left.startswith(("column_1: counts the rows", "__index_level_0__: counts the rows"))


def test_empty_cells_are_filled(tmp_path: Path) -> None:
    lines = hourly()
    lines[40] = lines[40].partition(",")[0] + ","
    found = proposal_for(lines_to(tmp_path / "x.csv", lines))
    assert found.source["gaps"] == "fill"
    assert prepared_by(tmp_path / "x.csv", found, tmp_path).filled_cells == (1,)


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
    assert prepared_by(file, found, tmp_path).filled_rows == (11,)


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


def test_a_column_that_is_not_there_is_refused(tmp_path: Path) -> None:
    file = strangers.without_dates(tmp_path)
    with pytest.raises(UsageError, match=r"unknown column of --targets 'hea'.*did you mean 'heat'"):
        proposal_for(file, Told(targets=("hea",)))
    with pytest.raises(UsageError, match=r"unknown column of --time-column 'when'.*there are"):
        proposal_for(file, Told(time_column="when"))
    with pytest.raises(DataError, match=r"column 'load': holds no times in a form"):
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


def test_columns_of_the_same_name_are_left_out(tmp_path: Path) -> None:
    lines = [f"{line},{line.partition(',')[2]}" for line in hourly()]
    lines[0] = "ds,y,y"
    file = lines_to(tmp_path / "x.csv", [f"{line},{i % 9}" for i, line in enumerate(lines)])
    found = proposal_for(file)
    assert found.targets == ("0",)
    assert found.left_out == ("2 columns: others have the same name; rename them",)


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


def test_what_is_known_ahead_and_what_says_yes_or_no_are_covariates(tmp_path: Path) -> None:
    lines = ["ds,y,price,open"]
    for i, line in enumerate(hourly(500)[1:]):
        measured = line if i < 480 else line.partition(",")[0] + ","
        lines.append(f"{measured},{i % 24 / 10},{'yes' if i % 5 else 'no'}")
    lines = [line if i < 481 else line.rpartition(",")[0] + "," for i, line in enumerate(lines)]
    file = lines_to(tmp_path / "x.csv", lines)
    found = proposal_for(file)
    assert (found.targets, found.past, found.future) == (("y",), ("open",), ("price",))
    assert found.sizes.horizon <= 20
    assert "gaps" not in found.source
    prepared = prepared_by(file, found, tmp_path)
    rows = sum(len(split.targets) for split in (prepared.train, prepared.val, prepared.test))
    assert rows == 480
    assert any("price: known ahead" in note for note in found.notes)
