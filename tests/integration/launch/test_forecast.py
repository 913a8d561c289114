"""From a file to a forecast: a killed call goes on, another file is refused, and where no network
beats what needs none, that forecasts."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.support import forked_cli
from tests.support.present import present
from tuner.cli.forecast import ForecastOptions
from tuner.cli.forecast import _task as proposed_task
from tuner.cli.init import DataOptions, write_task
from tuner.devices import CpuCores, Gpu
from tuner.errors import DataError, UsageError
from tuner.launch import forecast
from tuner.launch.forecast import Answer, Around, Forecast, ForecastFolder, Record, run
from tuner.launch.request import DeviceChoice
from tuner.report.forecast_page import forecast_page
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.baselines import ATTRIBUTE
from tuner.study.open import list_studies, open_study
from tuner.study.results import read_results

WORDS = ("forecast", "walk.csv", "--horizon", "2", "--cpu")
ASKED = "--horizon 2 --targets None"
MOST_LINES, MOST_WORDS = 12, 25


def walk(folder: Path, rows: int = 120) -> Path:
    """A random walk of days, of which nothing tells more than its last value."""
    steps = np.random.default_rng(0).normal(size=rows).cumsum()
    days = pd.date_range("2024-01-01", periods=rows)
    path = folder / "walk.csv"
    pd.DataFrame({"day": days, "y": steps}).to_csv(path, index=False)
    return path


def finished(folder: Path) -> dict[int, float | None]:
    """Of each trial that is complete, how long it took."""
    with closing(open_database(parse_url(f"sqlite:///{folder}/study.db"), create=False)) as there:
        records = read_results(open_study(there, "walk-mixer")).complete
        return {each.number: each.recorded.wall_clock_s for each in records}


class KilledError(Exception):
    """Ends a call as its process would end."""


def search_until(ended: str, folder: Path) -> ForecastFolder:
    """The command's work in this process, which is killed when a line with this word is said."""

    def say(line: str) -> None:
        if ended in line:
            raise KilledError

    options = ForecastOptions(data=folder / "walk.csv", horizon=2)
    begun = ForecastFolder.begun(folder / "walk.forecast", options.data, ASKED)
    around = Around(
        write_task=lambda: proposed_task(options, options.data, begun.task),
        own=lambda device: device,
        page=lambda *_: "",
        say=say,
    )
    with pytest.raises(KilledError):
        run(begun, 1200.0, DeviceChoice(cpu=True), around)
    return begun


@pytest.mark.slow
def test_a_killed_call_goes_on_and_a_finished_one_says_its_answer_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walk(tmp_path)
    network = forecast.NETWORK.read_text().replace("max_epochs = 200", "max_epochs = 20")
    own = tmp_path / "small.toml"
    own.write_text(network.replace("patience = 10", "patience = 1"))
    for name, value in {"TRIALS": 4, "TOP": 1, "SEEDS": 1, "NETWORK": own}.items():
        monkeypatch.setattr(forecast, name, value)
    monkeypatch.setattr(subprocess, "Popen", forked_cli.popen())
    monkeypatch.setenv("TUNER_LOCK_DIR", str(tmp_path / "locks"))

    folder = tmp_path / "walk.forecast"
    assert [*search_until("runs the best again", tmp_path).record.stages] == ["task", "search"]
    searched = finished(folder)
    assert len(searched) == 4
    begun = search_until("trains", tmp_path)
    assert [*begun.record.stages] == ["task", "search", "confirmation"]
    assert finished(folder) == searched, "nothing is computed twice"
    with closing(open_database(parse_url(f"sqlite:///{folder}/study.db"), create=False)) as there:
        (name,) = list_studies(there)  # as where its time was over before they were scored
        open_study(there, name).optuna.set_user_attr(ATTRIBUTE, [])

    done = forked_cli.run(*WORDS, folder=tmp_path)
    assert done.code == 0, done.err
    assert finished(folder) == searched
    assert "searches" not in done.err
    record = Record.model_validate_json((folder / "forecast.json").read_text())
    assert [*record.stages] == ["task", "search", "confirmation", "model", "forecast"]
    answer = present(record.answer)
    assert answer.network == "mixer"
    assert len(answer.back_test) == 3
    table = pd.read_csv(folder / "forecast.csv")
    assert table["day"].tolist() == ["2024-04-30", "2024-05-01"]
    assert set(table["model"]) == {answer.model}
    said = done.out.splitlines()
    assert said[0] == " ".join(f"{each}." for each in answer.sentences)
    assert len(said) <= MOST_LINES
    for each in answer.sentences:
        assert len(each.split()) <= MOST_WORDS
    assert said[-1].startswith("Next: tuner ")
    assert "<svg" in (folder / "index.html").read_text()

    written = {each: each.stat().st_mtime_ns for each in folder.iterdir()}
    again = forked_cli.run(*WORDS, folder=tmp_path)
    assert (again.out, again.err) == (done.out, "")
    assert {each: each.stat().st_mtime_ns for each in folder.iterdir()} == written
    document = forked_cli.run(*WORDS, "--json", folder=tmp_path).json()
    assert document["answer"] == json.loads(record.model_dump_json())["answer"]


