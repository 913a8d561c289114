"""Activation checkpointing: the same bits, blocks computed twice, and a network left as it was."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tests.support.fitted_results import losses_of, same_weights
from tuner.config import RunConfig
from tuner.data.windows import DeviceData
from tuner.models.registry import build_model
from tuner.training import fit
from tuner.training.step import CheckpointedNetwork, blocks_of

Configure = Callable[..., RunConfig]


@pytest.mark.parametrize("name", ["batchnorm", "original"])
def test_a_training_is_bit_for_bit_the_one_without(
    data: DeviceData, run_config: Configure, name: str
) -> None:
    """With dropout, and with `batchnorm` running statistics, which must count a batch once."""
    plain, checkpointed = (
        fit(run_config(name, dropout=0.3, max_epochs=2, checkpoint_activations=on), data)
        for on in (False, True)
    )
    assert losses_of(plain) == losses_of(checkpointed)
    assert same_weights(plain, checkpointed)


class Counting(nn.Module):
    """A block that draws random numbers, has a buffer that it changes, and counts its passes."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.register_buffer("momentum", torch.ones(3))
        self.passes = 0

    def forward(self, x: Tensor) -> Tensor:
        self.passes += 1
        self.momentum: Tensor
        self.momentum.mul_(0.5)
        dropped = torch.nn.functional.dropout(self.inner(x).relu(), 0.5, self.training)
        found: Tensor = x + dropped * self.momentum
        return found


class Stack(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter = nn.Linear(3, 3)
        self.blocks = nn.ModuleList(Counting() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        for block in self.blocks:
            x = block(x)
        return x


def passes(model: Stack) -> list[int]:
    return [block.passes for block in model.blocks if isinstance(block, Counting)]


def gradients(model: Stack, run: Callable[[Tensor], Tensor]) -> list[Tensor]:
    torch.manual_seed(1)
    x = torch.randn(5, 3)
    run(x).square().mean().backward()
    return [p.grad.clone() for p in model.parameters() if p.grad is not None]


def test_a_block_runs_twice_with_the_random_numbers_and_the_buffers_it_had() -> None:
    torch.manual_seed(0)
    plain, checkpointed = Stack(), Stack()
    checkpointed.load_state_dict(plain.state_dict())
    ours = gradients(checkpointed, CheckpointedNetwork(checkpointed))
    assert all(map(torch.equal, ours, gradients(plain, plain)))
    assert passes(plain) == [1, 1]
    assert passes(checkpointed) == [2, 2]
    assert all(map(torch.equal, checkpointed.buffers(), plain.buffers())), "changed once, not twice"


def test_without_gradients_nothing_is_computed_twice() -> None:
    model = Stack()
    with torch.no_grad():
        CheckpointedNetwork(model)(torch.zeros(5, 3))
    assert passes(model) == [1, 1]


def test_the_network_is_left_as_it_was_also_when_it_raises() -> None:
    model = Stack()
    mine = model.blocks[0].forward
    vars(model.blocks[0])["forward"] = mine
    with pytest.raises(RuntimeError, match="shapes"):
        CheckpointedNetwork(model)(torch.zeros(5, 4))
    assert vars(model.blocks[0]).pop("forward") is mine
    assert all("forward" not in vars(module) for module in model.modules())


def test_blocks_are_what_lists_hold_and_else_the_networks_own_children(
    data: DeviceData, run_config: Configure
) -> None:
    stack = Stack()
    assert blocks_of(stack) == list(stack.blocks)
    block, whole = Counting(), Stack()
    nested = nn.Sequential(nn.Linear(3, 3), nn.Sequential(block, nn.ReLU()), whole)
    assert blocks_of(nested) == [block, whole], "single layers are not worth it"
    layers = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    assert blocks_of(layers) == list(layers)
    config = run_config()
    ours = build_model(config.architecture, data.shapes, config.hyperparameters)
    assert blocks_of(ours) == list(ours.blocks)  # type: ignore[arg-type]
