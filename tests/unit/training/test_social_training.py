"""Social-xLSTM under tuner's ordinary training: nothing waits, every setting works, neighbours
help."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from tests.support.fitted_results import losses_of, same_weights
from tests.support.networks_to_look_at import batch_of, step_of
from tests.support.present import present
from tests.support.small_road import config_of, losses, prepared_road
from tuner.config import Precision
from tuner.data.prepare import PreparedData
from tuner.data.windows import DeviceData, to_device
from tuner.models.names import HEADS, LOOP, SHARED, social_names
from tuner.models.registry import build_model
from tuner.training import evaluate, fit
from tuner.training.inspection.host_waits import Waits, host_waits


@pytest.fixture(scope="module")
def road(tmp_path_factory: pytest.TempPathFactory) -> PreparedData:
    return prepared_road(tmp_path_factory.mktemp("road"))


@pytest.fixture(scope="module")
def on_road(road: PreparedData) -> DeviceData:
    return to_device(road, "cpu")


SETTINGS: list[dict[str, object]] = [{"n_layers": 2}, {"kind": "slstm"}, {"pooling": "none"}]
FORMS: list[tuple[str, dict[str, object]]] = [
    *itertools.product(social_names(), SETTINGS),
    (SHARED, {"group_size": 2, "n_layers": 2}),
    (SHARED, {"group_size": 2, "kind": "slstm"}),
]


@pytest.mark.parametrize(("variant", "settings"), FORMS)
def test_a_step_never_waits_for_its_device(
    on_road: DeviceData, variant: str, settings: dict[str, object]
) -> None:
    config = config_of(variant, settings=settings)
    model = build_model(config.architecture, on_road.shapes, config.hyperparameters)
    assert host_waits(step_of(model, on_road), batch_of(on_road)) == Waits()


@pytest.mark.parametrize(
    ("variant", "settings"), [form for form in FORMS if form[1].get("n_layers") == 2]
)
def test_checkpointed_activations_give_the_same_bits(
    on_road: DeviceData, variant: str, settings: dict[str, object]
) -> None:
    plain, checkpointed = (
        fit(config_of(variant, settings=settings, checkpoint_activations=on), on_road)
        for on in (False, True)
    )
    assert losses_of(plain) == losses_of(checkpointed)
    assert same_weights(plain, checkpointed)


@pytest.mark.parametrize(
    ("settings", "precision"),
    [
        ({"kind": "mlstm"}, Precision.FP16),
        ({"kind": "slstm", "group_size": 2}, Precision.BF16),
    ],
)
def test_16_bits_train_as_32_do(
    on_road: DeviceData, settings: dict[str, object], precision: Precision
) -> None:
    settings = {**settings, "n_layers": 2}
    exact, half = (
        losses(config_of(SHARED, settings=settings, dropout=0.0, precision=each), on_road)
        for each in (Precision.FP32, precision)
    )
    assert half == pytest.approx(exact, rel=0.02)
    assert half != exact


def test_float64_is_kept(road: PreparedData) -> None:
    data = to_device(road, "cpu", dtype=torch.float64)
    config = config_of(SHARED, settings={"n_layers": 2}, dropout=0.0)
    model = build_model(config.architecture, data.shapes, config.hyperparameters).eval()
    batch = data.train.gather(torch.arange(4))
    single = model(batch.past.float(), present(batch.future).float(), batch.static)
    double = model.double()(batch.past, batch.future, batch.static)
    assert double.dtype == torch.float64
    assert (double - single).abs().max() < 1e-5


def test_the_same_seed_gives_the_same_training(on_road: DeviceData) -> None:
    first, second = (fit(config_of(HEADS), on_road) for _ in range(2))
    assert losses_of(first) == losses_of(second)
    assert losses_of(fit(config_of(LOOP), on_road)) != losses_of(first)


def test_neighbours_help_where_jams_travel(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("long-road")
    data = to_device(prepared_road(folder, detectors=6, rows=900), "cpu")
    found = {}
    for pooling in ("social", "none"):
        config = config_of(
            SHARED,
            settings={"pooling": pooling},
            dropout=0.0,
            learning_rate=3e-3,
            max_epochs=20,
            patience=20,
        )
        found[pooling] = evaluate(present(fit(config, data).model), data).val_mql_mean
    assert math.isfinite(found["social"])
    assert found["social"] < 0.97 * found["none"], found
