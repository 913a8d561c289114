"""`tuner train`: from a study or a file to a model on disk, which forecasts in original units."""

from __future__ import annotations

import hashlib
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.support.forked_cli import Done, run
from tests.support.recorded_studies import record_study
from tuner import load_data, load_model
from tuner.cli.replace import check_model_free
from tuner.config import RunConfig, TrainingSettings
from tuner.data.sources import demo_series
from tuner.data.task import load_task
from tuner.errors import DataError, UsageError
from tuner.export import load_best
from tuner.training import fit
from tuner.training.evaluate import forecast_quality

EPOCHS = 2
STUDY = ("--variant", "rmsnorm", "--task", "demo")


def tuner(*arguments: str, folder: Path) -> Done:
    """Locks of its own: other tests' trainings are not waited for."""
    return run(
        *arguments, folder=folder, environment={"TMPDIR": str(folder), "OMP_NUM_THREADS": "1"}
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A study, its best configuration as a file, and a model of two seeds."""
    folder = tmp_path_factory.mktemp("train")
    record_study(
        f"sqlite:///{folder}/storage/tuner.db", variant="rmsnorm", trials=3, max_epochs=EPOCHS
    )
    done = tuner("best", *STUDY, "--trial", "0", "--format", "toml", folder=folder)
    (folder / "best.toml").write_text(done.out, encoding="utf-8")
    done = tuner(
        *(
            "train",
            *STUDY,
            "--trial",
            "0",
            "--cpu",
            "--seeds",
            "2",
            "--output",
            "model.safetensors",
        ),
        folder=folder,
    )
    assert done.code == 0, done.err
    assert done.out.count("epoch_limit after 2 epochs") == 2
    assert done.out.count("(kept)") == 1
    assert len(re.findall(r"test MQL [\d.]+, of sorted quantiles [\d.]+", done.out)) == 4
    assert re.search(r"[\d.]+% of 324 rows had quantiles that cross; saved models sort", done.out)
    assert re.search(r"\n0\.05 to 0\.95 +90\.0%( +[\d.]+% \([\d.]+\)){4}", done.out)
    assert "wrote model.safetensors and model.json" in done.err
    return folder


@pytest.fixture(scope="module")
def card(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "model.json").read_text(encoding="utf-8"))
    return found


def test_where_the_test_split_is_another_world_the_page_and_the_card_say_so(
    folder: Path, tmp_path: Path
) -> None:
    y = np.random.default_rng(0).normal(size=600)
    y[480:] *= 5  # the test split: noise of another size
    rows = pd.date_range("2024-01-01", periods=len(y), freq="h")
    pd.DataFrame({"ds": rows, "y": y}).to_csv(tmp_path / "moved.csv", index=False)
    assert tuner("init", "data", "moved.csv", "--yes", folder=tmp_path).code == 0
    given = (f"--config={folder}/best.toml", "--task=moved.toml", "--cpu", "--calibrate")
    done = tuner("train", *given, "--output=moved.safetensors", folder=tmp_path)
    assert done.code == 0, done.err
    found = json.loads((tmp_path / "moved.json").read_text(encoding="utf-8"))["calibration"]
    assert found["failed"].startswith("Calibration failed: the 90% interval holds")
    assert f"{found['failed']}.\n" in done.out


def test_a_calibrated_model_forecasts_shifted_quantiles_within_bounds(
    folder: Path, card: dict[str, Any], tmp_path: Path
) -> None:
    targets, levels = card["task"]["target_columns"], card["quantiles"]
    shift = np.zeros((1, len(targets), len(levels)))
    shift[..., : levels.index(0.5)], shift[..., levels.index(0.5) + 1 :] = -0.5, 0.5
    low = float(load_model(folder / "model.safetensors").predict(frame_of(48))["0.05"].median())
    bounds = [{"column": name, "low": low, "high": None} for name in targets]
    changed = {
        "plain": {},
        "wide": {"calibration": {"shift": shift.tolist()}},
        "kept": {"task": {**card["task"], "bounds": bounds}},
        "broken": {"calibration": {"shift": [[[0.0]]]}},
    }
    for name, more in changed.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(card | more), encoding="utf-8")
        weights = (folder / "model.safetensors").read_bytes()
        (tmp_path / f"{name}.safetensors").write_bytes(weights)
    found = {
        name: load_model(tmp_path / f"{name}.safetensors").predict(frame_of(48))
        for name in ("plain", "wide", "kept")
    }
    scale = np.array(card["scaling"]["scale"])[0, : len(targets)]
    moved = (found["wide"]["0.05"] - found["plain"]["0.05"]).to_numpy()[: len(targets)]
    np.testing.assert_allclose(moved, -0.5 * scale, rtol=1e-4)
    assert (found["wide"]["0.5"] == found["plain"]["0.5"]).all()
    values = found["plain"][[str(each) for each in levels]]
    assert (found["kept"][values.columns] == values.clip(lower=low)).all().all()
    with pytest.raises(DataError, match=r"calibration\.shift"):
        load_model(tmp_path / "broken.safetensors")


def frame_of(rows: int, *, series: tuple[int, ...] = (0, 1)) -> pd.DataFrame:
    """The demo's first rows, as a CSV would hold them."""
    task = load_task("demo")
    found = demo_series(rows=400, seed=0, n_targets=3)
    return pd.concat(
        [
            pd.DataFrame(found[i].values[:rows], columns=list(task.target_columns)).assign(
                ds=found[i].timestamps[:rows], series=found[i].name
            )
            for i in series
        ]
    )


def test_the_card_says_what_the_model_is_where_it_comes_from_and_how_good(
    folder: Path, card: dict[str, Any]
) -> None:
    best = load_best(
        "rmsnorm", task="demo", trial=0, storage=f"sqlite:///{folder}/storage/tuner.db"
    )
    assert card["hyperparameters"] == best.params
    assert card["architecture"] == {"model": "rmsnorm", "settings": {"n_blocks": 2}}
    assert card["configuration"] == json.loads(json.dumps(best.as_dict()))
    assert card["found_on_this_data"] is True
    assert card["data_hash"] == best.definition.data_hash
    assert card["quantiles"] == list(load_task("demo").quantiles)
    assert np.array(card["scaling"]["minimum"]).shape == (2, 3)
    assert [seed["seed"] for seed in card["seeds"]] == [0, 1]
    assert card["metrics"] == min(card["seeds"], key=lambda seed: seed["val_loss"])
    assert set(card["metrics"]["test_mql"]) == {"demo1", "demo2"}
    assert (
        card["weights_sha256"]
        == hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    )
    assert card["versions"]["torch"] == torch.__version__


def test_the_card_says_how_often_rows_crossed_and_how_good_intervals_are(
    folder: Path, card: dict[str, Any]
) -> None:
    found = card["metrics"]["forecasts"]
    expected = forecast_quality(load_model(folder / "model.safetensors").model, load_data("demo"))
    assert found["crossed"] == pytest.approx(expected.crossed, abs=0.01)
    assert found["rows"] == 2 * 9 * 6 * 3
    assert found["sorted_test_mql"] == pytest.approx(dict(expected.sorted_mql), rel=1e-4)
    assert found["sorted_test_mql_mean"] != card["metrics"]["test_mql_mean"]
    assert [each["levels"] for each in found["intervals"]][:2] == [[0.01, 0.99], [0.05, 0.95]]
    assert found["intervals"][1]["nominal"] == 0.9
    assert found["intervals"][1]["by_column"].keys() == {"load", "heat", "flow"}
    assert found["intervals"][1]["width"] == pytest.approx(
        expected.intervals[1].overall.width, rel=1e-4
    )


def test_the_model_is_that_of_fit_and_forecasts_what_was_scored(
    folder: Path, card: dict[str, Any]
) -> None:
    saved = load_model(folder / "model.safetensors")
    best = load_best(
        "rmsnorm", task="demo", trial=0, storage=f"sqlite:///{folder}/storage/tuner.db"
    )
    data = load_data("demo")
    config = RunConfig(
        architecture=best.architecture,
        hyperparameters=best.hyperparameters,
        training=TrainingSettings(max_epochs=EPOCHS),
        seed=card["metrics"]["seed"],
    )
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        model = fit(config, data).model
    finally:
        torch.set_num_threads(threads)
    assert model is not None
    last = torch.tensor(
        [8, 17]
    )  # the last test window of each series: it forecasts the rows from 392 on
    batch = data.test.gather(last)
    with torch.no_grad():
        expected = model(batch.past, batch.future, batch.static).double()
    expected = expected * data.scale[:, None, :, None] + data.minimum[:, None, :, None]

    forecast = saved.predict(frame_of(392))
    assert list(forecast.columns) == [
        "series",
        "ds",
        "column",
        *(str(level) for level in load_task("demo").quantiles),
    ]
    assert len(forecast) == 2 * 6 * 3
    assert forecast["ds"].iloc[0] == pd.Timestamp("2024-01-01") + pd.Timedelta(hours=392)
    assert list(forecast["column"][:3]) == ["load", "heat", "flow"]
    values = forecast.iloc[:, 3:].to_numpy().reshape(expected.shape)
    np.testing.assert_allclose(values, np.sort(expected.numpy()), rtol=1e-4)
    assert (
        forecast.groupby("series")["0.5"].mean().between(5, 120).all()
    )  # in the units of the data


def test_one_series_alone_is_forecast_as_among_others(folder: Path) -> None:
    saved = load_model(str(folder / "model.safetensors"))
    together = saved.predict(frame_of(100))
    alone = saved.predict(frame_of(100, series=(1,)))
    pd.testing.assert_frame_equal(
        alone, together[together["series"] == "demo2"].reset_index(drop=True), rtol=1e-5
    )


def test_a_configuration_file_trains_the_same_model(folder: Path, card: dict[str, Any]) -> None:
    seed = str(card["metrics"]["seed"])
    done = tuner(
        *(
            "train",
            "--config",
            "best.toml",
            "--cpu",
            "--seed",
            seed,
            "--json",
            "--output",
            "again.safetensors",
        ),
        folder=folder,
    )
    assert done.code == 0, done.err
    assert done.json()["files"] == ["again.safetensors", "again.json"]
    again = json.loads((folder / "again.json").read_text(encoding="utf-8"))
    assert again["weights_sha256"] == card["weights_sha256"]
    assert (
        again["configuration"]["provenance"]["definition_hash"]
        == (card["configuration"]["provenance"]["definition_hash"])
    )


def copied(folder: Path, to: Path) -> Path:
    for name in ("model.safetensors", "model.json"):
        (to / name).write_bytes((folder / name).read_bytes())
    return to / "model.safetensors"


def test_a_model_without_its_card_or_with_anothers_is_refused(folder: Path, tmp_path: Path) -> None:
    path = copied(folder, tmp_path)
    content = path.read_bytes()
    path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.raises(DataError, match=r"is not the file that model\.json describes"):
        load_model(path)
    path.with_suffix(".json").write_text("{}", encoding="utf-8")
    with pytest.raises(DataError, match=r"model\.json: is no model card"):
        load_model(path)
    path.with_suffix(".json").unlink()
    with pytest.raises(UsageError, match=r"model\.json: no such file; 'tuner train' writes"):
        load_model(path)


def test_other_data_than_the_configurations_is_said(folder: Path) -> None:
    text = (folder / "best.toml").read_text(encoding="utf-8")
    (folder / "elsewhere.toml").write_text(
        text.replace('data_hash = "', 'data_hash = "0'), encoding="utf-8"
    )
    done = tuner(
        "train",
        "--config",
        "elsewhere.toml",
        "--cpu",
        "--output",
        "other.safetensors",
        folder=folder,
    )
    assert done.code == 0, done.err
    assert "other data than the configuration was found on" in done.err
    assert (
        json.loads((folder / "other.json").read_text(encoding="utf-8"))["found_on_this_data"]
        is False
    )


def test_a_model_that_a_training_wrote_may_be_written_over_by_the_next(
    folder: Path, tmp_path: Path
) -> None:
    check_model_free(folder / "model.safetensors", force=False)
    changed = tmp_path / "changed.safetensors"
    changed.write_bytes((folder / "model.safetensors").read_bytes() + b" ")
    changed.with_suffix(".json").write_bytes((folder / "model.json").read_bytes())
    with pytest.raises(UsageError, match="was not written by this command"):
        check_model_free(changed, force=False)
    check_model_free(changed, force=True)
