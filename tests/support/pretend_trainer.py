"""A trainer in the worker's own process that only pretends to train, and needs no data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tuner.storage.records import TrialResult
from tuner.trial.job import TrialJob


@dataclass(frozen=True)
class PretendTrainer:
    """Has `run` for a training."""

    run: Callable[[TrialJob], TrialResult | None]
    lanes: int = 1

    def load(self, *_: object) -> Callable[[TrialJob], TrialResult | None]:
        return self.run

    def close(self) -> None:
        pass
