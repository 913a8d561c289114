"""Our adapters give what the libraries themselves give, and a study keeps what they came to."""

from __future__ import annotations

import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.support.recorded_studies import record_study
from tests.support.tiny_tasks import tiny_task
from tuner.data.prepare import prepare
from tuner.data.sources import open_source
from tuner.data.task import load_task
from tuner.data.windows import DeviceData, to_device
from tuner.launch import baselines as launched
from tuner.launch.request import Notes, Quiet, StopRequests
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.archive import archive_of
from tuner.study.baselines import ATTRIBUTE
from tuner.study.open import open_study
from tuner.study.results import read_results
from tuner.training.baselines import libraries
from tuner.training.baselines.libraries import Foundation, Statistical, bound_of
from tuner.training.evaluate import evaluate

LEVELS = (0.05, 0.1, 0.5, 0.9, 0.95)


@pytest.fixture(scope="module")
def data() -> DeviceData:
    return to_device(prepare(tiny_task(quantiles=LEVELS)), "cpu")


def raw_rows(number: int, column: int) -> Any:
    """Of one series as its source has it, (R,)."""
    series = open_source(tiny_task(), None).parse()[number]
    return series.values[:, column]


def first_test_window(data: DeviceData) -> tuple[torch.Tensor, torch.Tensor]:
    batch = data.test.gather(torch.tensor([0]))
    return batch.past, data.test.series_index[:1]


def in_units(data: DeviceData, forecast: torch.Tensor, number: int) -> Any:
    """(T, C, Q) of scaled values."""
    scale, low = data.scale[number][:, None], data.minimum[number][:, None]
    return (forecast[0] * scale + low).numpy()


def test_arima_is_the_librarys_own_over_the_rows_of_the_window(data: DeviceData) -> None:
    from statsforecast.models import AutoARIMA

    model = Statistical(data, "auto_arima")
    model.rows = [rows[:, :1] for rows in model.rows[:1]]
    model.n_targets = 1
    model.fit()
    past, series = first_test_window(data)
    found = model.of_window(
        (past[0, :, :1].double() * data.scale[0, :1] + data.minimum[0, :1]).numpy(), 0
    )
    rows = raw_rows(0, 0)
    own = AutoARIMA(season_length=1).fit(rows[:180])
    said = own.forward(y=rows[240:264], h=6, level=[80, 90])
    assert int(series[0]) == 0
    for place, key in enumerate(("lo-90", "lo-80", "mean", "hi-80", "hi-90")):
        np.testing.assert_allclose(found[:, 0, place], said[key], rtol=1e-4)


