"""Whole steps on the fused kernels, beside the eager engine's, and a training's state on its way between both."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor

from tuner.config import RunConfig
from tuner.data.windows import DeviceData
from tuner.models.registry import build_model
from tuner.models.tsmixer import TSMixer
from tuner.training.eager import EagerEngine
from tuner.training.fused.engine import TritonEngine
from tuner.training.fused.step import RANDOM_STATE

Configure = Callable[..., RunConfig]
EPOCH = [8, 8, 6]


def network(config: RunConfig, data: DeviceData) -> TSMixer:
    torch.manual_seed(11)
    model = build_model(config.architecture, data.shapes, config.hyperparameters)
    assert isinstance(model, TSMixer)
    return model


def order_of(data: DeviceData, seed: int) -> Tensor:
    return torch.randperm(len(data.train), generator=torch.Generator().manual_seed(seed))


def fused_epoch(engine: TritonEngine, order: Tensor, learning_rate: float) -> tuple[float, float]:
    """What a captured epoch does, launched kernel by kernel: the losses of training and validation."""
    assert sum(EPOCH) == len(order)
    engine._updates.set_learning_rate(learning_rate)
    engine._order.copy_(order)
    engine._begin_epoch()
    engine.model.train()
    for size in EPOCH:
        engine._train_batch(size)
    engine.model.eval()
    engine._validate()
    return float(engine._train_loss_sum()), float(engine._validation_loss_sum()) / len(engine._data.val)


def eager_epoch(engine: EagerEngine, order: Tensor, learning_rate: float) -> tuple[float, float]:
    return float(engine.train_epoch(order, learning_rate, lambda: None).loss_sum), float(engine.validation_loss())


def weights(model: torch.nn.Module) -> list[Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def assert_near(these: list[Tensor], those: list[Tensor], learning_rate: float) -> None:
    """As much as rounding does to a few steps of Adam, which makes any gradient a step of the learning rate."""
    for one, other in zip(these, those, strict=True):
        assert float((one - other).abs().max()) < 0.05 * learning_rate


@pytest.mark.parametrize("model", ["original", "rmsnorm"])
@pytest.mark.parametrize("clip", [0.05, 1e9])
def test_fused_epochs_are_the_eager_ones(data: DeviceData, run_config: Configure, model: str, clip: float) -> None:
    config = run_config(model, weight_decay=0.1, gradient_clip=clip)
    fused, eager = TritonEngine(config, data, network(config, data)), EagerEngine(config, data, network(config, data))
    start = weights(eager.model)
    for seed in (1, 2):
        ours, theirs = (
            fused_epoch(fused, order_of(data, seed), 1e-3),
            eager_epoch(eager, order_of(data, seed), 1e-3),
        )
        assert ours == pytest.approx(theirs, rel=1e-5)
    assert_near(weights(fused.model), weights(eager.model), 1e-3)
    assert max(float((a - b).abs().max()) for a, b in zip(start, weights(fused.model), strict=True)) > 1e-3


def test_validation_in_pieces_is_that_in_one(
    data: DeviceData, run_config: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = run_config()
    engine = TritonEngine(config, data, network(config, data))
    engine.model.eval()
    engine._validate()
    whole = float(engine._validation_loss_sum())
    monkeypatch.setattr("tuner.training.fused.engine.VALIDATION_BATCH", len(data.val) // 3 + 1)
    engine._validate()
    assert float(engine._validation_loss_sum()) == pytest.approx(whole, rel=1e-6)


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_a_training_goes_on_on_either_engine_from_the_state_of_the_other(
    data: DeviceData, run_config: Configure, weight_decay: float
) -> None:
    config = run_config(weight_decay=weight_decay)
    first, second = order_of(data, 1), order_of(data, 2)

    eager = EagerEngine(config, data, network(config, data))
    eager_epoch(eager, first, 1e-3)
    fused = TritonEngine(config, data, network(config, data))
    fused.load({name: tensor.clone() for name, tensor in eager.state().items()})
    assert fused_epoch(fused, second, 1e-3) == pytest.approx(eager_epoch(eager, second, 1e-3), rel=1e-5)
    assert_near(weights(fused.model), weights(eager.model), 1e-3)

    back = EagerEngine(config, data, network(config, data))
    back.load({name: tensor.clone() for name, tensor in fused.state().items()})
    third = order_of(data, 3)
    assert eager_epoch(back, third, 1e-3) == pytest.approx(fused_epoch(fused, third, 1e-3), rel=1e-5)
    assert_near(weights(fused.model), weights(back.model), 1e-3)


def test_its_own_state_is_continued_bit_for_bit_with_the_same_masks(data: DeviceData, run_config: Configure) -> None:
    config = run_config(dropout=0.3)
    whole = TritonEngine(config, data, network(config, data))
    fused_epoch(whole, order_of(data, 1), 1e-3)
    whole.state()[RANDOM_STATE].add_(5)
    saved = {name: tensor.clone() for name, tensor in whole.state().items()}
    masks = torch.get_rng_state()
    expected = fused_epoch(whole, order_of(data, 2), 1e-3)

    resumed = TritonEngine(config, data, network(config, data))
    resumed.load(saved)
    assert torch.equal(resumed.state()[RANDOM_STATE], saved[RANDOM_STATE])
    torch.set_rng_state(masks)
    assert fused_epoch(resumed, order_of(data, 2), 1e-3) == expected
    assert all(torch.equal(a, b) for a, b in zip(weights(whole.model), weights(resumed.model), strict=True))


def unchanged(engine: TritonEngine, before: Mapping[str, Tensor]) -> bool:
    return all(torch.equal(tensor, before[name]) for name, tensor in engine.state().items())


def test_what_does_not_fit_is_refused_and_changes_nothing(data: DeviceData, run_config: Configure) -> None:
    config = run_config()
    engine = TritonEngine(config, data, network(config, data))
    fused_epoch(engine, order_of(data, 1), 1e-3)
    before = {name: tensor.clone() for name, tensor in engine.state().items()}
    for changes, says in (
        ({"optimizer/0/step": torch.tensor(7.0)}, "different numbers of steps"),
        ({RANDOM_STATE: torch.zeros(5, dtype=torch.int64)}, "random state"),
        ({"optimizer/1/exp_avg": torch.zeros(3)}, "does not fit parameter 1"),
    ):
        with pytest.raises(ValueError, match=says):
            engine.load({name: tensor + 1 for name, tensor in before.items()} | changes)
        assert unchanged(engine, before)
    with pytest.raises(ValueError, match="different numbers of steps"):
        engine.load({name: tensor + 1 for name, tensor in before.items() if not name.startswith("optimizer/1/")})
    assert unchanged(engine, before)


def test_what_warm_up_did_is_forgotten(data: DeviceData, run_config: Configure) -> None:
    config = run_config(dropout=0.2)
    engine = TritonEngine(config, data, network(config, data))
    before = {name: tensor.clone() for name, tensor in engine.state().items()}
    fused_epoch(engine, order_of(data, 1), 1e-3)
    engine.state()[RANDOM_STATE].add_(5)
    engine._updates.forget()
    after = engine.state()
    assert all(torch.equal(after[name], tensor) for name, tensor in before.items() if not name.startswith("model/"))


def test_after_release_the_parameters_have_memory_of_their_own(data: DeviceData, run_config: Configure) -> None:
    config = run_config()
    engine = TritonEngine(config, data, network(config, data))
    fused_epoch(engine, order_of(data, 1), 1e-3)
    trained = weights(engine.model)
    engine._updates.release()
    assert all(torch.equal(p, value) for p, value in zip(engine.model.parameters(), trained, strict=True))
    assert all(p.untyped_storage().nbytes() == p.nbytes for p in engine.model.parameters())
