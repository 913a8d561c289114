"""All that `tuner estimate` tells, as one record."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner.estimate.cost_model import Foretold
from tuner.estimate.cost_sizes import Size, key_of, size_of, sizes_of
from tuner.estimate.foretold import HOUR_S, SearchForetold, elapsed, money, together
from tuner.estimate.size_costs import SizeCosts
from tuner.estimate.stages_ahead import Stages
from tuner.spec.definition import StudyDefinition


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRow:
    """One size of a space."""

    size: Size
    epoch: Foretold | None
    setup: Foretold | None
    peak: Foretold | None
    measured: bool
    failure: str = ""

    def as_dict(self) -> dict[str, Any]:
        def plain(found: Foretold | None) -> dict[str, float] | None:
            return None if found is None else found.as_dict()

        return {
            "size": dict(self.size),
            "epoch_s": plain(self.epoch),
            "setup_s": plain(self.setup),
            "peak_bytes": plain(self.peak),
            "measured": self.measured,
            "failure": self.failure or None,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantEstimate:
    """Of one variant: its sizes, and its searches."""

    variant: str
    default: Size
    costs: SizeCosts
    sizes: tuple[SizeRow, ...]
    searches: tuple[SearchForetold, ...]
    """One at least. They differ in which of their trials have ended."""
    largest: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """The largest batch that fits: of the default network, and of the largest of the space."""
    doubts: tuple[str, ...] = ()
    """Why its figures are not to be trusted."""

    @property
    def search(self) -> SearchForetold:
        """The first one."""
        return self.searches[0]

    def as_dict(self) -> dict[str, Any]:
        found = self.search
        return {
            "variant": self.variant,
            "doubts": list(self.doubts),
            "measured_sizes": sum(row.measured for row in self.sizes),
            "by_trials": self.costs.from_trials,
            "start_s": self.costs.start_s,
            "evaluation_s": self.costs.evaluation_s,
            "built_s": self.costs.built_s,
            "epoch_s": found.epoch.as_dict(),
            "trial_s": found.trial.as_dict(),
            "default_run_s": found.default_run.as_dict(),
            **_plain(found),
            "searches": [_plain(each) for each in self.searches],
            "recorded_searches": found.searches,
            "largest_batch": {name: dict(each) for name, each in self.largest.items()},
            "sizes": [row.as_dict() for row in self.sizes],
        }


def _plain(found: SearchForetold) -> dict[str, Any]:
    return {
        "search_s": found.search.as_dict(),
        "trials": found.trials,
        "trials_bought": None if found.bought is None else found.bought.as_dict(),
        "trials_ended": found.ended,
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Of all variants that are searched, or retuned."""

    device_model: str
    devices: int
    variants: tuple[VariantEstimate, ...]
    searches: int
    stages: Stages | None
    """Of a retune; None for a study."""
    price_per_hour: float | None = None

    @property
    def device_s(self) -> Foretold:
        """Seconds of devices, all together."""
        if self.stages is not None:
            return self.stages.whole
        return together([one.search for each in self.variants for one in each.searches])

    @property
    def elapsed_s(self) -> Foretold:
        longest = max(each.search.trial.high for each in self.variants)
        start_s = max(each.costs.start_s for each in self.variants)
        return elapsed(self.device_s, devices=self.devices, longest_s=longest, start_s=start_s)

    @property
    def money(self) -> Foretold | None:
        return None if self.price_per_hour is None else money(self.device_s, self.price_per_hour)

    def as_dict(self) -> dict[str, Any]:
        stages, price = self.stages, self.money
        retune = None
        if stages is not None:
            retune = {
                "searches": self.searches,
                "search_s": stages.search.as_dict(),
                "reevaluation_s": stages.reevaluation.as_dict(),
                "confirmation_s": stages.confirmation.as_dict(),
                "ablation_s": None if stages.ablation is None else stages.ablation.as_dict(),
            }
        return {
            "device": self.device_model,
            "devices": self.devices,
            "variants": [each.as_dict() for each in self.variants],
            "retune": retune,
            "gpu_hours": self.device_s.times(1 / HOUR_S).as_dict(),
            "elapsed_hours": self.elapsed_s.times(1 / HOUR_S).as_dict(),
            "price_per_gpu_hour": self.price_per_hour,
            "money": None if price is None else price.as_dict(),
        }


def rows_of(definition: StudyDefinition, costs: SizeCosts) -> tuple[SizeRow, ...]:
    """Of every size of its space, the default's first."""
    default = size_of(definition.defaults.as_dict())
    sizes = list({key_of(s): s for s in (default, *sizes_of(definition.space))}.values())
    epochs, peaks = costs.epoch_seconds(sizes), costs.peak_bytes(sizes)
    setups = costs.setup_seconds(sizes)
    rows = []
    for size in sizes:
        key, seen = key_of(size), costs.of(size)
        unfit = seen is not None and not seen.fits
        rows.append(
            SizeRow(
                size=size,
                epoch=None if unfit else epochs.get(key),
                setup=None if unfit else setups.get(key),
                peak=None if unfit else peaks.get(key),
                measured=seen is not None,
                failure=seen.failure if seen is not None else "",
            )
        )
    return tuple(rows)
