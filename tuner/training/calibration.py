"""Intervals that hold what they promise: quantile regression, conformalised (Romano, Patterson and
Candès, "Conformalized Quantile Regression", NeurIPS 2019) on the validation windows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tuner.data.windows import DeviceData
from tuner.training.batching import batches
from tuner.training.evaluate import AT_ONCE, ForecastQuality, forecast_quality
from tuner.training.quantile_loss import OfSeries, forecast_scaled, rearranged, symmetric_pairs

LEAST_WINDOWS = 200
"""With fewer, what all steps miss by is taken together."""
MOST_VALUES = 40_000_000
"""Scores at most that are held: of more windows some, evenly spread."""
MOST_SHIFTS = 200_000
"""In a model's card."""
FAILED = 0.05
"""A coverage that is further from what it promises has failed."""
ABOUT = "the same windows also stopped the training, so they look a little easier than new ones"


class Calibrated(OfSeries):
    """A network whose forecasts are put in order and shifted."""

    shift: Tensor  # (T or 1, C, Q), on scaled values

    def __init__(self, model: nn.Module, shift: Tensor) -> None:
        super().__init__()
        self.model = model
        self.register_buffer("shift", shift)

    def forward(
        self, past: Tensor, future: Tensor | None, static: Tensor | None, series: Tensor
    ) -> Tensor:
        """(B, L, C + P + F), (B, T, F), (B, S), (B,) -> (B, T, C, Q)."""
        return shifted(forecast_scaled(self.model, past, future, static, series), self.shift)


def shifted(forecast: Tensor, shift: Tensor | None) -> Tensor:
    """In the order of levels, shifted where that is asked for: (..., T, C, Q)."""
    ordered = rearranged(forecast)
    return ordered if shift is None else rearranged(ordered + shift)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Calibration:
    """By how much each quantile is shifted, and what that does to the test split's coverage."""

    shift: Tensor
    """(T or 1, C, Q), on scaled values: of all steps together, or of each."""
    windows: int
    before: ForecastQuality
    after: ForecastQuality

    @property
    def failed(self) -> str:
        """That an interval does not hold on the test split what it promises, in a sentence."""
        off = [(abs(e.overall.coverage - e.nominal), e) for e in self.after.intervals]
        worst, interval = max(off, key=lambda pair: pair[0], default=(0.0, None))
        if interval is None or worst <= FAILED:
            return ""
        return (
            f"Calibration failed: the {interval.nominal:.0%} interval holds "
            f"{interval.overall.coverage:.0%} of the test split, whose rows are not as those of "
            "the validation split were"
        )

    def as_dict(self) -> dict[str, Any]:
        """JSON-able, as a model's card has it."""
        coverage = [
            {"nominal": now.nominal, "before": was.overall.coverage, "after": now.overall.coverage}
            for was, now in zip(self.before.intervals, self.after.intervals, strict=True)
        ]
        return {
            "windows": self.windows,
            "steps_together": len(self.shift) == 1,
            "about": ABOUT,
            "failed": self.failed or None,
            "coverage": coverage,
            "shift": self.shift.tolist(),
        }


def calibrate(model: nn.Module, data: DeviceData, before: ForecastQuality) -> Calibration:
    """Shift both ends of each interval by what its forecasts of validation windows missed by, so
    that it holds as many of them as it promises; by column and step.

    Args:
        model: as `forecast_quality` takes it.
        data: windows on their device.
        before: of the same model and data.
    """
    shift, windows = _shift(model, data)
    after = forecast_quality(Calibrated(model, shift), data)
    return Calibration(shift=shift, windows=windows, before=before, after=after)


def _shift(model: nn.Module, data: DeviceData) -> tuple[Tensor, int]:
    levels, split = data.task.quantiles, data.val
    pairs = symmetric_pairs(levels)
    lows, highs = [low for low, _ in pairs], [high for _, high in pairs]
    each = data.shapes.horizon * data.shapes.n_targets * max(1, len(pairs))
    windows = min(len(split), max(LEAST_WINDOWS, MOST_VALUES // each))
    device = data.minimum.device
    found: list[Tensor] = []
    model.eval()
    with torch.no_grad():
        chosen = torch.linspace(0, len(split) - 1, windows, device=device).long()
        for index in batches(chosen, AT_ONCE):
            batch = split.gather(index)
            seen = batch.past, batch.future, batch.static, split.series_index[index]
            ordered = rearranged(forecast_scaled(model, *seen))
            target = batch.target.unsqueeze(-1)
            found.append(torch.maximum(ordered[..., lows] - target, target - ordered[..., highs]))
    missed = torch.cat(found)  # (N, T, C, K)
    if windows < LEAST_WINDOWS or each * len(levels) > MOST_SHIFTS * max(1, len(pairs)):
        missed = missed.flatten(0, 1).unsqueeze(1)  # (N * T, 1, C, K)
    shift = torch.zeros(*missed.shape[1:3], len(levels), device=device, dtype=missed.dtype)
    ordered = missed.sort(dim=0).values
    for number, (low, high) in enumerate(pairs):
        rank = math.ceil((len(ordered) + 1) * (levels[high] - levels[low]))
        wider = ordered[min(rank, len(ordered)) - 1, ..., number]
        shift[..., low] -= wider
        shift[..., high] += wider
    return shift, windows
