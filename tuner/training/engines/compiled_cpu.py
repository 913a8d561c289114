"""The plain step on a CPU, with the elementwise work of the network in compiled C++ kernels."""

from __future__ import annotations

from torch import nn

from tuner.config import Backend, Precision, RunConfig
from tuner.data.windows import DeviceData
from tuner.models.dropout import Elementwise, PlainElementwise
from tuner.models.host_kernels import HostKernels, library
from tuner.models.tsmixer import FeatureMixing, TimeMixing, TSMixer
from tuner.training.engines.eager import EagerEngine


class CompiledCpuEngine(EagerEngine):
    """`EagerEngine`, but for what stands between the products.

    Raises:
        TunerError: the kernels cannot be built.
    """

    backend = Backend.COMPILE

    def __init__(self, config: RunConfig, data: DeviceData, model: nn.Module) -> None:
        super().__init__(config, data, model)
        _mix_with(model, HostKernels(library()))

    def close(self) -> None:
        _mix_with(self.model, PlainElementwise())
        super().close()


def why_not_compiled(model: nn.Module, precision: Precision) -> str | None:
    """Why the kernels do not serve this network, in one line; None where they do."""
    if type(model) is not TSMixer:  # one derived from it may mix otherwise
        return "the kernels for a CPU serve the built-in networks only"
    if precision is not Precision.FP32:
        return "the kernels for a CPU compute in fp32 only"
    return None


def _mix_with(model: nn.Module, elementwise: Elementwise) -> None:
    for module in model.modules():
        if isinstance(module, TimeMixing | FeatureMixing):
            module.elementwise = elementwise
