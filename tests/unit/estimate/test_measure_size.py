"""What a compiler makes once is told apart from what each training's set-up takes."""

from __future__ import annotations

import time

import pytest

from tests.support.backend_trainings import config_of
from tests.support.tiny_tasks import tiny_task
from tuner.config import Backend, RunConfig
from tuner.data.prepare import prepare
from tuner.data.windows import DeviceData, to_device
from tuner.estimate import serve_orders as subject
from tuner.training.engines.choose import make_engine
from tuner.training.engines.eager import Engine

COMPILES_S = 0.3
CONFIG = config_of("original", Backend.EAGER, hidden_size=16, batch_size=64)


@pytest.fixture(scope="module")
def data() -> DeviceData:
    return to_device(prepare(tiny_task(), cache_dir=None), "cpu")


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """When engines were made; the first one waits for a compiler."""
    times: list[float] = []

    def compiled_once(config: RunConfig, data: DeviceData, model: object) -> Engine:
        if not times:
            time.sleep(COMPILES_S)
        times.append(time.perf_counter())
        return make_engine(config, data, model)  # type: ignore[arg-type]

    monkeypatch.setattr(subject, "make_engine", compiled_once)
    monkeypatch.setattr(subject, "AGAIN_S", 0.9 * COMPILES_S)
    return times


def test_a_long_set_up_is_made_twice(
    data: DeviceData, made: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "COMPILED", (Backend.EAGER.value,))
    found = subject.measure_size(CONFIG, data)
    assert len(made) == 2
    assert found.fits
    assert found.built_s > 0.5 * COMPILES_S
    assert found.setup_s < COMPILES_S < found.setup_s + found.built_s


def test_what_no_compiler_took_is_not_built(data: DeviceData, made: list[float]) -> None:
    found = subject.measure_size(CONFIG, data)
    assert len(made) == 2
    assert found.setup_s < COMPILES_S
    assert found.built_s == 0.0


def test_a_short_one_is_not(data: DeviceData, made: list[float]) -> None:
    made.append(0.0)  # compiled before
    found = subject.measure_size(CONFIG, data)
    assert len(made) == 2
    assert (found.fits, found.built_s) == (True, 0.0)


def test_whether_it_fits_takes_one(data: DeviceData, made: list[float]) -> None:
    assert subject.measure_size(CONFIG, data, timed=False).fits
    assert len(made) == 1
