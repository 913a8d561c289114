"""The sizes that a network is built for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShapes:
    """Sizes a task asks of a model.

    Legend used in every shape comment: B batch, L input_size, T horizon, C n_targets, P n_past
    (covariates known only up to now), F n_future (covariates known over the horizon too), S
    n_static, Q n_quantiles, H hidden size.
    """

    input_size: int
    horizon: int
    n_targets: int
    n_past: int
    n_future: int
    n_static: int
    n_quantiles: int
    positions: tuple[tuple[float, float], ...] = ()
    """Where each target is, in one unit of length; empty where the task does not say."""

    def sizes(self) -> dict[str, int]:
        """The numbers alone, by name."""
        return {name: getattr(self, name) for name in self.__slots__ if name != "positions"}
