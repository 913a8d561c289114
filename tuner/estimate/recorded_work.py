"""How many epochs the trials of recorded searches took, and of which sizes: the table beside this
file, which benchmarks/estimate/recorded.py makes from the committed exports.

A recorded search is carried over to another architecture by its place among the costs: a trial of a
size that was the cheapest of its space but for a tenth is taken to cost what such a size costs
here. So what a sampler does, first all over the space and then where trainings are short, is kept.
A search comes back to its default time and again, and what the default at hand costs is known: a
trial of the recorded one's is taken to cost something between the two.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tuner.config import TrainingSettings

TABLE = Path(__file__).with_name("recorded_searches.json")
SHARE_IN_RANGE = 0.5
"""Of its trials at least so many must lie in the range of learning rates, or all of them count."""
SPREAD_ALL_OVER = ("random", "qmc")
"""Samplers that never turn to where trainings are short."""
HARDLY = 0.05
"""Of a search's seconds, for trials that were ended early."""


@dataclass(frozen=True, slots=True)
class SpaceCosts:
    """Seconds an epoch of every size of a space, and of its default."""

    sizes: Sequence[float]
    default: float | None = None
    """None: nobody knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSearch:
    """One search as it was recorded; arrays are (trials,), in the order of the trials."""

    name: str
    variant: str
    all_over: bool
    """Its sampler chose from the whole space to the end."""
    repeats: bool
    """It ran configurations again, on other seeds."""
    prune: bool
    pruned_share: float
    """Of its seconds, for trials that were ended early."""
    max_epochs: int
    patience: int
    epochs: np.ndarray
    """As many as each trial had, a pruned one too; a part of one counts as a part."""
    cost_share: np.ndarray
    """Which share of all sizes of its space cost less an epoch than the trial's, which counts as
    half of one."""
    learning_rate: np.ndarray
    of_default: np.ndarray
    """Whether it ran its search's default."""
    default_cut: bool = False
    """The limit of epochs cut its default off."""

    def __len__(self) -> int:
        return len(self.epochs)

    def seconds(
        self,
        costs: SpaceCosts,
        training: TrainingSettings,
        learning_rates: tuple[float, float],
    ) -> np.ndarray:
        """(trials,): what its trials would take where the sizes' epochs cost this, under these
        settings and in this range of learning rates.
        """
        epochs = self._epochs_under(training)
        low, high = learning_rates
        inside = (self.learning_rate >= low * 0.999) & (self.learning_rate <= high * 1.001)
        kept = inside if inside.mean() >= SHARE_IN_RANGE else np.ones_like(inside)
        # Shares are of those that cost less and half of the size itself: Hazen's way inverts that.
        epoch = np.quantile(np.asarray(costs.sizes), self.cost_share[kept], method="hazen")
        if costs.default is not None:
            mine = self.of_default[kept]
            epoch[mine] = np.sqrt(epoch[mine] * costs.default)
        found: np.ndarray = epochs[kept] * epoch
        return found

    def default_is_cut(self, training: TrainingSettings) -> bool:
        """Whether these settings' limit of epochs would cut its default off, or its own one did."""
        mine = self._epochs_under(training)[self.of_default]
        at_the_limit = bool(len(mine)) and bool((mine >= training.max_epochs).all())
        return self.default_cut or at_the_limit

    def _epochs_under(self, training: TrainingSettings) -> np.ndarray:
        """(trials,): a training that ended by early stopping had so many epochs to its best as it
        had without its patience.
        """
        epochs = self.epochs.copy()
        by_itself = (epochs > self.patience) & (epochs < self.max_epochs - 0.5)
        epochs[by_itself] += training.patience - self.patience
        found: np.ndarray = np.clip(epochs, 1.0, training.max_epochs)
        return found

    def prunes_like(self, prune: bool) -> bool:
        """Whether its trials ran as long as those of a search that prunes, or does not: also where
        it might have, and hardly did.
        """
        return self.prune if prune else not self.prune or self.pruned_share <= HARDLY


@functools.cache
def recorded_searches() -> tuple[RecordedSearch, ...]:
    """All that are committed."""
    rows = json.loads(TABLE.read_text(encoding="utf-8"))
    found = []
    for row in rows:
        trials = np.array(row["trials"], dtype=float)
        of_default = np.isin(np.arange(len(trials)), row["of_default"])
        found.append(
            RecordedSearch(
                name=row["name"],
                variant=row["variant"],
                all_over=row["sampler"] in SPREAD_ALL_OVER,
                repeats=row["repeats"],
                prune=row["prune"],
                pruned_share=row["pruned_share"],
                max_epochs=row["max_epochs"],
                patience=row["patience"],
                epochs=trials[:, 0],
                cost_share=trials[:, 1],
                learning_rate=trials[:, 2],
                of_default=of_default,
                default_cut=row["default_cut"],
            )
        )
    return tuple(found)
