"""From measurements to the rows of the results: medians, and how many times faster than darts."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tuner.bench.measurement import Measurement

REFERENCE = "darts"

LIBRARY = "neuralforecast"

REFERENCE_EPOCHS = 48
"""Epochs to convergence of the reference job, as darts has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One contender at one pair of sizes. Times are in seconds; None is what does not exist here.

    Medians are over rounds, and of a round over its epochs. `speedup_*` is the reference's figure
    divided by this one's: darts' at the same sizes, or, of a model of neuralforecast, that
    library's own. Of training steps alone there is only `speedup_step`.
    `epochs48_*` is 48 epochs: alone, with the warm set-up, with the cold one.
    """

    contender: str
    library: str
    variant: str
    backend: str
    hidden_size: int | None
    batch_size: int
    scope: str
    s_per_epoch: float | None = None
    s_per_epoch_min: float | None = None
    s_per_epoch_max: float | None = None
    setup_cold_s: float | None = None
    setup_warm_s: float | None = None
    epochs48_s: float | None = None
    epochs48_warm_s: float | None = None
    epochs48_cold_s: float | None = None
    ms_per_step: float | None = None
    kernels_per_step: int | None = None
    peak_memory_bytes: int | None = None
    samples_per_s: float | None = None
    gpu_utilisation: float | None = None
    n_parameters: int | None = None
    n_windows: int | None = None
    n_steps: int | None = None
    rounds: int = 0
    speedup_step: float | None = None
    speedup_epoch: float | None = None
    speedup_48_warm: float | None = None
    speedup_48_cold: float | None = None
    failure: str = ""
    note: str = ""


def summarise(measurements: Sequence[Measurement]) -> list[Row]:
    """One row each, in their order."""
    plain = [_plain(measured) for measured in measurements]
    darts = {(row.hidden_size, row.batch_size): row for row in plain if row.library == REFERENCE}
    own = {
        (row.variant, row.hidden_size, row.batch_size): row
        for row in plain
        if row.library == LIBRARY and row.variant
    }
    compared = []
    for row in plain:
        sizes = row.hidden_size, row.batch_size
        compared.append(_compared(row, own.get((row.variant, *sizes), darts.get(sizes))))
    return compared


def _plain(measured: Measurement) -> Row:
    entry = measured.entry
    identity = {
        "contender": entry.name,
        "library": entry.library,
        "variant": entry.variant,
        "backend": entry.backend,
        "hidden_size": entry.hidden_size,
        "batch_size": entry.batch_size,
        "scope": entry.scope.value,
        "setup_cold_s": measured.cold_setup_s,
        "rounds": len(measured.rounds),
        "failure": measured.failure,
        "note": entry.note,
    }
    if not measured.rounds:
        return Row(**identity)  # type: ignore[arg-type]
    per_round = [
        statistics.median(epoch.seconds for epoch in turn.epochs) for turn in measured.rounds
    ]
    step_s = statistics.median(
        statistics.median(epoch.step_s for epoch in turn.epochs) for turn in measured.rounds
    )
    s_per_epoch = statistics.median(per_round)
    warm = statistics.median(turn.setup_s for turn in measured.rounds)
    last = measured.rounds[-1]
    peaks = [
        turn.peak_memory_bytes for turn in measured.rounds if turn.peak_memory_bytes is not None
    ]
    alone = REFERENCE_EPOCHS * s_per_epoch
    return Row(
        **identity,  # type: ignore[arg-type]
        s_per_epoch=s_per_epoch,
        s_per_epoch_min=min(per_round),
        s_per_epoch_max=max(per_round),
        setup_warm_s=warm,
        epochs48_s=alone,
        epochs48_warm_s=alone + warm,
        epochs48_cold_s=None if measured.cold_setup_s is None else alone + measured.cold_setup_s,
        ms_per_step=1000 * step_s,
        kernels_per_step=measured.kernels_per_step,
        peak_memory_bytes=max(peaks, default=None),
        samples_per_s=last.n_windows / s_per_epoch,
        gpu_utilisation=measured.gpu_utilisation,
        n_parameters=last.n_parameters,
        n_windows=last.n_windows,
        n_steps=last.n_steps,
    )


def _compared(row: Row, reference: Row | None) -> Row:
    if reference is None:
        return row
    row = replace(row, speedup_step=_ratio(reference.ms_per_step, row.ms_per_step))
    if row.scope != reference.scope:
        return row
    return replace(
        row,
        speedup_epoch=_ratio(reference.s_per_epoch, row.s_per_epoch),
        speedup_48_warm=_ratio(reference.epochs48_warm_s, row.epochs48_warm_s),
        speedup_48_cold=_ratio(reference.epochs48_cold_s, row.epochs48_cold_s),
    )


def _ratio(reference: float | None, own: float | None) -> float | None:
    return None if reference is None or own is None else reference / own
