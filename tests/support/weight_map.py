"""Where the same weight lives in networks that are the same function.

Source of the foreign names: the parameters of `darts.models.TSMixerModel` (darts 0.48), read from
its state dict.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

_DARTS_PREFIXES = (
    ("rin.affine_", "reversible_norm."),
    ("fc_hist.", "time_projection."),
    ("feature_mixing_hist.", "past_mixing."),
    ("feature_mixing_future.", "future_mixing."),
    ("fc_out.", "head."),
    ("conditional_mixer.", "blocks."),
)
_DARTS_LAYERS = (
    (".feature_mixing_static.", ".static_mixing."),
    (".time_mixing.fc1.", ".time_mixing.linear."),
    (".fc1.", ".enter."),
    (".fc2.", ".contract."),
    (".norm_after.", ".norm."),
)


def darts_to_original(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The state dict of darts' TSMixer (LayerNorm, norm after mixing, RIN) as `original` names it.

    Where darts projects the residual by a layer of its own, its outputs follow those of the
    mixing's first layer.

    Raises:
        KeyError: a name that such a network does not have.
    """
    mapped = {
        _original_name(name): value for name, value in state.items() if ".projection." not in name
    }
    for name, value in state.items():
        if ".projection." in name:
            enter = _original_name(name.replace(".projection.", ".fc1."))
            mapped[enter] = torch.cat([mapped[enter], value])
    return mapped


def _original_name(name: str) -> str:
    for prefix, ours in _DARTS_PREFIXES:
        if name.startswith(prefix):
            renamed = ours + name.removeprefix(prefix)
            break
    else:
        raise KeyError(name)
    for theirs, ours in _DARTS_LAYERS:
        renamed = renamed.replace(theirs, ours)
    return renamed


def original_to_simple(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of `original` in the layout of `simple`, which is then the same function.

    A Linear over features (out, in) becomes a Conv1d of kernel 1 (out, in, 1); a plane norm's
    affine (T, H) is transposed to (H, T); layers over time are the same in both.
    """
    return {name: _to_channel_first(name, value) for name, value in state.items()}


def _to_channel_first(name: str, value: Tensor) -> Tensor:
    if ".norm." in name:
        return value.transpose(0, 1).contiguous()
    over_time = name.startswith("time_projection.") or ".time_mixing.linear." in name
    if name.endswith(".weight") and not over_time and not name.startswith("reversible_norm."):
        return value.unsqueeze(-1)
    return value
