"""What a study minimises, and the limits a configuration must keep: names, values, violations, and
words for people.

Every trial records all figures; which two of them are its objective values is the study's own
choice and part of its identity. One place says how values and violations follow from the record:
the worker that records a trial, the sampler that learns from it and the tables that
show it agree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tuner.config import MqlSplit
from tuner.pareto import Point
from tuner.record import Recorded
from tuner.spec.time_objectives import TIMES

if TYPE_CHECKING:
    from tuner.spec.policy import SearchPolicy

CONSTRAINTS = "constraints"
"""Optuna keeps the value of `trial.set_constraint(key,
value)` as the trial's system attribute `constraints:<key>`."""

_AXES = {time.value: meaning.axis for time, meaning in TIMES.items()} | {
    "test_mql": "test MQL",
    "val_mql": "validation MQL",
}
_HEADINGS = {time.value: meaning.heading for time, meaning in TIMES.items()} | {
    "test_mql": "test MQL",
    "val_mql": "val MQL",
}


def objective_names(time_objective: str, mql_split: str) -> tuple[str, str]:
    """Names of a study's two objectives, as the record and JSON have them, e.g.
    `("wall_clock_s", "test_mql")`; with `origins`, too, for that is the MQL of test windows.
    """
    return time_objective, "test_mql" if mql_split == MqlSplit.ORIGINS else f"{mql_split}_mql"


def axis_title(objective: str) -> str:
    """An objective in words, with its unit, for an axis or a sentence."""
    return _AXES.get(objective, objective)


def heading(objective: str) -> str:
    """An objective as the head of a narrow column."""
    return _HEADINGS.get(objective, objective)


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
