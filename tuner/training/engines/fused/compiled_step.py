"""The compiled engine with our own kernels for the rest of the step, where they serve it."""

from __future__ import annotations

from torch import nn

from tuner.config import Backend, CompileMode, Precision, RunConfig
from tuner.data.windows import DeviceData
from tuner.models.branches import SideStreams
from tuner.models.compiled_network import CompiledPieces, CompiledWhole
from tuner.models.tsmixer import TSMixer
from tuner.training.engines.captured import capture_streams
from tuner.training.engines.compiled import no_silent_fall_back
from tuner.training.engines.fused.fused_engine import FusedEngine
from tuner.training.engines.fused.fused_step import Network


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
