"""A model of neuralforecast, called as tuner's networks are.

Of the model only its `forward` is called: no trainer, no data module, no loss of the library's.

Legend: B windows, L input hours, T horizon, C targets, P past, F future and S static columns, Q
quantiles.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from tuner.config import ModelShapes
from tuner.models.of_neuralforecast.covariates import Covariates
from tuner.models.of_neuralforecast.order import QUANTILES_FIRST
from tuner.models.revin import ReversibleInstanceNorm


class LibraryNetwork(nn.Module):
    """(past, future, static) -> (B, T, C, Q) with a model of neuralforecast inside.

    A univariate model forecasts each target by itself: the targets are folded into the batch, and
    each gets all covariates of its window. A multivariate model gets the targets as its series.

    Args:
        model: of neuralforecast, with Q outputs a value.
        shapes: of the task.
        covariates: those that the model was built for.
        revin: whether a window's level and spread are taken off before the model and put back
            after it (`tuner.models.revin`).
    """

    def __init__(
        self, model: nn.Module, shapes: ModelShapes, covariates: Covariates, *, revin: bool
    ) -> None:
        super().__init__()
        self.model = model
        self.shapes = shapes
        self.covariates = covariates
        self.multivariate = bool(getattr(model, "MULTIVARIATE", False))
        self.quantiles_first = type(model).__name__ in QUANTILES_FIRST
        self.norm = ReversibleInstanceNorm(shapes.n_targets) if revin else None

    def forward(
        self, past: Tensor, future: Tensor | None = None, static: Tensor | None = None
    ) -> Tensor:
        """Shapes as in `tuner.models.tsmixer.TSMixer.forward`."""
        s = self.shapes
        targets = past[..., : s.n_targets]
        if self.norm is None:
            return self._forecast(targets, past, future, static)
        plain, statistics = self.norm(targets)
        affine = torch.addcmul(self.norm.bias, plain, self.norm.weight)
        forecast = self._forecast(affine, past, future, static)
        return self.norm.inverse(forecast, statistics)

    def _forecast(
        self, targets: Tensor, past: Tensor, future: Tensor | None, static: Tensor | None
    ) -> Tensor:
        s = self.shapes
        columns = self._columns(past, future, static)
        if self.multivariate:
            flat: Tensor = self.model(_as_series(targets, columns))
            if self.quantiles_first:  # (B, T, Q * C)
                by_quantile = flat.reshape(len(past), s.horizon, s.n_quantiles, s.n_targets)
                return by_quantile.transpose(2, 3)
            return flat.reshape(len(past), s.horizon, s.n_targets, s.n_quantiles)
        folded: Tensor = self.model(_folded(targets, columns))  # (B * C, T, Q)
        each = folded.reshape(len(past), s.n_targets, s.horizon, s.n_quantiles)
        return each.transpose(1, 2)

    def _columns(
        self, past: Tensor, future: Tensor | None, static: Tensor | None
    ) -> dict[str, Tensor | None]:
        """What the model takes of the covariates: (B, L, P), (B, L + T, F) and (B, S), or None."""
        s, taken = self.shapes, self.covariates
        hist, futr = [], None
        if taken.past:
            hist.append(past[..., s.n_targets : s.n_targets + s.n_past])
        if taken.static_as_past and static is not None:
            hist.append(static.unsqueeze(1).expand(-1, past.shape[1], -1))
        if taken.future and future is not None:
            futr = torch.cat((past[..., s.n_targets + s.n_past :], future), dim=1)
        return {
            "hist_exog": torch.cat(hist, dim=-1) if hist else None,
            "futr_exog": futr,
            "stat_exog": static if taken.static else None,
        }


def _folded(targets: Tensor, columns: dict[str, Tensor | None]) -> dict[str, Any]:
    """The library's batch for a univariate model: B * C windows of one series."""
    n_targets = targets.shape[2]
    insample = targets.transpose(1, 2).reshape(-1, targets.shape[1], 1)
    batch: dict[str, Any] = {"insample_y": insample, "insample_mask": torch.ones_like(insample)}
    for name, column in columns.items():
        batch[name] = None if column is None else column.repeat_interleave(n_targets, dim=0)
    return batch


def _as_series(targets: Tensor, columns: dict[str, Tensor | None]) -> dict[str, Any]:
    """A multivariate model's batch; each series has all columns: (B, K, time, C)."""
    n_targets = targets.shape[2]
    batch: dict[str, Any] = {
        "insample_y": targets,
        "insample_mask": torch.ones_like(targets),
        "stat_exog": None,
    }
    for name in ("hist_exog", "futr_exog"):
        column = columns[name]
        batch[name] = (
            None
            if column is None
            else column.transpose(1, 2).unsqueeze(-1).expand(-1, -1, -1, n_targets)
        )
    return batch