def test_smoothing_carried_over_the_training_rows_is_the_librarys_own_forecast(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from statsforecast.models import AutoETS

    steps = np.arange(200)
    noise = np.random.default_rng(0).normal(size=200)
    y = 50 + 5 * np.sin(steps * 2 * np.pi / 12) + noise + steps / 10
    for spec in ("AAA", "MAM", "ANN"):
        own = AutoETS(season_length=12, model=spec).fit(y)
        state = own.model_["par"][4:]
        monkeypatch.setattr(libraries, "_state", lambda *_, state=state: state)
        found = libraries._smoothing(own, y, 6, [0.0, 90.0])
        said = own.predict(h=6, level=[0, 90])
        for ours, theirs in (("mean", "mean"), ("lo-90.0", "lo-90"), ("hi-90.0", "hi-90")):
            np.testing.assert_allclose(found[ours], said[theirs], rtol=1e-6)


def test_smoothing_finds_the_place_in_the_season_at_which_a_window_begins() -> None:
    from statsforecast.models import AutoETS

    steps = np.arange(240)
    months = np.array([9, 3, 1, 0, -2, -7, -5, -1, 0, 4, 6, -8])
    y = 50 + months[steps % 12] + 0.3 * np.random.default_rng(0).normal(size=240)
    own = AutoETS(season_length=12, model="ANA").fit(y[:180])
    for begins in (181, 185, 190):
        said = libraries._smoothing(own, y[begins : begins + 15], 6, [0.0])
        expected = 50 + months[(np.arange(6) + begins + 15) % 12]
        np.testing.assert_allclose(said["mean"], expected, atol=1.0)


def test_smoothing_keeps_the_slope_that_it_was_fitted_with() -> None:
    """Windows of 24 noisy rows say little of it."""
    from statsforecast.models import AutoETS

    line = 50 + np.arange(420) / 2
    y = line + 5 * np.random.default_rng(0).normal(size=420)
    for spec in ("AAN", "MMN"):
        own = AutoETS(season_length=1, model=spec, damped=False).fit(y[:300])
        missed = []
        for begins in range(300, 390):
            said = libraries._smoothing(own, y[begins : begins + 24], 6, [0.0])
            missed.append(np.abs(said["mean"] - line[begins + 24 : begins + 30]).mean())
        assert np.mean(missed) < 2.0, spec


def test_a_quantile_is_the_bound_of_its_level() -> None:
    assert [bound_of(q) for q in (0.05, 0.5, 0.9)] == [("lo", 90.0), ("lo", 0.0), ("hi", 80.0)]


def test_a_window_shows_its_own_rows_and_none_before_or_after(data: DeviceData) -> None:
    """What is not in the window does not matter: the same rows give the same forecast."""
    model = Statistical(data, "auto_ets")
    model.set_up()
    model.fit()
    scores = evaluate(model, data)
    assert scores.test_mql_mean > 0
    past, series = first_test_window(data)
    again = torch.cat([past, past])
    said = model(again, None, None, torch.cat([series, series]))
    assert torch.equal(said[0], said[1])
    assert bool((said.diff(dim=-1) >= 0).all())


def tiny_chronos(folder: Path, quantiles: tuple[float, ...]) -> Any:
    """A model of the library's own configuration, with the weights that it begins with."""
    from chronos.chronos_bolt import ChronosBoltModelForForecasting
    from transformers import T5Config

    chronos = {
        "context_length": 64, "prediction_length": 8, "input_patch_size": 8,
        "input_patch_stride": 8, "quantiles": list(quantiles), "use_reg_token": True,
    }  # fmt: skip
    config = T5Config(
        d_model=16, d_kv=8, d_ff=32, num_layers=1, num_decoder_layers=1, num_heads=2,
        vocab_size=2, feed_forward_proj="relu", chronos_config=chronos,
        chronos_pipeline_class="ChronosBoltPipeline", reg_token_id=1, pad_token_id=0,
        decoder_start_token_id=0, architectures=["ChronosBoltModelForForecasting"],
    )  # fmt: skip
    torch.manual_seed(1)
    ChronosBoltModelForForecasting(config).save_pretrained(folder)


def test_chronos_is_its_own_pipeline_without_a_network(
    data: DeviceData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from chronos import BaseChronosPipeline

    tiny_chronos(tmp_path, (0.1, 0.5, 0.9))

    def refused(*_: object) -> None:
        raise AssertionError("it asked the network")

    monkeypatch.setattr(socket.socket, "connect", refused)
    model = Foundation(data, tmp_path)
    model.set_up()
    assert model.lacks == (0.05, 0.95), "levels outside of those that it was trained on"
    past, series = first_test_window(data)
    found = in_units(data, model(past, None, None, series), 0)
    pipeline = BaseChronosPipeline.from_pretrained(str(tmp_path), local_files_only=True)
    window = np.stack([raw_rows(0, column)[240:264] for column in (0, 1)])
    said, _ = pipeline.predict_quantiles(
        torch.from_numpy(window).float(), prediction_length=6, quantile_levels=list(LEVELS)
    )
    expected = said.numpy().swapaxes(0, 1)
    # Scaled rows are 32-bit numbers: what is read off a file comes back with their rounding.
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.ptp(expected))


def test_a_study_keeps_what_they_came_to_and_says_what_there_was_no_time_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_chronos(tmp_path / "model", (0.1, 0.5, 0.9))
    storage = f"sqlite:///{tmp_path}/tuner.db"
    record_study(storage, variant="rmsnorm", trials=5, said={"total_s": 1000.0})
    with closing(open_database(parse_url(storage), create=False)) as database:
        study = open_study(database, "demo-rmsnorm")
        notes, task = Notes(Quiet()), load_task("demo")

        def keep(share: float) -> dict[str, Any]:
            monkeypatch.setattr(launched, "SHARE", share)
            given = (task, None, tmp_path / "model", (), notes, StopRequests())
            launched.keep_baselines([study], *given)
            return {each.name: each for each in read_results(study).baselines}

        plain = keep(0.001)
        assert {"last_value", "nlinear"} <= set(plain), "which take seconds"
        assert "auto_ets" not in plain, "four seconds are too little to begin"
        found = keep(0.1)
        assert plain.items() <= found.items()
        assert found["auto_ets"].test_mql > 0
        assert found["auto_ets"].fit_s > 0
        assert len(found["auto_ets"].test_runs) >= 4
        assert "no season of more than 24 rows" in found["mstl"].not_run
        assert found["chronos"].lacks
        assert keep(0.1) == found, "nothing is scored twice"
        late = {"name": "auto_theta", "not_run": "would take 3 s", "would_take_s": 3.0}
        kept = [each.stored() for each in found.values() if each.fit_s is not None]
        others = [each for each in kept if each["name"] != "auto_theta"]
        study.optuna.set_user_attr(ATTRIBUTE, [*others, late])
        again = keep(0.1)
        assert again["auto_theta"].test_mql == found["auto_theta"].test_mql, "there was time for it"
        assert again["auto_ets"] == found["auto_ets"]
        archive = archive_of(study)
        assert {each.name for each in archive.of_libraries} == set(found)
    slow = launched._kept({"name": "auto_arima", "would_take_s": 2460.0}, 30.0)
    assert slow["not_run"] == "would take 41.0 min"
