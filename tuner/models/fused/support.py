"""What the fused kernels serve, and in one line what they do not."""

from __future__ import annotations

import importlib.util
import os

import torch
from torch import nn

from tuner.config import Precision
from tuner.models.fused.memory_plan import ALIGNMENT
from tuner.models.layers import FeatureRMSNorm
from tuner.models.tsmixer import FeatureMixing, TSMixer

LARGEST_HIDDEN_SIZE = 256
LONGEST_HORIZON = 64
MOST_COLUMNS = 64
"""Of a window's own features, before they are mixed: targets and covariates together."""


def why_not(model: nn.Module, precision: Precision, device: torch.device) -> str | None:
    """Why the fused kernels cannot run this network here; None where they can.

    Args:
        model: any network, on any device.
        precision: of its products.
        device: where it is to run.
    """
    # A class derived from it may compute something else.
    if type(model) is not TSMixer:
        return (
            "the fused kernels are written for the built-in networks, "
            f"this one is {type(model).__name__}"
        )
    return _why_not_the_sizes(model) or _why_not_here(model, precision, device)


def _why_not_the_sizes(model: TSMixer) -> str | None:
    shapes, mixing = model.shapes, model.past_mixing
    hidden_size = mixing.contract.weight.shape[0]  # type: ignore[index]
    n_columns = max(shapes.n_targets + shapes.n_past + shapes.n_future, shapes.n_static)
    objections = {
        f"know no {type(mixing.norm).__name__}": not isinstance(
            mixing.norm, nn.LayerNorm | FeatureRMSNorm
        ),
        f"need a feed-forward size of {hidden_size}, the hidden size, it is {mixing.widths[0]}": (
            mixing.widths[0] != hidden_size
        ),
        f"go up to a hidden size of {LARGEST_HIDDEN_SIZE}, it is {hidden_size}": hidden_size
        > LARGEST_HIDDEN_SIZE,
        f"need a hidden size that is a multiple of {ALIGNMENT}, it is {hidden_size}": hidden_size
        % ALIGNMENT
        != 0,
        f"go up to a horizon of {LONGEST_HORIZON}, it is {shapes.horizon}": shapes.horizon
        > LONGEST_HORIZON,
        f"take up to {MOST_COLUMNS} columns, there are {n_columns}": n_columns > MOST_COLUMNS,
        f"do not take as many covariates as the hidden size, {hidden_size}": any(
            len(entering.widths) == 1 for entering in _entering(model)
        ),
    }
    return next((f"the fused kernels {text}" for text, holds in objections.items() if holds), None)


def _entering(model: TSMixer) -> list[FeatureMixing]:
    """The mixings of raw columns, whose width is the task's."""
    static = [getattr(block, "static_mixing", None) for block in model.blocks]
    return [
        mixing
        for mixing in (model.past_mixing, model.future_mixing, *static)
        if isinstance(mixing, FeatureMixing)
    ]


def _why_not_here(model: TSMixer, precision: Precision, device: torch.device) -> str | None:
    if precision.half:
        return f"the fused kernels compute in fp32 or tf32, not in {precision.value}"
    dtype = next(model.parameters()).dtype
    if dtype != torch.float32:
        return f"the fused kernels are written for float32 parameters, these are {dtype}"
    if importlib.util.find_spec("triton") is None:
        return "the fused kernels need triton, which is not installed (torch for CUDA brings it)"
    if device.type == "cuda" or os.environ.get("TRITON_INTERPRET") == "1":
        return None
    return f"the fused kernels need a CUDA device, this one is {device.type}"


# The rate of dropout that the fused kernels realise: the nearest multiple of 2^-16.


LEVELS = 1 << 16
"""Of the random number that decides on an element."""


def dropped_of_levels(rate: float) -> int:
    """How many of the levels drop an element; some always keep it."""
    return min(round(rate * LEVELS), LEVELS - 1)


def drops_out(rate: float) -> bool:
    """Whether anything is dropped at all: where not, the kernels know no masks."""
    return dropped_of_levels(rate) > 0
