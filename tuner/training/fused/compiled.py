"""The compiled engine where the step's own kernels serve it: around a compiled network instead of the fused one."""

from __future__ import annotations

from torch import nn

from tuner.config import Backend, Precision, RunConfig
from tuner.data.windows import DeviceData
from tuner.models.branches import SideStreams
from tuner.models.compiled import CompiledPieces, CompiledWhole
from tuner.models.tsmixer import TSMixer
from tuner.training.captured import capture_streams
from tuner.training.compiled import no_silent_fall_back
from tuner.training.fused.engine import FusedEngine
from tuner.training.fused.step import Network


class CompiledStepEngine(FusedEngine):
    """Gather, loss and optimiser as kernels of our own, compiled for exactly these shapes what lies between them."""

    backend = Backend.COMPILE

    def __init__(self, config: RunConfig, data: DeviceData, model: nn.Module) -> None:
        super().__init__(config, data, model, lambda: compiled_network(model, config.training.precision))

    def warm_up(self) -> None:
        with no_silent_fall_back():
            super().warm_up()


def compiled_network(model: nn.Module, precision: Precision) -> Network:
    """For a model on a CUDA device: a built-in one in pieces, with the covariates on streams of their own."""
    if type(model) is not TSMixer:  # not one derived from it either: its forward pass may be another
        return CompiledWhole(model, precision)
    streams = capture_streams(next(model.parameters()).device)
    return CompiledPieces(model, precision, SideStreams(streams[1:]))
