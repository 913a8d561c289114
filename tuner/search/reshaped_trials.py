"""What a sampler is shown of finished trials: copies, reworked so that its model finds what
somebody would choose.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from optuna.trial import FrozenTrial

from tuner.pareto import Point, front_indices

SLOWEST, WORST = 2.0, 1.05
"""Times the default's seconds, and times its MQL:
nobody would choose what is slower or worse than that."""


def corner_of(default: Point) -> Point:
    """The corner that bounds what somebody would choose,
    from the default configuration's values.
    """
    return SLOWEST * default[0], WORST * default[1]


def most_telling(trials: list[FrozenTrial], limit: int) -> list[FrozenTrial]:
    """At most `limit` trials: half of them non-dominated ones, layer after layer, the rest the
    latest of the others.
    """
    if len(trials) <= limit:
        return trials
    left = list(trials)
    chosen: list[FrozenTrial] = []
    while len(chosen) < limit // 2:
        layer = {left[i].number for i in front_indices([(t.values[0], t.values[1]) for t in left])}
        chosen += [t for t in left if t.number in layer][: limit // 2 - len(chosen)]
        left = [t for t in left if t.number not in layer]
    return sorted([*chosen, *left[-(limit - len(chosen)) :]], key=lambda trial: trial.number)


def with_log_time(trials: list[FrozenTrial]) -> list[FrozenTrial]:
    """Copies with the logarithm of the time: a Gaussian process fits what is spread over decades
    only like that.
    """
    return [
        _with_values(trial, np.array([np.log(max(trial.values[0], 1e-9)), trial.values[1]]))
        for trial in trials
    ]


def clipped(trials: list[FrozenTrial]) -> list[FrozenTrial]:
    """Copies whose values end where outliers begin (Tukey's far fence):
    a model that fits them fits nothing else.
    """
    if not trials:
        return trials
    values = np.asarray([trial.values for trial in trials])
    low, high = np.quantile(values, (0.25, 0.75), axis=0)
    fence = high + 3.0 * (high - low)
    return [_with_values(trial, np.minimum(trial.values, fence)) for trial in trials]


def within(trials: list[FrozenTrial], corner: Point | None) -> list[FrozenTrial]:
    """Those beyond the corner as copies behind it, the further the worse, in time and MQL alike.

    As they are, the fastest of the useless ones would stand on the front, and a model would look
    for more of them.
    """
    if corner is None:
        return trials
    return [_behind(trial, corner) for trial in trials]


def _behind(trial: FrozenTrial, corner: Point) -> FrozenTrial:
    excess = sum(
        max(value / limit - 1.0, 0.0) for value, limit in zip(trial.values, corner, strict=True)
    )
    return trial if excess == 0.0 else _with_values(trial, np.array(corner) * (1.0 + excess))


def _with_values(trial: FrozenTrial, values: np.ndarray[Any, Any]) -> FrozenTrial:
    changed = copy.copy(trial)
    changed.values = [float(value) for value in values]
    return changed
