"""What a study minimises, and the limits a configuration must keep: names, values, violations, and
words for people.

Every trial records all figures; which two of them are its objective values is the study's own
choice and part of its identity. One place says how values and violations follow from the record:
the worker that records a trial, the sampler that learns from it and the tables that
show it agree.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tuner.config import TimeObjective
from tuner.pareto import Point
from tuner.record import Recorded

if TYPE_CHECKING:
    from tuner.spec.policy import SearchPolicy

CONSTRAINTS = "constraints"
"""Optuna keeps the value of `trial.set_constraint(key,
value)` as the trial's system attribute `constraints:<key>`."""

TIMES = tuple(time.value for time in TimeObjective)
"""What a study's first objective can be."""

_AXES = {
    "wall_clock_s": "time to convergence (s)",
    "total_s": "total time with set-up (s)",
    "time_to_best_s": "time to the best epoch (s)",
    "time_to_target_s": "time to the target loss (s)",
    "test_mql": "test MQL",
    "val_mql": "validation MQL",
}


def objective_names(time_objective: str, mql_split: str) -> tuple[str, str]:
    """Names of a study's two objectives, as the record and JSON have them, e.g.
    `("wall_clock_s", "test_mql")`.
    """
    return time_objective, f"{mql_split}_mql"


def axis_title(objective: str) -> str:
    """An objective in words, with its unit, for an axis or a sentence."""
    return _AXES.get(objective, objective)


def heading(objective: str) -> str:
    """An objective as the head of a narrow column."""
    return {
        "wall_clock_s": "time s",
        "total_s": "total s",
        "time_to_best_s": "to best s",
        "time_to_target_s": "to target s",
        "test_mql": "test MQL",
        "val_mql": "val MQL",
    }.get(objective, objective)


def time_to_target(curve: Iterable[tuple[float | None, float]], target: float) -> float | None:
    """The clock at the first validation loss at or under `target`;
    None where the curve never gets there.

    Args:
        curve: (validation loss, elapsed seconds) of each epoch, in order.
        target: the registered validation loss.
    """
    return next(
        (elapsed_s for val_loss, elapsed_s in curve if val_loss is not None and val_loss <= target),
        None,
    )


def values_of(recorded: Recorded, objectives: Sequence[str]) -> Point | None:
    """The objective values in a trial's record; None where one is missing or not finite."""
    values = [recorded.named(name) for name in objectives]
    if not all(isinstance(value, int | float) and math.isfinite(value) for value in values):
        return None
    time_s, mql = (float(value) for value in values if value is not None)
    return time_s, mql


def violations(
    policy: SearchPolicy,
    values: Point,
    recorded: Recorded,
    *,
    target_val_loss: float | None = None,
) -> dict[str, float]:
    """How far a finished trial is beyond each limit of `policy`,
    as a share of the limit: 0 or less keeps it.

    Every trial of a study has the same keys, as samplers require; a figure that was not recorded
    breaks no limit. With `target_val_loss`, to have missed the study's registered target counts as
    one more.
    """
    figures = {
        "max_time": (values[0], policy.max_time_s),
        "max_mql": (values[1], policy.max_mql),
        "max_memory": (recorded.peak_memory_bytes, policy.max_memory_bytes),
        "target": (recorded.val_loss, target_val_loss),
    }
    return {
        name: (float(figure) / limit - 1.0 if figure is not None else 0.0)
        for name, (figure, limit) in figures.items()
        if limit is not None
    }


def limits_in_words(policy: SearchPolicy, objectives: Sequence[str]) -> str:
    """The limits of `policy` for a person, e.g.
    `wall_clock_s <= 10 and test_mql <= 0.8`; empty without limits.
    """
    parts = [
        f"{name} <= {limit:g}"
        for name, limit in zip(objectives, (policy.max_time_s, policy.max_mql), strict=True)
        if limit is not None
    ]
    if policy.max_memory_bytes is not None:
        parts.append(f"peak memory <= {policy.max_memory_bytes / 1e9:g} GB")
    return " and ".join(parts)
