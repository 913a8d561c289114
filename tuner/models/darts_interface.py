"""Module classes with the interface of darts' TSMixer as networks: a team's `tsmixer_model.py`.

Such a class has the constructor arguments of
`darts.models.forecasting.tsmixer_model._TSMixerModule` (darts 0.48) and a `forward(x_in)`. Older
darts handed it a triple of tensors, newer darts an object with named tensors; what it gets here is
both. darts itself is only imported by the class.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tuner.config import ModelShapes

TELLING = frozenset(
    {"input_dim", "output_dim", "past_cov_dim", "future_cov_dim", "static_cov_dim", "nr_params"}
)
"""Constructor arguments by which such a class is known."""

NUM_BLOCKS = 2


def has_darts_interface(model_class: type[nn.Module]) -> bool:
    """Whether a class is called as darts calls its TSMixer module."""
    try:
        return inspect.signature(model_class).parameters.keys() >= TELLING
    except ValueError:  # a class without a readable signature
        return False


def darts_arguments(
    model_class: type[nn.Module], shapes: ModelShapes, arguments: Mapping[str, Any]
) -> dict[str, Any]:
    """What such a class is called with: `arguments` over darts' defaults and the reversible norm.

    `ff_size` follows the hidden size. What a class without `**kwargs` does not take is left out.
    """
    s = shapes
    given: dict[str, Any] = {
        "input_dim": s.n_targets,
        "output_dim": s.n_targets,
        "past_cov_dim": s.n_past,
        "future_cov_dim": s.n_future,
        "static_cov_dim": s.n_static,
        "nr_params": s.n_quantiles,
        "ff_size": arguments["hidden_size"],
        "num_blocks": NUM_BLOCKS,
        "activation": "ReLU",
        "norm_type": "LayerNorm",
        "normalize_before": False,
        "input_chunk_length": s.input_size,
        "output_chunk_length": s.horizon,
        "output_chunk_shift": 0,
        "train_sample_shape": (
            (s.input_size, s.n_targets),
            (s.input_size, s.n_past) if s.n_past else None,
            (s.input_size, s.n_future) if s.n_future else None,
            (s.horizon, s.n_future) if s.n_future else None,
            (1, s.n_static) if s.n_static else None,
            (s.horizon, s.n_targets),
        ),
        "use_reversible_instance_norm": True,
    }
    parameters = inspect.signature(model_class).parameters
    takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    return {key: value for key, value in given.items() if takes_all or key in parameters} | dict(
        arguments
    )


def build_class(
    model_class: type[nn.Module], shapes: ModelShapes, arguments: Mapping[str, Any]
) -> nn.Module:
    """A network of a class of either interface, ours or darts'."""
    if has_darts_interface(model_class):
        return DartsNetwork(model_class(**darts_arguments(model_class, shapes, arguments)), shapes)
    return model_class(shapes, **arguments)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModuleInput:
    """darts' `x_in`, old and new: named tensors that unpack as the triple (past, future, static).

    Past is (B, L, C + P + F), future (B, T, F), static (B, 1, S).
    """

    past_target: Tensor
    past_covariates: Tensor | None
    historic_future_covariates: Tensor | None
    future_covariates: Tensor | None
    static_covariates: Tensor | None
    future_target: None = None
    state: None = None

    def __iter__(self) -> Iterator[Tensor | None]:
        return iter(
            (self.concatenate_past_features(), self.future_covariates, self.static_covariates)
        )

    def concatenate_past_features(self) -> Tensor:
        return _together(
            self.past_target, self.past_covariates, self.historic_future_covariates, dim=2
        )

    def concatenate_future_along_time(self) -> Tensor:
        return _together(self.historic_future_covariates, self.future_covariates, dim=1)


def _together(*parts: Tensor | None, dim: int) -> Tensor:
    return torch.cat([part for part in parts if part is not None], dim=dim)


class DartsNetwork(nn.Module):
    """A module with darts' interface, called as ours are: (past, future, static) -> (B, T, C, Q).

    darts' decorator `io_processor` applies the module's reversible norm around its forward pass, in
    the way of the darts it comes from. Here that is switched off and done in this class, the same
    for all of them.
    """

    def __init__(self, module: nn.Module, shapes: ModelShapes) -> None:
        super().__init__()
        inner: Any = module
        self.module = module
        self.shapes = shapes
        self.normalises = bool(getattr(inner, "use_reversible_instance_norm", False))
        if self.normalises:
            inner.use_reversible_instance_norm = False

    def forward(
        self, past: Tensor, future: Tensor | None = None, static: Tensor | None = None
    ) -> Tensor:
        """Shapes as in `tuner.models.tsmixer.TSMixer.forward`."""
        s = self.shapes
        norm: Any = self.module.rin if self.normalises else None
        targets = past[..., : s.n_targets]
        x_in = ModuleInput(
            past_target=targets if norm is None else norm(targets),
            past_covariates=past[..., s.n_targets : s.n_targets + s.n_past] if s.n_past else None,
            historic_future_covariates=past[..., s.n_targets + s.n_past :] if s.n_future else None,
            future_covariates=future,
            static_covariates=None if static is None else static.unsqueeze(1),
        )
        output = self.module(x_in)
        forecast: Tensor = getattr(output, "prediction", output)
        return forecast if norm is None else norm.inverse(forecast)
