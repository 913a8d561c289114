"""What a compiler makes once is told apart from what each training's set-up takes."""

from __future__ import annotations

import time

import pytest
import torch

from tests.support.backend_trainings import config_of
from tests.support.tiny_tasks import tiny_task
from tuner.config import Backend, RunConfig
from tuner.data.prepare import prepare
from tuner.data.windows import DeviceData, to_device
from tuner.estimate import driven
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

    monkeypatch.setattr(driven, "make_engine", compiled_once)
    monkeypatch.setattr(subject, "AGAIN_S", 0.9 * COMPILES_S)
    return times


def test_a_long_set_up_is_made_twice(
    data: DeviceData, made: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subject, "COMPILED", (Backend.EAGER.value,))
    found, _ = subject.measure_size(CONFIG, data)
    assert len(made) == 2
    assert found.fits
    assert found.built_s > 0.5 * COMPILES_S
    assert found.setup_s < COMPILES_S < found.setup_s + found.built_s


def test_what_no_compiler_took_is_not_built(data: DeviceData, made: list[float]) -> None:
    found, _ = subject.measure_size(CONFIG, data)
    assert len(made) == 2
    assert found.setup_s < COMPILES_S
    assert found.built_s == 0.0


def test_a_short_one_is_not(data: DeviceData, made: list[float]) -> None:
    made.append(0.0)  # compiled before
    found, _ = subject.measure_size(CONFIG, data)
    assert len(made) == 2
    assert (found.fits, found.built_s) == (True, 0.0)


def test_whether_it_fits_takes_one(data: DeviceData, made: list[float]) -> None:
    found, usable = subject.measure_size(CONFIG, data, timed=False)
    assert (found.fits, usable) == (True, True)
    assert len(made) == 1


def test_after_a_capture_that_cannot_end_the_process_is_given_up(
    data: DeviceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ran_out(*_: object) -> Engine:
        raise torch.OutOfMemoryError("CUDA out of memory")

    def could_not_end(*_: object) -> Engine:
        try:
            return ran_out()
        finally:
            raise RuntimeError("capture_end: unjoined work")

    for make, goes_on in ((ran_out, True), (could_not_end, False)):
        monkeypatch.setattr(driven, "make_engine", make)
        found, usable = subject.measure_size(CONFIG, data)
        assert (found.fits, usable) == (False, goes_on)
        assert "out of memory" in found.failure


def test_a_size_that_a_library_refuses_in_words_of_its_own_does_not_fit(
    data: DeviceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> Engine:
        raise RuntimeError("numel is larger than 32 bits can count")

    monkeypatch.setattr(driven, "make_engine", refused)
    found, usable = subject.measure_size(CONFIG, data, timed=False)
    assert (found.failure, usable) == ("numel is larger than 32 bits can count", True)
    with pytest.raises(RuntimeError, match="32 bits"):
        subject.measure_size(CONFIG, data)
