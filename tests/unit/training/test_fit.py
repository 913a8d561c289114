"""What `fit` returns: the same for the same seed, the best weights, figures that agree."""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch

from tests.support.fitted_results import losses_of, same_weights, validation_loss
from tests.support.present import present
from tuner.config import Architecture, Backend, Precision, RunConfig, TrainingSettings
from tuner.data.windows import DeviceData
from tuner.errors import UsageError
from tuner.models.names import builtin_names
from tuner.models.registry import build_model
from tuner.training import fit
from tuner.training.engines.eager import EagerEngine

Configure = Callable[..., RunConfig]
T = TypeVar("T")


@pytest.mark.parametrize("name", ["batchnorm", "original"])
def test_one_seed_gives_one_result_and_another_seed_another(
    data: DeviceData, run_config: Configure, name: str
) -> None:
    first, again, other = (fit(run_config(name, max_epochs=2, seed=s), data) for s in (1, 1, 2))
    assert losses_of(first) == losses_of(again)
    assert same_weights(first, again)
    assert losses_of(first) != losses_of(other)


@pytest.mark.parametrize("name", builtin_names())
def test_training_lowers_the_validation_loss(
    data: DeviceData, run_config: Configure, name: str
) -> None:
    history = fit(run_config(name, max_epochs=4), data).history
    assert present(history[-1].val_loss) < 0.97 * present(history[0].val_loss)


