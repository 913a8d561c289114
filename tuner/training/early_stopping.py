"""When a validation loss has stopped falling."""

from __future__ import annotations

import math
from dataclasses import dataclass, field


@dataclass(slots=True)
class EarlyStopping:
    """Lightning's rule: over after `patience` epochs in a row without an improvement.

    Epochs that were not validated count: it is over at a validated epoch at least `patience` epochs
    after the best one. An epoch improves when its loss is below `best - min_delta`; only then does
    `best` move. `best` is therefore not always the lowest loss seen: several small steps down, each
    within `min_delta`, leave it where it was. The weights that a training keeps are those of the
    strictly lowest loss,
    which `fit` tracks apart.
    """

    patience: int
    min_delta: float
    best: float = field(default=math.inf, init=False)
    waited: int = field(default=0, init=False)

    def update(self, loss: float, epochs: int = 1) -> bool:
        """Takes the loss of the next validated epoch, `epochs` after the last one; True when the
        training is over.
        """
        if loss < self.best - self.min_delta:
            self.best = loss
            self.waited = 0
        else:
            self.waited += epochs
        return self.waited >= self.patience
