"""Several forecasts in one: their quantiles averaged level by level, with weights found greedily,
with replacement (Caruana et al., "Ensemble Selection from Libraries of Models", ICML 2004), on
validation windows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from tuner.config import Objective
from tuner.data.windows import DeviceData
from tuner.training.batching import batches
from tuner.training.evaluate import AT_ONCE, run_means, run_numbers
from tuner.training.quantile_loss import (
    OfSeries,
    forecast_scaled,
    forecasts_of,
    mean_quantile_loss_per_window,
    rearranged,
)

PICKS = 20
"""A weight is a multiple of a twentieth at the finest."""
MOST_VALUES = 2_000_000
"""Of one member that are looked at: of more windows some, evenly spread."""


class Ensemble(OfSeries):
    """The weighted mean of what its members forecast, each put in order."""

    def __init__(self, members: Sequence[nn.Module], weights: Sequence[float]) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.weights = tuple(weights)
        self.eval()  # who puts it back into the mode it came in does so to its members

    def forward(
        self, past: Tensor, future: Tensor | None, static: Tensor | None, series: Tensor
    ) -> Tensor:
        """(B, L, C + P + F), (B, T, F), (B, S), (B,) -> (B, T, C, Q)."""
        parts = [
            weight * rearranged(forecast_scaled(member, past, future, static, series))
            for member, weight in zip(self.members, self.weights, strict=True)
        ]
        return torch.stack(parts).sum(dim=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Weights of members, and what the mean of these comes to on runs of validation windows."""

    weights: Mapping[str, float]
    """Of those that have one."""
    best: str
    """The member that alone has the lowest validation MQL."""
    runs: tuple[float, ...]
    """MQL of runs of windows, with the weights that the other half of the windows gives: what
    weights come to on windows that they were chosen on says nothing."""
    best_runs: tuple[float, ...]


def choose_weights(members: Mapping[str, nn.Module], data: DeviceData) -> Choice:
    """Greedy weights for members, each on the data's device; for the objective's windows."""
    held = _held([*members.values()], data)
    whole = torch.ones(len(held.run), dtype=torch.bool, device=held.target.device)
    alone = [held.losses(each, whole) for each in held.values]
    best = min(range(len(alone)), key=lambda place: float(alone[place].mean()))
    early = torch.from_numpy(held.run <= held.run.max() // 2).to(whole.device)
    crossed = torch.empty_like(alone[best])
    for half in (early, ~early):
        mean = torch.tensordot(held.greedy(~half), held.values[:, half], dims=1)
        crossed[half] = held.losses(mean, half)
    weights = zip(members, held.greedy(whole).tolist(), strict=True)
    return Choice(
        weights={name: weight for name, weight in weights if weight > 0},
        best=[*members][best],
        runs=run_means(held.run, crossed.cpu().numpy()),
        best_runs=run_means(held.run, alone[best].cpu().numpy()),
    )


@dataclass(frozen=True, slots=True, eq=False)
class _Held:
    """N validation windows: what M members forecast for them, in original units, and what came."""

    data: DeviceData
    values: Tensor  # (M, N, T, C, Q), each in the order of levels
    target: Tensor  # (N, T, C)
    series: Tensor  # (N,)
    run: npt.NDArray[np.int64]  # (N,)

    def losses(self, forecast: Tensor, mine: Tensor) -> Tensor:
        """MQL in the units of the objective, of a forecast of the windows `mine`, (N,) bool."""
        task, change = self.data.task, self.data.change[self.series[mine]]
        unit = change if task.objective is Objective.SCALED else None
        levels = forecast.new_tensor(task.eval_quantiles)
        return mean_quantile_loss_per_window(forecast, self.target[mine], levels, unit)

    def greedy(self, mine: Tensor) -> Tensor:
        """Weights by these windows, (M,): again and again of what helps the mean so far most."""
        there, picked, lost = self.values[:, mine], [], []
        total = torch.zeros_like(there[0])
        for number in range(1, PICKS + 1):
            losses = [float(self.losses((total + each) / number, mine).mean()) for each in there]
            pick = losses.index(min(losses))
            total += there[pick]
            picked.append(pick)
            lost.append(losses[pick])
        best = lost.index(min(lost)) + 1
        counts = torch.bincount(torch.tensor(picked[:best]), minlength=len(there))
        return (counts / best).to(there)


def _held(members: Sequence[nn.Module], data: DeviceData) -> _Held:
    split, task, device = data.val, data.task, data.minimum.device
    windows = torch.arange(len(split), device=device)
    if task.objective_series is not None:
        windows = windows[split.series_index == data.series.index(task.objective_series)]
    most = MOST_VALUES // (task.horizon * data.shapes.n_targets * len(task.quantiles))
    count = min(len(windows), max(1, most))
    windows = windows[torch.linspace(0, len(windows) - 1, count, device=device).long()]
    levels = torch.arange(len(task.quantiles), device=device)
    values, target = [], []
    with torch.no_grad():
        for model in members:
            model.eval()
            parts = [forecasts_of(model, data, split, i, levels) for i in batches(windows, AT_ONCE)]
            ordered = rearranged(torch.cat([part.values for part in parts]))
            values.append(ordered[..., list(task.eval_index)])
            target = [part.target for part in parts]
    starts, series = split.starts[windows].cpu().numpy(), split.series_index[windows]
    run = run_numbers(data, starts, series.cpu().numpy())
    return _Held(data, torch.stack(values), torch.cat(target), series, run)
