"""Engines kept for the trainings to come: those of the same sizes need not build and capture anew.

Only the fused engine of a built-in network is kept, which is what `auto` takes for the reference
job; trainings on any other get an engine of their own, as they do without a pool. A kept engine
gives every bit that a new one would: what differs between trainings of the same sizes lies in the
device's memory, where its kernels read it.

An engine belongs to a training from `lend` until `take_back`, and is not in the pool in between: a
training that fails in any way leaves it to die. What a training returns shares no memory with it.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Protocol

import torch
from torch import nn

from tuner.config import Backend, RunConfig
from tuner.data.windows import DeviceData
from tuner.kernels import drops_out
from tuner.models.tsmixer import TSMixer
from tuner.training.engines.captured import GraphMemory
from tuner.training.engines.choose import choose_backend
from tuner.training.engines.eager import Engine

MOST = 32
"""Engines kept: a study of 400 trials meets about 25 combinations of hidden and batch size."""

SHARE = 0.1
"""Of the device's memory, at most, for what the kept engines hold."""

LEAST_FREE = 0.25
"""Of the device's memory, where an engine is made beside kept ones: with less these go first.

Memory that runs out in a capture may leave a process that can train no more.
"""


class Reusable(Engine, Protocol):
    """An engine that can begin another training of its sizes."""

    def renew(self, config: RunConfig, model: TSMixer) -> None:
        """As if it had been made and warmed up for this training, whose network is on the CPU."""

    def discard(self) -> None:
        """Lets go of everything, its model included: it serves no more. Allocates nothing."""


Kind = tuple[object, ...]
"""What an engine is made for, and cannot change."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lent:
    """An engine in the hands of a training, ready for its first epoch."""

    engine: Reusable
    kind: Kind
    n_bytes: int
    """That it holds on the device, beside the memory that all captures share."""
    peak_bytes: int
    """The most its earlier trainings had allocated; 0 where there was none."""


Make = Callable[[RunConfig, DeviceData, TSMixer, GraphMemory], Reusable]
"""Makes an engine for a network on the CPU, of which it takes a copy, and warms it up."""


class EnginePool:
    """Of whoever trains many configurations in one process, on one device; one training at a time.

    Args:
        most: engines kept; the one used longest ago goes first.
        share: of the device's memory that they may hold together.
        make: how an engine is made.
    """

    def __init__(self, *, most: int = MOST, share: float = SHARE, make: Make | None = None) -> None:
        self._most = most
        self._share = share
        self._make = _triton_engine if make is None else make
        self._kept: dict[Kind, Lent] = {}
        """In the order in which they were last used."""
        self._graph_memory: GraphMemory = None
        self._device = torch.device("cpu")
        self._lent_again = False
        self.took_back_last = False
        """Whether the latest training that asked ended well on an engine of the pool."""

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def n_bytes(self) -> int:
        """That the kept engines hold on the device, beside the memory that all captures share."""
        return sum(kept.n_bytes for kept in self._kept.values())

    def lend(self, config: RunConfig, data: DeviceData, model: nn.Module) -> Lent | None:
        """An engine for this training; None where none of its kind is kept.

        Args:
            config: of the training, under whose seed torch stands.
            data: on its device.
            model: the training's network on the CPU, as built; it is only read.

        Raises:
            UsageError: a backend this device does not have.
        """
        self.took_back_last, self._lent_again, self._device = False, False, data.minimum.device
        backend, _ = choose_backend(config, data.shapes, model, self._device, data.streamed)
        # A network derived from it may compute something else.
        if backend is not Backend.TRITON or type(model) is not TSMixer:
            return None
        kind = _kind(config, data)
        lent = self._kept.pop(kind, None)
        if lent is None:
            if _share_free(self._device) < LEAST_FREE:
                self.empty()
            lent = self._made(kind, config, data, model)
        else:
            self._lent_again = True
            lent.engine.renew(config, model)
        return lent

    def take_back(self, lent: Lent, *, peak_bytes: int) -> None:
        """Keep an engine whose training ended well; it is not to be used any more by then.

        Args:
            lent: what `lend` gave.
            peak_bytes: the most that was allocated in the training, beside other kept engines.
        """
        self.took_back_last = True
        peak = max(peak_bytes, lent.peak_bytes)
        self._kept[lent.kind] = replace(lent, peak_bytes=peak)
        most_bytes = self._share * _memory_of(self._device)
        while len(self._kept) > self._most or self.n_bytes > most_bytes:
            oldest = self._kept.pop(next(iter(self._kept)))
            oldest.engine.discard()

    def empty(self) -> bool:
        """Give all memory back; True where a training may have lacked what was kept."""
        held = bool(self._kept) or self._lent_again
        for kept in self._kept.values():
            kept.engine.discard()
        self._kept.clear()
        self._lent_again = False
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        return held

    def _made(self, kind: Kind, config: RunConfig, data: DeviceData, model: TSMixer) -> Lent:
        before = _allocated(self._device)
        engine = self._make(config, data, model, self._shared_memory())
        n_bytes = max(0, _allocated(self._device) - before)
        return Lent(engine=engine, kind=kind, n_bytes=n_bytes, peak_bytes=0)

    def _shared_memory(self) -> GraphMemory:
        """Where the next engine captures: where the kept ones did, as no two replays overlap.

        A pool of memory is gone with the last graph in it, and its handle is then of no use.
        """
        if not self._kept and self._device.type == "cuda":
            self._graph_memory = torch.cuda.graph_pool_handle()
        return self._graph_memory


def _kind(config: RunConfig, data: DeviceData) -> Kind:
    h, training = config.hyperparameters, config.training
    return (
        id(data),  # an engine keeps its data alive, so no other has this identity
        config.architecture.model,
        repr(sorted({**config.architecture.settings, **h.own}.items())),
        h.hidden_size,
        h.batch_size,
        training.precision,
        drops_out(h.dropout or 0.0),  # without dropout the kernels know no masks
        config.accumulate,
        training.checkpoint_activations,
        training.compile_mode,
    )


def _triton_engine(
    config: RunConfig, data: DeviceData, model: TSMixer, memory: GraphMemory
) -> Reusable:
    from tuner.training.engines.fused_engine import TritonEngine

    own: Any = copy.deepcopy(model).to(data.minimum.device)
    engine = TritonEngine(config, data, own)
    engine.graph_memory = memory
    engine.warm_up()
    return engine


def _allocated(device: torch.device) -> int:
    """Bytes of a GPU's; elsewhere nobody counts."""
    return torch.cuda.memory_allocated(device) if device.type == "cuda" else 0


def _memory_of(device: torch.device) -> float:
    """Bytes that a GPU has; elsewhere there is no bound."""
    if device.type != "cuda":
        return math.inf
    return float(torch.cuda.get_device_properties(device).total_memory)


def _share_free(device: torch.device) -> float:
    """Of a GPU's memory, beside what this and other processes hold; elsewhere all."""
    if device.type != "cuda":
        return 1.0
    free, total = torch.cuda.mem_get_info(device)
    return free / total
