"""`tuner predict`: forecasts as a table, a document and a figure; and its refusals, a line each."""

from __future__ import annotations

import io
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.support.forked_cli import python_path
from tests.support.forked_cli import run_here as run
from tests.support.small_models import save_untrained, table, task_of
from tuner import forecast_figure, load_model
from tuner.errors import DataError, UsageError

TARGETS, ROWS, AHEAD = ("load", "heat"), 200, 6
START = "2024-01-09 08:00"
"""The time after the last row with values."""


def recent() -> pd.DataFrame:
    """Rows up to now, and six to come, of which only the price is known."""
    frame = table((*TARGETS, "visitors", "price"), series=("north", "south"), rows=ROWS + AHEAD)
    later = frame.groupby("site").cumcount() >= ROWS
    frame.loc[later, [*TARGETS, "visitors"]] = np.nan
    return frame


SEEN = "240 of 400 rows, 2024-01-01 00:00:00 to 2024-01-05 23:00:00"
TRAINED_ON = f"tuner: trained on the first 60 %, {SEEN}\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """model.safetensors, recent.csv; and others that are wrong in one way each."""
    folder = tmp_path_factory.mktemp("predict")
    frame = recent()
    task = task_of(TARGETS, past_covariates=("visitors",), future_covariates=("price",))
    save_untrained(folder / "model.safetensors", frame.dropna(), task)
    frame.to_csv(folder / "recent.csv", index=False)
    frame.to_parquet(folder / "recent.parquet", index=False)
    frame.to_csv(folder / "semicolons.csv", index=False, sep=";", decimal=",")
    return folder


def test_a_tasks_own_file_is_forecast_though_columns_must_be_known_ahead(
    folder: Path, tmp_path: Path
) -> None:
    """With rows in which only they are known; and without, where the last rows are held back."""
    text = (
        'name = "sites"\ntarget_columns = ["load", "heat"]\npast_covariates = ["visitors"]\n'
        'future_covariates = ["price"]\nfrequency = "h"\ninput_size = 24\nhorizon = 6\n'
        '[source]\nkind = "csv"\npath = "rows.csv"\nid_column = "site"\n'
    )
    (tmp_path / "sites.toml").write_text(text, encoding="utf-8")
    model = str(folder / "model.safetensors")
    recent().to_csv(tmp_path / "rows.csv", index=False)
    whole = run("predict", model, "sites.toml", folder=tmp_path)
    table = run("predict", model, "rows.csv", folder=tmp_path)
    assert (whole.code, whole.err) == (0, TRAINED_ON)
    assert whole.out == table.out
    recent().dropna().to_csv(tmp_path / "rows.csv", index=False)
    back = run("predict", model, "sites.toml", folder=tmp_path)
    assert back.code == 0, back.err
    assert "its last 6 rows are forecast" in back.err
    ahead = run("predict", model, "rows.csv", "--from", "2024-01-09 02:00", folder=tmp_path)
    assert back.out == ahead.out


def test_times_of_a_zone_that_the_training_did_not_know_are_refused(
    folder: Path, tmp_path: Path
) -> None:
    zoned = recent()
    zoned["ds"] = pd.to_datetime(zoned["ds"]).dt.tz_localize("Europe/Berlin")
    zoned.to_csv(tmp_path / "zoned.csv", index=False)
    done = run("predict", str(folder / "model.safetensors"), "zoned.csv", folder=tmp_path)
    assert (done.code, done.err.count("\n")) == (2, 1)
    assert "'ds' has times with an offset from UTC, expected are times without one" in done.err


def test_forecasts_go_to_stdout_as_predict_makes_them(folder: Path) -> None:
    done = run("predict", "model.safetensors", "recent.csv", folder=folder)
    assert (done.code, done.err) == (0, TRAINED_ON)
    found = pd.read_csv(io.StringIO(done.out), parse_dates=["ds"])
    expected = load_model(folder / "model.safetensors").predict(recent())
    pd.testing.assert_frame_equal(found, expected, check_dtype=False, rtol=1e-12)
    assert len(found) == 2 * AHEAD * 2
    assert (np.diff(found.iloc[:, 3:].to_numpy()) >= 0).all()


@pytest.mark.parametrize("words", [["recent.parquet"], ["semicolons.csv"]], ids=str)
def test_other_tables_of_the_same_rows_give_the_same_forecasts(
    words: list[str], folder: Path
) -> None:
    plain, other = (
        run("predict", "model.safetensors", *data, folder=folder)
        for data in (["recent.csv"], words)
    )
    assert other.code == 0, other.err
    np.testing.assert_allclose(
        pd.read_csv(io.StringIO(other.out)).iloc[:, 3:],
        pd.read_csv(io.StringIO(plain.out)).iloc[:, 3:],
    )


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_forecasts_are_written_over_forecasts_only(
    suffix: str, folder: Path, tmp_path: Path
) -> None:
    path = tmp_path / f"forecast{suffix}"
    words = ("predict", "model.safetensors", "recent.csv", "--output", str(path))
    for _ in range(2):
        done = run(*words, folder=folder)
        assert (done.code, done.out) == (0, ""), done.err
        assert done.err == f"{TRAINED_ON}tuner: wrote {path}\n"
    read = pd.read_csv if suffix == ".csv" else pd.read_parquet
    assert len(read(path)) == 2 * AHEAD * 2
    path.write_bytes(b"mine")
    assert run(*words, folder=folder).code == 2
    assert run(*words, "--force", folder=folder).code == 0


def test_the_document_has_the_forecasts_of_what_was_asked_for(folder: Path, tmp_path: Path) -> None:
    figure = tmp_path / "fan.html"
    words = ("--series", "south", "--column", "heat", "--plot", str(figure), "--json")
    found = run("predict", "model.safetensors", "recent.csv", *words, folder=folder).json()
    assert found["files"] == [str(figure)]
    assert found["horizon"] == len(found["forecasts"]) == AHEAD
    first = found["forecasts"][0]
    assert (first["series"], first["column"]) == ("south", "heat")
    assert first["time"] == "2024-01-09T08:00:00"
    assert list(first["quantiles"]) == ["0.05", "0.1", "0.25", "0.5", "0.75", "0.9", "0.95"]
    assert "Plotly" in figure.read_text(encoding="utf-8")


def test_a_figure_from_a_time_on_shows_what_came(folder: Path) -> None:
    model, frame = load_model(folder / "model.safetensors"), recent()
    figure = forecast_figure(model, frame, start="2024-01-05 00:00", columns=["load"])
    names = [trace.name for trace in figure.data]
    assert names.count("what came") == names.count("seen") == 2, "one for each series"
    came = next(trace for trace in figure.data if trace.name == "what came")
    seen = next(trace for trace in figure.data if trace.name == "seen")
    assert list(came.y[1:]) == frame["load"].iloc[96:102].tolist()
    assert list(seen.y) == frame["load"].iloc[78:96].tolist()
    now = forecast_figure(model, frame, series=["north"], columns=["load"])
    assert forecast_figure(model, frame, series="north", columns="load") == now
    assert "what came" not in [trace.name for trace in now.data]
    assert [note.text for note in now.layout.annotations] == ["north, load", "now"]


def test_a_figure_has_room_for_so_many_panels(tmp_path: Path) -> None:
    columns = tuple(f"c{number}" for number in range(25))
    frame = table(columns, series=("north",), rows=200)
    save_untrained(tmp_path / "m.safetensors", frame, task_of(columns))
    model = load_model(tmp_path / "m.safetensors")
    with pytest.raises(UsageError, match=r"25 panels.*at most 24 fit: choose some with --series"):
        forecast_figure(model, frame)
    with pytest.raises(UsageError, match="unknown target column 'c99'"):
        forecast_figure(model, frame, columns=["c99"])


@pytest.mark.parametrize("cells", [[1, 2], None, np.zeros((3, 2)), pd.Series([1.0])], ids=type)
def test_what_is_no_table_is_refused(cells: object, folder: Path) -> None:
    with pytest.raises(UsageError, match="expected, got a value of type"):
        load_model(folder / MODEL).predict(cells)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "made",
    [
        pd.to_datetime,
        lambda each: pd.to_datetime(each, utc=True),
        lambda each: pd.Series(pd.to_datetime(each)).astype("category"),
        pd.to_timedelta,
        lambda each: each + 1j,
    ],
    ids=["datetime", "zoned", "category", "timedelta", "complex"],
)
def test_what_numpy_would_make_numbers_of_is_none(
    made: Callable[[pd.Series], pd.Series], folder: Path
) -> None:
    frame = recent()
    with pytest.raises(
        DataError, match=r"column 'load': (holds .*, expected numbers|.* is not a finite number)"
    ):
        load_model(folder / MODEL).predict(frame.assign(load=made(frame["load"])))


def test_a_name_that_no_file_can_have_is_refused() -> None:
    with pytest.raises(UsageError, match="is no name of a file"):
        load_model("a\0.safetensors")


MODEL = "model.safetensors"


def test_a_wrong_name_is_refused_before_torch_is_imported(folder: Path) -> None:
    script = (
        "import sys; from tuner.cli.main import main\n"
        "try: main(['predict', 'm.safetensors', 'd.xlsx'])\n"
        "except SystemExit: print('torch' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=folder,
        env={"PYTHONPATH": python_path()},
        check=False,
    )
    assert done.stdout.strip() == "False", done.stderr
