"""The engine of one training: made for it or lent by a pool, and what becomes of it at the end."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from tuner.config import StopReason
from tuner.data.windows import DeviceData
from tuner.training.engines.choose import choose_backend, make_engine
from tuner.training.engines.interface import Engine
from tuner.training.engines.pool import EnginePool, Lent
from tuner.training.model_state import Snapshot
from tuner.training.run_state import RunState

SOUND = (
    StopReason.CONVERGED,
    StopReason.EPOCH_LIMIT,
    StopReason.TIME_LIMIT,
    StopReason.PRUNED,
    StopReason.INTERRUPTED,
)
"""Ends of a training after which its engine may serve another one."""


@dataclass(frozen=True, slots=True)
class EngineInUse:
    """An engine, warmed up, and whose it is.

    Attributes:
        engine: what trains.
        model: the training's own network: the engine's, or on the CPU where that is lent.
        pool: who lent it, and what it lent; None where the engine is this training's alone.
    """

    engine: Engine
    model: nn.Module
    pool: tuple[EnginePool, Lent] | None

    def finish(self, best: Snapshot, state: RunState, reason: StopReason) -> nn.Module:
        """The training's network with the best epoch's weights; the engine's memory is given back.

        The network shares no memory with an engine that another training may get.
        """
        if self.pool is None:
            self.engine.close()
            if state.best is not None:
                best.restore(self.model)
            return self.model.eval()
        if state.best is None:
            best.take(self.engine.model)
        best.give_to(self.model)
        pool, lent = self.pool
        if reason in SOUND:
            pool.take_back(lent, peak_bytes=state.peak_memory_bytes())
        else:
            lent.engine.discard()
        return self.model.eval()


def ready_engine(
    state: RunState, data: DeviceData, model: nn.Module, pool: EnginePool | None
) -> EngineInUse:
    """The engine, warmed up: set-up is over.

    Args:
        state: of the training; told what runs, and what memory is not its own.
        data: on its device.
        model: the training's network.
        pool: asked for an engine first.

    Raises:
        UsageError: a backend this device does not have.
    """
    config = state.config
    state.backend, state.fallback = choose_backend(config, data.shapes, model, state.device)
    state.n_parameters = sum(p.numel() for p in model.parameters())
    lent = None if pool is None else pool.lend(config, data, model)
    if pool is not None:
        state.others_bytes = pool.n_bytes
    if pool is not None and lent is not None:
        state.earlier_peak_bytes = lent.peak_bytes
        used = EngineInUse(lent.engine, model, (pool, lent))
    else:
        made = make_engine(config, data, model.to(state.device))
        used = EngineInUse(made, model, None)
        made.warm_up()
    state.backend, state.fallback = used.engine.backend, used.engine.fallback
    state.clock.synchronize()
    state.end_setup()
    return used
