"""Social-xLSTM captured as a CUDA graph trains as it does plainly."""

from __future__ import annotations

import pytest

from tests.support.small_road import config_of, losses, prepared_road
from tuner.config import Backend, Precision
from tuner.data.windows import DeviceData, to_device
from tuner.models.names import LOOP, social_names
from tuner.training.engines.choose import what_auto_means


@pytest.fixture(scope="module")
def on_road(tmp_path_factory: pytest.TempPathFactory) -> DeviceData:
    folder = tmp_path_factory.mktemp("road")
    return to_device(prepared_road(folder, detectors=16, rows=900), "cuda")


@pytest.mark.parametrize(
    ("variant", "settings"),
    [
        *((variant, {"n_layers": 2}) for variant in social_names()),
        (LOOP, {"kind": "slstm"}),
        (LOOP, {"pooling": "none"}),
    ],
    ids=str,
)
def test_captured_is_eager(on_road: DeviceData, variant: str, settings: dict[str, object]) -> None:
    eager, captured = (
        config_of(variant, settings=settings, dropout=0.0, backend=backend)
        for backend in (Backend.EAGER, Backend.GRAPH)
    )
    assert losses(captured, on_road) == pytest.approx(losses(eager, on_road), rel=1e-3)


def test_captured_trainings_repeat_bit_for_bit(on_road: DeviceData) -> None:
    config = config_of(LOOP, dropout=0.2, settings={"n_layers": 2}, backend=Backend.GRAPH)
    first, second = (losses(config, on_road) for _ in range(2))
    assert first == second


@pytest.mark.parametrize("precision", [Precision.BF16, Precision.FP16])
def test_captured_16_bits_train_as_32_do(on_road: DeviceData, precision: Precision) -> None:
    exact, half = (
        losses(
            config_of(
                LOOP,
                settings={"n_layers": 2},
                dropout=0.0,
                backend=Backend.GRAPH,
                precision=each,
            ),
            on_road,
        )
        for each in (Precision.FP32, precision)
    )
    assert half == pytest.approx(exact, rel=0.03)


def test_auto_measures_and_captures(on_road: DeviceData) -> None:
    choice = what_auto_means(config_of(LOOP), on_road)
    assert choice is not None
    assert choice.backend is Backend.GRAPH
