"""Activation checkpointing: a network's blocks keep their inputs only, and what a backward pass
needs of their insides is computed again.

torch.utils.checkpoint does it, non-reentrant. What comes out is the same, bit for bit: the state of
the random number generators is put back, so dropout draws the same masks; and a block computes
again with the buffers that it had, and leaves those alone, so that running statistics count a batch
once. What a block keeps outside of its buffers (a Python counter of its own) it does change twice.

Of a network only its modules are looked at:

- A block is what an outermost nn.ModuleList or nn.Sequential holds, as long as it has modules of
  its own: to keep the input of a single layer saves nothing.
- Where there is none, the network's own children are the blocks.

A block counts where it is called, as `block(x)`; what a network calls of its insides is not kept.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """What is computed again, in the order in which the network has them."""
    found = list(_repeated(model))
    return found or list(model.children())


def _repeated(module: nn.Module) -> Iterator[nn.Module]:
    """Blocks in the outermost lists below a module; a list in a list is looked into."""
    for child in module.children():
        if _is_list(module) and not _is_list(child):
            if any(True for _ in child.children()):
                yield child
        else:
            yield from _repeated(child)


def _is_list(module: nn.Module) -> bool:
    return isinstance(module, nn.ModuleList | nn.Sequential)


class CheckpointedNetwork:
    """Calls a network with its blocks checkpointed; the network itself stays as it is."""

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._blocks = blocks_of(model)

    def __call__(self, *inputs: Tensor | None) -> Tensor:
        """The network's forecast; without gradients there is nothing to keep."""
        if not torch.is_grad_enabled():
            plain: Tensor = self._model(*inputs)
            return plain
        with _in_place_of(self._blocks, next(self._model.parameters()).device):
            forecast: Tensor = self._model(*inputs)
        return forecast


@contextlib.contextmanager
def _in_place_of(blocks: list[nn.Module], device: torch.device) -> Iterator[None]:
    """The blocks' forward passes are checkpointed ones in here."""
    # An attribute of the instance, found before the class's method; maybe there was one before.
    before = [vars(block).get("forward") for block in blocks]
    try:
        for block in blocks:
            vars(block)["forward"] = functools.partial(_checkpointed, block, block.forward, device)
        yield
    finally:
        for block, forward in zip(blocks, before, strict=True):
            vars(block).pop("forward", None)
            if forward is not None:
                vars(block)["forward"] = forward


def _checkpointed(
    block: nn.Module,
    forward: Callable[..., Any],
    device: torch.device,
    *arguments: Any,
    **named: Any,
) -> Any:
    buffers, random = _buffers(block), _random_state(device)

    def contexts() -> tuple[Context, Context]:
        return contextlib.nullcontext(), _as_then(buffers, random, device)

    # torch would look for the device in positional arguments only, and keep no other's state.
    return checkpoint(
        forward,
        *arguments,
        use_reentrant=False,
        preserve_rng_state=False,
        context_fn=contexts,
        **named,
    )


Context = contextlib.AbstractContextManager[Any]
Buffers = list[tuple[dict[str, Tensor | None], str, Tensor]]
"""Where a buffer is held, its name there, and a copy of it."""


def _buffers(block: nn.Module) -> Buffers:
    """Copies of all that a block has, as they are now."""
    return [
        (module._buffers, name, buffer.detach().clone())  # noqa: SLF001 - to exchange, not to write
        for module in block.modules()
        for name, buffer in module._buffers.items()  # noqa: SLF001
        if buffer is not None
    ]


def _random_state(device: torch.device) -> tuple[Tensor, Tensor | None]:
    """Of the CPU's generator, and of the device's."""
    on_device = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    return torch.get_rng_state(), on_device


@contextlib.contextmanager
def _as_then(
    buffers: Buffers, random: tuple[Tensor, Tensor | None], device: torch.device
) -> Iterator[None]:
    """With these buffers and random numbers in here; the present ones are put back, untouched.

    A buffer is exchanged, not written to: written to, what autograd saved of it would be of no use.
    """
    own = [(held, name, held[name]) for held, name, _ in buffers]
    devices = [] if random[1] is None else [device]
    with torch.random.fork_rng(devices=devices):
        torch.set_rng_state(random[0])
        if random[1] is not None:
            torch.cuda.set_rng_state(random[1], device)
        for held, name, copy in buffers:
            held[name] = copy
        try:
            yield
        finally:
            for held, name, buffer in own:
                held[name] = buffer