def test_a_warmed_up_training_is_bit_for_bit_one_that_is_not(
    data: DeviceData, run_config: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = run_config("batchnorm", max_epochs=2)
    warmed = fit(config, data)
    monkeypatch.setattr(EagerEngine, "warm_up", lambda self: None)
    cold = fit(config, data)
    assert losses_of(warmed) == losses_of(cold)
    assert same_weights(warmed, cold)


def test_the_callers_random_state_and_arithmetic_are_untouched(
    data: DeviceData, run_config: Configure
) -> None:
    torch.manual_seed(5)
    state = torch.get_rng_state()
    convolutions: Any = torch.backends.cudnn.conv  # type: ignore[attr-defined]
    precision = convolutions.fp32_precision
    fit(run_config(max_epochs=1), data)
    assert torch.equal(torch.get_rng_state(), state)
    assert convolutions.fp32_precision == precision


def test_the_result_does_not_depend_on_the_callers_random_state(
    data: DeviceData, run_config: Configure
) -> None:
    torch.manual_seed(1)
    first = fit(run_config(max_epochs=1), data)
    torch.manual_seed(2)
    assert losses_of(fit(run_config(max_epochs=1), data)) == losses_of(first)


def test_every_epoch_has_its_own_shuffle(
    data: DeviceData, run_config: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    orders = []
    train_epoch = EagerEngine.train_epoch

    def remember(self: EagerEngine, order: torch.Tensor, *rest: Any) -> object:
        orders.append(order)
        return train_epoch(self, order, *rest)

    monkeypatch.setattr(EagerEngine, "train_epoch", remember)
    fit(run_config(max_epochs=3), data)
    assert all(torch.equal(order.sort().values, torch.arange(len(data.train))) for order in orders)
    assert len({tuple(order.tolist()) for order in orders}) == 3


def test_the_weights_kept_are_those_of_the_strictly_lowest_validation_loss(
    data: DeviceData, run_config: Configure
) -> None:
    """min_delta is so large that no epoch but the first improves; the last train too fast."""
    config = run_config(
        "batchnorm",
        learning_rate=0.01,
        max_epochs=50,
        patience=8,
        min_delta=100,
    )
    faster = config.training.but(learning_rate_decay=2.0)  # beyond its bounds, so that it diverges
    config = dataclasses.replace(config, training=faster)
    result = fit(config, data)
    losses = [present(record.val_loss) for record in result.history]
    assert result.epochs == 9
    assert result.best_val_loss == min(losses)
    assert result.best_epoch == losses.index(min(losses)) + 1 > 1
    assert result.time_to_best_s == result.history[result.best_epoch - 1].elapsed_s
    assert validation_loss(result, data) == pytest.approx(result.best_val_loss, rel=1e-5)
    assert losses[-1] != min(losses), "the last epoch is the best one: this training shows nothing"
    lasting = dataclasses.replace(config, training=faster.but(restore_best_weights=False))
    last = fit(lasting, data)
    assert losses_of(last) == losses_of(result)
    assert validation_loss(last, data) == pytest.approx(losses[-1], rel=1e-5)


def test_the_callback_runs_off_the_clock_and_the_training_on_it(
    data: DeviceData, run_config: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    spent = {"callback": 0.0, "training": 0.0}

    def timed(what: str, action: Callable[..., T]) -> Callable[..., T]:
        def run(*given: object) -> T:
            began = time.perf_counter()
            try:
                return action(*given)
            finally:
                spent[what] += time.perf_counter() - began

        return run

    for part in ("train_epoch", "validation_loss"):
        monkeypatch.setattr(EagerEngine, part, timed("training", getattr(EagerEngine, part)))
    result = fit(
        run_config(max_epochs=3), data, on_epoch=timed("callback", lambda _: time.sleep(0.1))
    )
    assert spent["callback"] >= 0.3
    assert spent["training"] > 0
    assert result.total_s - result.setup_s - result.wall_clock_s >= spent["callback"]
    assert result.wall_clock_s >= spent["training"]


def test_the_learning_rate_decays_after_every_epoch(
    data: DeviceData, run_config: Configure
) -> None:
    result = fit(run_config(learning_rate=0.01, learning_rate_decay=0.5), data)
    assert [record.learning_rate for record in result.history] == [0.01, 0.005, 0.0025]


def test_a_given_model_is_trained_in_place(data: DeviceData, run_config: Configure) -> None:
    config = run_config(max_epochs=1)
    model = build_model(config.architecture, data.shapes, config.hyperparameters)
    before = [p.clone() for p in model.parameters()]
    result = fit(config, data, model=model)
    assert result.model is model
    assert not model.training
    assert all(not torch.equal(p, q) for p, q in zip(model.parameters(), before, strict=True))


def test_the_records_figures_belong_together(data: DeviceData, run_config: Configure) -> None:
    began = time.perf_counter()
    result = fit(run_config(max_epochs=3), data)
    spent = time.perf_counter() - began
    assert 0 < result.setup_s + result.wall_clock_s <= result.total_s <= spent
    assert result.s_per_epoch == pytest.approx(result.wall_clock_s / 3)
    assert result.samples_per_s == pytest.approx(3 * len(data.train) / result.wall_clock_s)
    elapsed = [record.elapsed_s for record in result.history]
    assert elapsed == sorted(elapsed)
    assert elapsed[-1] <= result.wall_clock_s
    assert result.n_parameters == sum(p.numel() for p in present(result.model).parameters())
    assert result.peak_memory_bytes > 10 * 2**20
    assert (result.backend, result.precision) == (Backend.EAGER, Precision.FP32)


def test_a_batch_larger_than_the_data_is_one_step(data: DeviceData, run_config: Configure) -> None:
    steps = 0

    def count() -> None:
        nonlocal steps
        steps += 1

    assert fit(run_config(batch_size=4096, max_epochs=2), data, should_stop=count).epochs == 2
    assert steps == 2


def test_an_own_class_is_trained_by_file(
    data: DeviceData, run_config: Configure, tmp_path: Path
) -> None:
    (tmp_path / "own.py").write_text(
        "import torch\n"
        "class LastValue(torch.nn.Module):\n"
        "    def __init__(self, shapes, *, hidden_size, dropout, spread):\n"
        "        super().__init__()\n"
        "        self.shapes = shapes\n"
        "        offset = torch.linspace(-spread, spread, shapes.n_quantiles)\n"
        "        self.offset = torch.nn.Parameter(offset)\n"
        "    def forward(self, past, future, static):\n"
        "        last = past[:, -1:, : self.shapes.n_targets, None]\n"
        "        return last.expand(-1, self.shapes.horizon, -1, -1) + self.offset\n"
    )
    architecture = Architecture(model=f"{tmp_path / 'own.py'}:LastValue", settings={"spread": 0.5})
    result = fit(
        replace(run_config(max_epochs=4, learning_rate=0.02), architecture=architecture), data
    )
    assert result.n_parameters == 5
    assert present(result.history[-1].val_loss) < present(result.history[0].val_loss)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("batch_size", 0),
        ("learning_rate", 0.0),
        ("learning_rate", math.nan),
        ("weight_decay", -0.1),
    ],
)
def test_settings_with_which_nothing_can_be_trained_are_refused(
    data: DeviceData, run_config: Configure, name: str, value: float
) -> None:
    with pytest.raises(UsageError, match=f"^{name} must be"):
        fit(run_config(**{name: value}), data)


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("batch_size", "RunConfig: hyperparameters.batch_size: a whole number"),
        ("max_epochs", "TrainingSettings: max_epochs: a whole number"),
        ("learning_rate", "RunConfig: hyperparameters.learning_rate: a number"),
        ("seed", "RunConfig: seed: a whole number"),
    ],
)
def test_a_truth_is_no_setting_of_a_training(
    data: DeviceData, run_config: Configure, name: str, where: str
) -> None:
    with pytest.raises(UsageError, match=f"^{where} .* is expected, got True"):
        fit(run_config(**{name: True}), data)


@pytest.mark.parametrize(("name", "value"), [("max_epochs", 0), ("gradient_clip", -1.0)])
def test_a_setting_out_of_its_bounds_is_refused_where_it_is_made(name: str, value: float) -> None:
    with pytest.raises(UsageError, match=f"^TrainingSettings: {name}: should be greater than 0"):
        TrainingSettings(**{name: value})


def test_an_unknown_variant_is_refused(data: DeviceData, run_config: Configure) -> None:
    with pytest.raises(UsageError, match="unknown variant 'orginal'"):
        fit(run_config("orginal"), data)
