"""`tuner predict`: forecasts as a table, a document and a figure; and its refusals, a line each."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.support.forked_cli import python_path, run
from tests.support.refusals import refused
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """model.safetensors, recent.csv; and others that are wrong in one way each."""
    folder = tmp_path_factory.mktemp("predict")
    frame = recent()
    task = task_of(TARGETS, past_covariates=("visitors",), future_covariates=("price",))
    save_untrained(folder / "model.safetensors", frame.dropna(), task)
    frame.to_csv(folder / "recent.csv", index=False)
    frame.to_parquet(folder / "recent.parquet", index=False)
    wrong = {
        "short": frame[frame.groupby("site").cumcount() >= ROWS - 20],
        "halfhours": frame.assign(ds=np.tile(pd.date_range("2024", periods=206, freq="30min"), 2)),
        "stranger": frame.replace("south", "soth"),
        "columnless": frame.drop(columns="heat"),
        "priceless": frame.drop(columns="price"),
        "unknown": frame.dropna(),
        "infinite": frame.assign(price=frame["price"].mask(frame.index == ROWS + 2, np.inf)),
        "late": frame.assign(
            ds=frame["ds"].mask(frame.index == ROWS + 1, pd.Timestamp("2025-01-01"))
        ),
    }
    for name, bent in wrong.items():
        bent.to_csv(folder / f"{name}.csv", index=False)
    frame.to_csv(folder / "semicolons.csv", index=False, sep=";", decimal=",")
    (folder / "mine.csv").write_text("my,own,table\n", encoding="utf-8")
    (folder / "mine.html").write_text("my own page\n", encoding="utf-8")
    (folder / "notes.txt").write_text("no model\n", encoding="utf-8")
    (folder / "notes.json").write_text("{}", encoding="utf-8")
    (folder / "broken.safetensors").write_bytes(b"no weights")
    (folder / "broken.json").write_bytes((folder / "model.json").read_bytes())
    card = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    card["architecture"] = {"model": f"{folder}/evil.py:Evil", "settings": {}}
    (folder / "evil.py").write_text(
        f"open({str(folder / 'ran')!r}, 'w')\nclass Evil: ...\n", encoding="utf-8"
    )
    (folder / "foreign.json").write_text(json.dumps(card), encoding="utf-8")
    (folder / "foreign.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    return folder


def test_forecasts_go_to_stdout_as_predict_makes_them(folder: Path) -> None:
    done = run("predict", "model.safetensors", "recent.csv", folder=folder)
    assert (done.code, done.err) == (0, "")
    found = pd.read_csv(io.StringIO(done.out), parse_dates=["ds"])
    expected = load_model(folder / "model.safetensors").predict(recent())
    pd.testing.assert_frame_equal(found, expected, check_dtype=False, rtol=1e-12)
    assert len(found) == 2 * AHEAD * 2
    assert (np.diff(found.iloc[:, 3:].to_numpy()) >= 0).all()


@pytest.mark.parametrize("words", [["recent.parquet"], ["semicolons.csv"]], ids=str)
def test_other_tables_of_the_same_rows_give_the_same_forecasts(
    words: list[str], folder: Path
) -> None:
    if words == ["semicolons.csv"]:
        words = [*words, "--separator", ";", "--decimal", ","]
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
        assert done.err == f"tuner: wrote {path}\n"
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
    with pytest.raises(DataError, match=r"column 'load' holds .*, expected numbers; name another"):
        load_model(folder / MODEL).predict(frame.assign(load=made(frame["load"])))


def test_a_name_that_no_file_can_have_is_refused() -> None:
    with pytest.raises(UsageError, match="is no name of a file"):
        load_model("a\0.safetensors")


MODEL = "model.safetensors"
REFUSED: dict[str, tuple[tuple[str, ...], int, tuple[str, ...]]] = {
    "no model": (("none.safetensors", "recent.csv"), 2, ("no such file", "tuner train")),
    "a text": (("notes.txt", "recent.csv"), 1, ("notes.json: is no model card",)),
    "damaged weights": (("broken.safetensors", "recent.csv"), 1, ("is not the file that",)),
    "a card": (("model.json", "recent.csv"), 2, ("where a card lies", MODEL)),
    "a class nobody trusts": (
        ("foreign.safetensors", "recent.csv"),
        2,
        ("evil.py:Evil", "whose code would run here", "say --trust"),
    ),
    "no data": ((MODEL, "none.csv"), 2, ("none.csv: no such file",)),
    "another kind of data": ((MODEL, "recent.xlsx"), 2, (".csv or .parquet",)),
    "too short": ((MODEL, "short.csv"), 1, ("'north' has 20 rows", "the network sees 24")),
    "another frequency": ((MODEL, "halfhours.csv"), 1, ("00:30:00 apart", "frequency 'h'")),
    "an unknown series": ((MODEL, "stranger.csv"), 2, ("'soth'", "did you mean 'south'")),
    "a missing column": ((MODEL, "columnless.csv"), 1, ("no column 'heat'",)),
    "a missing covariate": ((MODEL, "priceless.csv"), 1, ("no column 'price'",)),
    "no rows ahead": ((MODEL, "unknown.csv"), 1, ("'price' must be known for the 6 times",)),
    "an infinite covariate": ((MODEL, "infinite.csv"), 1, ("'price' has no finite number at",)),
    "covariates of another time": (
        (MODEL, "late.csv"),
        1,
        ("future covariates must be those of 2024-01-09 09:00:00", "2025-01-01"),
    ),
    "semicolons": ((MODEL, "semicolons.csv"), 1, ("separated by ';'", "--separator")),
    "a long separator": ((MODEL, "recent.csv", "--separator", "ab"), 2, ("one character",)),
    "another decimal": ((MODEL, "recent.csv", "--decimal", ";"), 2, ("--decimal ';'",)),
    "a file of mine": (
        (MODEL, "recent.csv", "--output", "mine.csv"),
        2,
        ("mine.csv: is there already", "--force"),
    ),
    "a page of mine": ((MODEL, "recent.csv", "--plot", "mine.html"), 2, ("mine.html: is there",)),
    "its own data": ((MODEL, "recent.csv", "--output", "recent.csv"), 2, ("is there already",)),
    "another output": ((MODEL, "recent.csv", "--output", "f.xlsx"), 2, (".csv or .parquet",)),
    "another figure": ((MODEL, "recent.csv", "--plot", "f.gif"), 2, (".png, .svg",)),
    "no time": ((MODEL, "recent.csv", "--from", "soon"), 2, ("'soon' is no time",)),
    "a time without rows": (
        (MODEL, "recent.csv", "--from", "2025-01-01"),
        2,
        ("cannot be forecast from 2025-01-01", f"begin at {START}"),
    ),
    "another name of a series": (
        (MODEL, "recent.csv", "--series", "nrth"),
        2,
        ("'nrth'", "'north'"),
    ),
    "another column": ((MODEL, "recent.csv", "--column", "price"), 2, ("target column 'price'",)),
}


@pytest.mark.parametrize("mistake", REFUSED)
def test_a_mistake_is_one_line_and_writes_nothing(mistake: str, folder: Path) -> None:
    words, code, says = REFUSED[mistake]
    refused("predict", *words, folder=folder, code=code, says=says)
    assert not (folder / "ran").exists()


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


def test_the_same_figure_is_one_of_tuner_plot(folder: Path, tmp_path: Path) -> None:
    given = ("--model", "model.safetensors", "--data", "recent.csv")
    done = run("plot", "forecast", *given, "--output", str(tmp_path / "f.html"), folder=folder)
    assert done.code == 0, done.err
    assert "Plotly" in (tmp_path / "f.html").read_text(encoding="utf-8")
    out = ("--output", str(tmp_path / "g.html"))
    for words, says in (
        (("plot", "forecast", *given[:2], *out), "takes --model MODEL.safetensors and --data DATA"),
        (("plot", "front", *given, *out), "belong to 'tuner plot forecast', not to front"),
    ):
        assert says in refused(*words, folder=folder, code=2, says=())
