"""The engine that captures the fused step, with the fused network in it or another one."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from tuner.config import Backend, CompileMode, Precision, RunConfig
from tuner.data.windows import DeviceData
from tuner.kernels import PLAIN, FusedTSMixer, Launching, why_not_early
from tuner.kernels.compile_only import Kernel, collected, launching_for, one_at_a_time
from tuner.kernels.step_kernels import LossSum
from tuner.models.compiled_network import CompiledPieces, CompiledWhole
from tuner.models.tsmixer import SideStreams, TSMixer
from tuner.training.batching import batches
from tuner.training.engines.captured import (
    VALIDATION_BATCH,
    CapturedEngine,
    capture_streams,
    no_silent_fall_back,
)
from tuner.training.engines.fused_step import FusedStep, Network
from tuner.training.model_state import Snapshot
from tuner.training.stage_marks import Stage


class FusedEngine(CapturedEngine):
    """Replays `FusedStep` as CUDA graphs. A kind says which network is in it."""

    def __init__(
        self,
        config: RunConfig,
        data: DeviceData,
        model: nn.Module,
        make_network: Callable[[], Network],
        launching: Launching = PLAIN,
    ) -> None:
        self._step = FusedStep(config, data, model, make_network, launching)
        super().__init__(config, data, self._step)
        shapes = data.shapes
        self._values_of_window = shapes.horizon * shapes.n_targets
        n_values = self._values_of_window * shapes.n_quantiles
        self._trained = LossSum(self._device, self._batch_size * n_values, self._batch_size)
        self._val_order = torch.arange(len(data.val), device=self._device)
        self._validated = LossSum(self._device, min(VALIDATION_BATCH, len(data.val)) * n_values)

    def snapshot(self) -> Snapshot:
        return self._step.snapshot()

    def _capture(self, stream: torch.cuda.Stream) -> None:
        super()._capture(stream)
        # Allocated in the capture, it would keep that memory from other engines' captures.
        self._step.forget_batch()

    def _begin_epoch(self) -> None:
        self._trained.reset()

    def _train_batch(self, size: int) -> None:
        self._step.mark(Stage.OTHER)
        self._step.train(self._data.train, self._order, size, self._trained)
        self._step.mark(Stage.OTHER)

    def _train_loss_sum(self) -> Tensor:
        return self._trained.parts.sum() / self._values_of_window

    def _validate(self) -> None:
        self._validated.reset()
        for index in batches(self._val_order, VALIDATION_BATCH):
            self._step.validate(self._data.val, self._val_order, len(index), self._validated)

    def _validation_loss_sum(self) -> Tensor:
        return self._validated.parts.sum() / self._values_of_window


class TritonEngine(FusedEngine):
    """With the network of fused kernels.

    Triton compiles a kernel when it is first launched, which is in `warm_up`, and keeps it on disk
    (`TRITON_CACHE_DIR`, by default `~/.triton/cache`), where other trials of these sizes and other
    workers find it. What another process compiles just now is waited for.
    """

    backend = Backend.TRITON

    def __init__(
        self,
        config: RunConfig,
        data: DeviceData,
        model: TSMixer,
        launching: Launching | None = None,
    ) -> None:
        chosen = launching_on(data.minimum.device) if launching is None else launching
        super().__init__(
            config,
            data,
            model,
            lambda: FusedTSMixer(model, config.training.precision, launching=chosen),
            chosen,
        )
        self._launching = chosen

    def renew(self, config: RunConfig, model: TSMixer) -> None:
        """Begin another training of the same sizes, on the same data, with nothing captured anew.

        Every bit is then what it would be in an engine made and warmed up for it.

        Args:
            config: of that training: architecture, hidden and batch size and precision as before.
            model: its network on the CPU, as built; only read.

        Raises:
            ValueError: a network of other sizes, or one that drops out where this one does not.
        """
        self._step.renew(config, model)

    def discard(self) -> None:
        """Let go of everything at once, the model included; nothing is allocated for that."""
        torch.cuda.synchronize(self._device)
        self._steps.clear()
        self._validation = None
        self._step.discard()

    def warm_up(self) -> None:
        try:
            with one_at_a_time():
                super().warm_up()
        except Exception as error:
            if self._launching.early:
                error.add_note("the kernels were launched early, by programmatic dependent launch")
            raise

    def launch_everything(self) -> None:
        """Every kernel of a training at least once, where kernels are only collected."""
        self._run_everything_once()


def kernels_of(
    config: RunConfig, data: DeviceData, model: TSMixer, capability: tuple[int, int]
) -> dict[str, Kernel]:
    """What a training launches on a GPU of this compute capability, by key; nothing is launched.

    Args:
        config: of a training that runs on the fused kernels there.
        data: on the CPU.
        model: on the CPU.
        capability: (9, 0) for Hopper.
    """
    with collected(capability) as kernels:
        engine = TritonEngine(config, data, model, launching_for(capability))
        engine.launch_everything()
    return kernels


def launching_on(device: torch.device) -> Launching:
    """What is fastest on a device."""
    side = capture_streams(device)[1] if device.type == "cuda" else None
    return Launching(early=why_not_early(device) is None, side=side)


# The compiled engine with our own kernels for the rest of the step, where they serve it.


class CompiledStepEngine(FusedEngine):
    """Gather, loss and optimiser are our own kernels; what lies between is compiled."""

    backend = Backend.COMPILE

    def __init__(self, config: RunConfig, data: DeviceData, model: nn.Module) -> None:
        training = config.training
        super().__init__(
            config,
            data,
            model,
            lambda: compiled_network(model, training.precision, training.compile_mode),
        )

    def warm_up(self) -> None:
        with no_silent_fall_back():
            super().warm_up()


def compiled_network(
    model: nn.Module, precision: Precision, mode: CompileMode = CompileMode.DEFAULT
) -> Network:
    """For a model on a CUDA device: a built-in one in pieces, covariates on their own streams."""
    # Not one derived from it either: its forward pass may be another.
    if type(model) is not TSMixer:
        return CompiledWhole(model, precision, mode=mode)
    streams = capture_streams(next(model.parameters()).device)
    return CompiledPieces(model, precision, SideStreams(streams[1:]), mode=mode)
