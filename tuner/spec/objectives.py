"""What a study minimises, and the limits a configuration must keep: names, values, violations, and
words for people.

Every trial records all figures; which two of them are its objective values is the study's own
choice and part of its identity. One place says how values and violations follow from the record:
the worker that records a trial, the sampler that learns from it and the tables that
show it agree.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from tuner.config import EpochRecord, MqlSplit
from tuner.record import Recorded

if TYPE_CHECKING:
    from tuner.spec.pareto import Point
    from tuner.spec.policy import SearchPolicy


TEST_MQL = "test_mql"
"""The figure that a verdict is about, whatever a search selects on."""


# What can count as a configuration's time: of each its name, its words, how it is measured, and
# the least it can still come to while a trial trains.


class TimeObjective(StrEnum):
    """What counts as a configuration's time: the first objective of a study."""

    WALL_CLOCK = "wall_clock_s"
    TOTAL = "total_s"
    TO_BEST = "time_to_best_s"
    TO_TARGET = "time_to_target_s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A trial that is over, with what its times are measured from."""

    history: Sequence[EpochRecord]
    wall_clock_s: float
    time_to_best_s: float
    total_s: float
    """With evaluation."""
    target_val_loss: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """A training under way, and how it may go on."""

    losses: Sequence[float]
    """Validation loss of each epoch so far."""
    elapsed_s: Sequence[float]
    """The clock at the end of each."""
    s_per_epoch: float
    """What an epoch takes at least."""
    improving_in: int
    """Epochs from now until the last improvement; 0 where none is to come."""
    epochs_left: int
    """How many more there are then at least, until the training ends by itself."""
    target_val_loss: float

    def seconds_in(self, epochs: int) -> float:
        """The clock after so many more epochs."""
        return self.elapsed_s[-1] + epochs * self.s_per_epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeMeaning:
    """All that tells a time objective from the others."""

    axis: str
    """In words, with its unit, for an axis or a sentence."""
    heading: str
    """As the head of a narrow column."""
    note: str
    """What it counts, for the note beside a study: with its `{patience}`, `{min_delta}` and
    `{target}`."""
    measured: Callable[[Ended], float | None]
    """Seconds; None where the study has no such figure, infinite where it was never reached."""
    least: Callable[[Running], float | None]
    """The least it can come to; None where it never will."""


def time_to_target(curve: Iterable[tuple[float | None, float]], target: float) -> float | None:
    """The clock at the first validation loss at or under `target`; None where the curve never gets
    there.

    Args:
        curve: (validation loss, elapsed seconds) of each epoch, in order.
        target: the registered validation loss.
    """
    for val_loss, elapsed_s in curve:
        if val_loss is not None and val_loss <= target:
            return elapsed_s
    return None


def _to_target(ended: Ended) -> float | None:
    if ended.target_val_loss is None:
        return None
    curve = [(epoch.val_loss, epoch.elapsed_s) for epoch in ended.history]
    reached = time_to_target(curve, ended.target_val_loss)
    return math.inf if reached is None else reached


def _least_to_the_end(running: Running) -> float:
    return running.seconds_in(running.epochs_left)


def _least_to_best(running: Running) -> float:
    if running.improving_in:
        return running.seconds_in(running.improving_in)
    return running.elapsed_s[running.losses.index(min(running.losses))]


def _least_to_target(running: Running) -> float | None:
    """It may be reached with the next epoch, long before the last improvement."""
    curve = zip(running.losses, running.elapsed_s, strict=True)
    reached = time_to_target(curve, running.target_val_loss)
    if reached is not None or not running.improving_in:
        return reached
    return running.seconds_in(1)


TIMES: Mapping[TimeObjective, TimeMeaning] = {
    TimeObjective.WALL_CLOCK: TimeMeaning(
        axis="time to convergence (s)",
        heading="time s",
        note="seconds of training and validation, from the first step until early stopping ends "
        "the run (no validation loss better by {min_delta:g} for {patience} epochs). Warm-up, "
        "loading and the final test are not in it. The trial had its device to itself while the "
        "clock ran; where something else was seen there, the attribute `contaminated` is true.",
        measured=lambda ended: ended.wall_clock_s,
        least=_least_to_the_end,
    ),
    TimeObjective.TOTAL: TimeMeaning(
        axis="total time with set-up (s)",
        heading="total s",
        note="seconds of everything a trial does on its device: set-up, training, validation, the "
        "final test. The attribute `wall_clock_s` has the training alone.",
        measured=lambda ended: ended.total_s,
        least=_least_to_the_end,
    ),
    TimeObjective.TO_BEST: TimeMeaning(
        axis="time to the best epoch (s)",
        heading="to best s",
        note="seconds of training and validation until the end of the best epoch; the epochs that "
        "early stopping waits after it are not in it (`wall_clock_s` has them).",
        measured=lambda ended: ended.time_to_best_s,
        least=_least_to_best,
    ),
    TimeObjective.TO_TARGET: TimeMeaning(
        axis="time to the target loss (s)",
        heading="to target s",
        note="seconds of training and validation until the validation loss was at or under "
        "{target:g} for the first time. A trial that never got there has no time: it is marked "
        "`target_missed`, and the dashboard shows it as pruned.",
        measured=_to_target,
        least=_least_to_target,
    ),
}


def measured_times(ended: Ended) -> dict[str, float | None]:
    """Every time of a trial by its name, whichever its study minimises."""
    return {time.value: meaning.measured(ended) for time, meaning in TIMES.items()}


CONSTRAINTS = "constraints"
"""Optuna keeps the value of `trial.set_constraint(key,
value)` as the trial's system attribute `constraints:<key>`."""

_NAMED = {time.value: (meaning.axis, meaning.heading) for time, meaning in TIMES.items()} | {
    "test_mql": ("test MQL", "test MQL"),
    "val_mql": ("validation MQL", "val MQL"),
}
"""Of each objective the words for a sentence, and for the head of a column."""


def objective_names(time_objective: str, mql_split: str) -> tuple[str, str]:
    """Names of a study's two objectives, as the record and JSON have them, e.g.
    `("wall_clock_s", "test_mql")`; with `origins`, too, for that is the MQL of test windows.
    """
    return time_objective, "test_mql" if mql_split == MqlSplit.ORIGINS else f"{mql_split}_mql"


def axis_title(objective: str) -> str:
    """An objective in words, with its unit, for an axis or a sentence."""
    return _NAMED.get(objective, (objective, objective))[0]


def heading(objective: str) -> str:
    """An objective as the head of a narrow column."""
    return _NAMED.get(objective, (objective, objective))[1]


def values_of(recorded: Recorded, objectives: Sequence[str]) -> Point | None:
    """The objective values in a trial's record; None where one is missing or not finite."""
    values = [recorded.named(name) for name in objectives]
    if not all(isinstance(value, int | float) and math.isfinite(value) for value in values):
        return None
    time_s, mql = (float(value) for value in values if value is not None)
    return time_s, mql


def violations(
    policy: SearchPolicy, values: Point, recorded: Recorded, *, target_val_loss: float | None = None
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