def test_what_was_begun_with_something_else_is_refused_by_name(tmp_path: Path) -> None:
    data, path = walk(tmp_path), tmp_path / "walk.forecast"
    folder = ForecastFolder.begun(path, data, "--horizon 2")
    path.mkdir()
    folder.keep()
    assert ForecastFolder.begun(path, data, "--horizon 2").record == folder.record
    with pytest.raises(UsageError, match=r"--horizon 3: is not what .* was begun with"):
        ForecastFolder.begun(path, data, "--horizon 3")
    data.write_text(data.read_text() + "2024-04-30,1.0\n")
    with pytest.raises(UsageError, match=r"walk\.csv: is not what .* another folder with --output"):
        ForecastFolder.begun(path, data, "--horizon 2")
    (path / "forecast.json").write_text("{}")
    with pytest.raises(DataError, match=r"forecast\.json: is no record of a forecast"):
        ForecastFolder.begun(path, data, "--horizon 2")
    with pytest.raises(DataError, match=r"gone\.csv: no such file"):
        ForecastFolder.begun(path, tmp_path / "gone.csv", "")


@pytest.mark.parametrize("series", [1, 2])
def test_a_baseline_forecasts_where_it_is_the_answer(tmp_path: Path, series: int) -> None:
    data, path = walk(tmp_path), tmp_path / "walk.forecast"
    if series > 1:
        one = pd.read_csv(data)
        two = one.assign(y=-one["y"])
        pd.concat([one.assign(name="one"), two.assign(name="two")]).to_csv(data, index=False)
    folder = ForecastFolder.begun(path, data, "")
    given = Answer(
        sentences=("Not worth it",),
        model="last_value",
        baseline="last_value",
        mql={"last_value": (1.0, 1.0)},
    )
    folder.record = folder.record.model_copy(
        update={"answer": given, "stages": dict.fromkeys(("search", "confirmation", "model"), 0.0)}
    )

    def task() -> tuple[str, ...]:
        write_task(DataOptions(file=data, horizon=2), folder.task)
        return ()

    def page(record: Record, ahead: Forecast, earlier: Sequence[Forecast]) -> str:
        assert len(earlier) == len(present(record.answer).back_test) == 3
        return forecast_page("A walk", record, ahead, earlier)

    def own(device: Gpu | CpuCores) -> None:
        raise AssertionError(device)  # nothing is trained

    around = Around(write_task=task, own=own, page=page, say=lambda _: None)
    run(folder, 60.0, DeviceChoice(cpu=True), around)
    table = pd.read_csv(path / "forecast.csv")
    assert set(table["model"]) == {"last_value"}
    assert len(table) == 2 * series
    last = pd.read_csv(data)["y"].iloc[-1]
    assert table["0.01"].iloc[-1] < last < table["0.99"].iloc[-1]
    assert table["0.5"].iloc[-2:].to_numpy() == pytest.approx(last, abs=1.0)
    html = os.fsdecode((path / "index.html").read_bytes())
    assert html.count("<svg") == series + 3
    assert "the last value (the forecast)" in html
