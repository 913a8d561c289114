from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from tuner.bench.contender import Measurement, Round, Scope
from tuner.bench.report import summarise

Turn = Callable[..., Round]
Measured = Callable[..., Measurement]


def test_figures_are_medians_over_rounds_of_medians_over_epochs(
    turn: Turn, measured: Measured
) -> None:
    rounds = [
        turn(0.5, (1.0, 0.1), (9.0, 0.9), (2.0, 0.2), peak=70),
        turn(0.7, (4.0, 0.4), (4.0, 0.4), (4.0, 0.4), peak=90),
        turn(0.6, (3.0, 0.3), (3.0, 0.3), (8.0, 0.8), peak=80),
    ]
    (row,) = summarise([measured("tuner", 5.0, *rounds)])
    assert row.s_per_epoch == 3.0
    assert (row.s_per_epoch_min, row.s_per_epoch_max) == (2.0, 4.0)
    assert row.ms_per_step == pytest.approx(300.0)
    assert (row.setup_cold_s, row.setup_warm_s) == (5.0, 0.6)
    assert row.epochs48_s == 144.0
    assert row.epochs48_warm_s == pytest.approx(144.6)
    assert row.epochs48_cold_s == 149.0
    assert row.samples_per_s == pytest.approx(400 / 3)
    assert row.peak_memory_bytes == 90
    assert row.rounds == 3


def test_ratios_are_darts_time_divided_by_ones_own(turn: Turn, measured: Measured) -> None:
    darts, ours = summarise(
        [
            measured("darts", 10.0, turn(2.0, (1.0, 0.02))),
            measured("tuner", 4.0, turn(0.0, (0.1, 0.001))),
        ]
    )
    assert ours.speedup_epoch == pytest.approx(10.0)
    assert ours.speedup_step == pytest.approx(20.0)
    assert ours.speedup_48_warm == pytest.approx(50.0 / 4.8)
    assert ours.speedup_48_cold == pytest.approx(58.0 / 8.8)
    assert (
        darts.speedup_epoch,
        darts.speedup_step,
        darts.speedup_48_warm,
        darts.speedup_48_cold,
    ) == (1, 1, 1, 1)


def test_there_is_no_ratio_to_darts_at_other_sizes(turn: Turn, measured: Measured) -> None:
    _, ours = summarise(
        [
            measured("darts", 1.0, turn(1.0, (1.0, 0.1))),
            measured("tuner", 1.0, turn(1.0, (1.0, 0.1)), batch_size=64),
        ]
    )
    assert ours.speedup_epoch is None
    assert ours.speedup_step is None
    assert ours.speedup_48_cold is None


def test_steps_without_validation_are_compared_with_steps_only(
    turn: Turn, measured: Measured
) -> None:
    _, steps = summarise(
        [
            measured("darts", 1.0, turn(1.0, (1.0, 0.02))),
            measured("neuralforecast", 1.0, turn(1.0, (0.4, 0.01)), scope=Scope.STEPS),
        ]
    )
    assert steps.speedup_step == pytest.approx(2.0)
    assert steps.speedup_epoch is None
    assert steps.speedup_48_warm is None


def test_who_failed_has_a_row_with_its_reason_and_no_figures(
    turn: Turn, measured: Measured
) -> None:
    failed, ours = summarise(
        [
            measured("darts", 3.0, failure="out of memory: too big"),
            measured("tuner", 1.0, turn(1.0, (1.0, 0.1))),
        ]
    )
    assert failed.failure == "out of memory: too big"
    assert failed.setup_cold_s == 3.0
    assert failed.s_per_epoch is None
    assert failed.rounds == 0
    assert ours.speedup_epoch is None


def test_a_model_of_neuralforecast_is_held_against_its_own_fit(
    turn: Turn, measured: Measured
) -> None:
    def named(library: str, variant: str, step_s: float) -> Measurement:
        found = measured(library, 1.0, turn(1.0, (10 * step_s, step_s)))
        entry = replace(found.entry, variant=variant, hidden_size=None, scope=Scope.EPOCH)
        return replace(found, entry=entry)

    rows = summarise(
        [
            named("neuralforecast", "nf-tcn", 0.4),
            named("neuralforecast", "nf-nhits", 0.6),
            named("tuner", "nf-tcn", 0.1),
            named("tuner", "nf-nhits", 0.1),
            named("tuner", "nf-patchtst", 0.1),
        ]
    )
    assert [row.speedup_step for row in rows] == [
        1.0,
        1.0,
        pytest.approx(4),
        pytest.approx(6),
        None,
    ]
    assert [row.hidden_size for row in rows] == [None] * 5
