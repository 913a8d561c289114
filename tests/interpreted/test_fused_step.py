"""Steps around the network beside the eager engine's, and a state on its way between both.

The network itself is the plain one here: interpreted, the fused one takes most of a second a
window. With it, a few steps are compared in `test_fused_training.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
import torch
from torch import Tensor

from tests.support.fused_epochs import (
    assert_near,
    eager_epoch,
    fused_epoch,
    network,
    order_of,
    weights,
)
from tuner.config import Precision, RunConfig
from tuner.data.windows import DeviceData
from tuner.kernels.launch_order import Launching
from tuner.models.tsmixer import TSMixer
from tuner.training.engines.eager import EagerEngine
from tuner.training.engines.fused_engine import TritonEngine
from tuner.training.engines.fused_step import RANDOM_STATE
from tuner.training.stage_marks import Stage

Configure = Callable[..., RunConfig]
STAGES = [
    Stage.OTHER,
    Stage.DATA,
    Stage.FORWARD,
    Stage.BACKWARD,
    Stage.OPTIMISER,
    Stage.OTHER,
]


class Plain:
    """What stands for `FusedTSMixer`."""

    def __init__(self, model: TSMixer, precision: Precision, launching: Launching) -> None:
        self.model = model
        self.random_state = torch.tensor([torch.initial_seed(), 0])

    def __call__(self, past: Tensor, future: Tensor | None, static: Tensor | None) -> Tensor:
        forecast: Tensor = self.model(past, future, static)
        return forecast


@pytest.fixture(autouse=True)
def _plain_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.training.engines.fused_engine.FusedTSMixer", Plain)


@pytest.mark.parametrize(("model", "clip"), [("original", 0.05), ("rmsnorm", 1e9)])
def test_fused_epochs_are_the_eager_ones(
    data: DeviceData, run_config: Configure, model: str, clip: float
) -> None:
    config = run_config(model, weight_decay=0.1, gradient_clip=clip)
    fused, eager = (
        TritonEngine(config, data, network(config, data)),
        EagerEngine(config, data, network(config, data)),
    )
    start = weights(eager.model)
    for seed in (1, 2):
        ours, theirs = (
            fused_epoch(fused, order_of(data, seed), 1e-3),
            eager_epoch(eager, order_of(data, seed), 1e-3),
        )
        assert ours == pytest.approx(theirs, rel=1e-5)
    assert_near(weights(fused.model), weights(eager.model), 1e-3)
    assert (
        max(float((a - b).abs().max()) for a, b in zip(start, weights(fused.model), strict=True))
        > 1e-3
    )


def test_a_fused_step_tells_its_stages_in_their_order(
    data: DeviceData, run_config: Configure
) -> None:
    config = run_config("original")
    engine, seen = TritonEngine(config, data, network(config, data)), list[Stage]()
    engine.mark_with(seen.append)
    engine._order.copy_(order_of(data, 1))
    engine._begin_epoch()
    engine._train_batch(engine._batch_size)
    assert seen == STAGES


def test_validation_in_pieces_is_that_in_one(
    data: DeviceData, run_config: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = run_config()
    engine = TritonEngine(config, data, network(config, data))
    engine.model.eval()
    engine._validate()
    whole = float(engine._validation_loss_sum())
    monkeypatch.setattr(
        "tuner.training.engines.fused_engine.VALIDATION_BATCH", len(data.val) // 3 + 1
    )
    engine._validate()
    assert float(engine._validation_loss_sum()) == pytest.approx(whole, rel=1e-6)


def test_a_training_goes_on_on_either_engine_from_the_state_of_the_other(
    data: DeviceData, run_config: Configure
) -> None:
    config = run_config(weight_decay=0.1)
    first, second = order_of(data, 1), order_of(data, 2)

    eager = EagerEngine(config, data, network(config, data))
    eager_epoch(eager, first, 1e-3)
    fused = TritonEngine(config, data, network(config, data))
    fused.load({name: tensor.clone() for name, tensor in eager.state().items()})
    assert fused_epoch(fused, second, 1e-3) == pytest.approx(
        eager_epoch(eager, second, 1e-3), rel=1e-5
    )
    assert_near(weights(fused.model), weights(eager.model), 1e-3)

    back = EagerEngine(config, data, network(config, data))
    back.load({name: tensor.clone() for name, tensor in fused.state().items()})
    third = order_of(data, 3)
    assert eager_epoch(back, third, 1e-3) == pytest.approx(
        fused_epoch(fused, third, 1e-3), rel=1e-5
    )
    assert_near(weights(fused.model), weights(back.model), 1e-3)


def test_its_own_state_is_continued_bit_for_bit_with_the_same_masks(
    data: DeviceData, run_config: Configure
) -> None:
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
    assert all(
        torch.equal(a, b) for a, b in zip(weights(whole.model), weights(resumed.model), strict=True)
    )


def unchanged(engine: TritonEngine, before: Mapping[str, Tensor]) -> bool:
    return all(torch.equal(tensor, before[name]) for name, tensor in engine.state().items())


def test_what_does_not_fit_is_refused_and_changes_nothing(
    data: DeviceData, run_config: Configure
) -> None:
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
        engine.load(
            {
                name: tensor + 1
                for name, tensor in before.items()
                if not name.startswith("optimizer/1/")
            }
        )
    assert unchanged(engine, before)


def test_what_warm_up_did_is_forgotten(data: DeviceData, run_config: Configure) -> None:
    config = run_config(dropout=0.2)
    engine = TritonEngine(config, data, network(config, data))
    before = {name: tensor.clone() for name, tensor in engine.state().items()}
    fused_epoch(engine, order_of(data, 1), 1e-3)
    engine.state()[RANDOM_STATE].add_(5)
    engine._state.reset_optimizer()
    after = engine.state()
    assert all(
        torch.equal(after[name], tensor)
        for name, tensor in before.items()
        if not name.startswith("model/")
    )


def test_after_release_the_parameters_have_memory_of_their_own(
    data: DeviceData, run_config: Configure
) -> None:
    config = run_config()
    engine = TritonEngine(config, data, network(config, data))
    fused_epoch(engine, order_of(data, 1), 1e-3)
    trained = weights(engine.model)
    engine._state.release()
    assert all(
        torch.equal(p, value) for p, value in zip(engine.model.parameters(), trained, strict=True)
    )
    assert all(p.untyped_storage().nbytes() == p.nbytes for p in engine.model.parameters())
