"""From measurements and trainings to the rows of a ladder: each beside the first rung."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tuner.bench.ladder.rungs import Ladder, Rung
from tuner.bench.ladder.to_convergence import Trained, Trainings
from tuner.bench.measurement import Measurement
from tuner.bench.rows import summarise
from tuner.config import StopReason
from tuner.verdict.stats.intervals import CONFIDENCE
from tuner.verdict.stats.permutation import paired_t_interval

LEAST_SEEDS = 2
"""Fewer give no interval."""

Figures = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderRow:
    """One rung. Times are in seconds; None is what does not exist here, or was not measured.

    Medians are over rounds, and of a round over its epochs. `speedup_*` is the first rung's figure
    divided by this one's in the same round: median, least and greatest over the rounds. Of
    trainings the figures are means over `seeds`, with the 95 % interval of Student's t; `*_change`
    is the mean difference from the first rung on the same seeds.
    """

    kind: str
    change: str
    variant: str
    backend: str
    precision: str
    hidden_size: int | None
    batch_size: int
    validate_every: int
    ms_per_step: float | None = None
    speedup_step: float | None = None
    s_per_epoch: float | None = None
    s_per_epoch_min: float | None = None
    s_per_epoch_max: float | None = None
    speedup_epoch: float | None = None
    speedup_epoch_min: float | None = None
    speedup_epoch_max: float | None = None
    samples_per_s: float | None = None
    gpu_utilisation: float | None = None
    peak_memory_bytes: int | None = None
    kernels_per_step: int | None = None
    setup_cold_s: float | None = None
    setup_warm_s: float | None = None
    n_windows: int | None = None
    n_steps: int | None = None
    rounds: int = 0
    seeds: int = 0
    converged: int = 0
    """Of the trainings; the others a limit cut."""
    reckoned_clock: bool = False
    """Trained in a captured step: the time to convergence is epochs times its own `s_per_epoch`."""
    epochs: float | None = None
    wall_clock_s: float | None = None
    wall_clock_s_low: float | None = None
    wall_clock_s_high: float | None = None
    val_loss: float | None = None
    val_loss_low: float | None = None
    val_loss_high: float | None = None
    val_loss_change: float | None = None
    val_loss_change_low: float | None = None
    val_loss_change_high: float | None = None
    test_mql: float | None = None
    test_mql_low: float | None = None
    test_mql_high: float | None = None
    test_mql_change: float | None = None
    test_mql_change_low: float | None = None
    test_mql_change_high: float | None = None
    failure: str = ""
    """Why it was not measured, or dropped out."""
    not_trained: str = ""
    """Why it has fewer trainings than were asked for."""


def ladder_rows(
    ladder: Ladder,
    measurements: Sequence[Measurement],
    trainings: Trainings | None = None,
    *,
    seeds: int = 0,
) -> list[LadderRow]:
    """One row a rung, in their order; `seeds` is how many trainings of each were asked for."""
    first = ladder.contender_of(ladder.rungs[0])
    assert first is not None, "a ladder has a first rung"
    made = trainings or Trainings()
    rows = []
    for rung in ladder.rungs:
        row, number = _of(rung, ladder.variant), ladder.contender_of(rung)
        if number is None:
            rows.append(replace(row, failure=rung.why_not))
            continue
        row = _timed(row, measurements[number], measurements[first])
        own = made.of.get(number, [])
        row = replace(row, **_trained(own, made.of.get(first, []), row.s_per_epoch))
        missing = made.failures.get(number) or made.missing
        rows.append(row if len(own) >= seeds else replace(row, not_trained=missing))
    return rows


def _of(rung: Rung, variant: str) -> LadderRow:
    sizes, training = rung.config.hyperparameters, rung.config.training
    return LadderRow(
        kind=rung.kind,
        change=rung.change,
        variant=variant,
        backend=training.backend.value,
        precision=training.precision.value,
        hidden_size=sizes.hidden_size,
        batch_size=sizes.batch_size,
        validate_every=training.validate_every,
    )


def _timed(row: LadderRow, own: Measurement, first: Measurement) -> LadderRow:
    """With its times, those of the bench's own row, and with how often they go into the first
    rung's.
    """
    (plain,) = summarise([own])
    same = (
        "ms_per_step s_per_epoch s_per_epoch_min s_per_epoch_max samples_per_s gpu_utilisation "
        "peak_memory_bytes kernels_per_step setup_cold_s setup_warm_s n_windows n_steps rounds "
        "failure"
    )
    found: Figures = {name: getattr(plain, name) for name in same.split()}
    epochs = _ratios(own, first, lambda epoch: epoch.seconds)
    steps = _ratios(own, first, lambda epoch: epoch.step_s)
    if epochs:
        found |= {
            "speedup_epoch": statistics.median(epochs),
            "speedup_epoch_min": min(epochs),
            "speedup_epoch_max": max(epochs),
            "speedup_step": statistics.median(steps),
        }
    return replace(row, **found)


def _ratios(own: Measurement, first: Measurement, of: Callable[[Any], float]) -> list[float]:
    """The first rung's median of a round by this one's of the same round."""
    return [
        statistics.median(map(of, before.epochs)) / statistics.median(map(of, after.epochs))
        for before, after in zip(first.rounds, own.rounds, strict=False)
    ]


def _trained(
    own: Sequence[Trained], first: Sequence[Trained], s_per_epoch: float | None
) -> Figures:
    if not own:
        return {}
    is_first = own is first
    converged = sum(each.stopped_by == StopReason.CONVERGED for each in own)
    found: Figures = {
        "seeds": len(own),
        "converged": converged,
        "epochs": statistics.fmean(each.epochs for each in own),
    }
    if own[0].captured:
        found["reckoned_clock"] = s_per_epoch is not None
        own = [replace(each, wall_clock_s=each.epochs * (s_per_epoch or 0.0)) for each in own]
    before = {each.seed: each for each in first}
    pairs = [(before[each.seed], each) for each in own if each.seed in before]
    for name in ("wall_clock_s", "val_loss", "test_mql"):
        if name == "wall_clock_s" and own[0].captured and s_per_epoch is None:
            continue
        found |= _mean(name, [getattr(each, name) for each in own])
        if name != "wall_clock_s" and pairs and not is_first:
            changes = [getattr(after, name) - getattr(was, name) for was, after in pairs]
            found |= _mean(f"{name}_change", changes)
    return found


def _mean(name: str, values: Sequence[float]) -> Figures:
    found: Figures = {name: statistics.fmean(values)}
    if len(values) >= LEAST_SEEDS:
        low, high = paired_t_interval(values, 1 - CONFIDENCE)
        found |= {f"{name}_low": low, f"{name}_high": high}
    return found
