"""From measurements and trainings to the rows and pages of a ladder."""

from __future__ import annotations

import csv
from collections.abc import Callable
from pathlib import Path

import pytest

from tuner.bench.contender import Job, Measurement, Round
from tuner.bench.ladder import (
    Ladder,
    LadderRow,
    Trained,
    Trainings,
    ladder_results,
    ladder_rows,
    make_ladder,
)
from tuner.bench.report import Circumstances
from tuner.data.windows import DeviceData
from tuner.spec.study_file import load_study_file

CIRCUMSTANCES = Circumstances(
    date="2026-11-23",
    device="Example GPU",
    task="demo",
    precision="fp32",
    epochs_per_round=2,
    command="tuner bench --ladder",
    versions="torch 2",
    git_revision="abc",
    contamination="",
)


@pytest.fixture(scope="module")
def ladder(job: Job, data: DeviceData) -> Ladder:
    return make_ladder(job, data, load_study_file("original"))


def trained(seed: int, mql: float, *, stopped_by: str = "converged") -> Trained:
    return Trained(
        seed=seed,
        stopped_by=stopped_by,
        epochs=40 + seed,
        wall_clock_s=10.0,
        val_loss=mql / 4,
        test_mql=mql,
    )


@pytest.fixture
def rows(ladder: Ladder, turn: Callable[..., Round]) -> list[LadderRow]:
    """The first rung gets slower from round to round with the machine, the second with it; the
    third dropped out."""
    found = [Measurement(each.entry, 1.0) for each in ladder.contenders]
    for slow in (1.0, 2.0, 4.0):
        found[0].rounds.append(turn(0.1, (slow, 0.2 * slow), (slow, 0.2 * slow)))
        found[1].rounds.append(turn(0.1, (slow / 2, 0.05 * slow)))
    found[2].failure = "out of memory: no"
    quality = Trainings(
        of={
            0: [trained(1, 1.0), trained(2, 1.2), trained(3, 1.1)],
            1: [trained(2, 1.3), trained(1, 1.1), trained(3, 1.2, stopped_by="epoch_limit")],
            3: [trained(1, 2.0)],
        },
        missing="the budget of 5 s was spent",
    )
    return ladder_rows(ladder, found, quality, seeds=3)


def test_speedups_are_of_the_same_round(rows: list[LadderRow]) -> None:
    """Of medians over all rounds they would be the same here only by the machine's grace."""
    first, second = rows[:2]
    assert (first.speedup_epoch, first.s_per_epoch) == (1.0, 2.0)
    assert second.speedup_epoch == second.speedup_epoch_min == second.speedup_epoch_max == 2.0
    assert second.speedup_step == pytest.approx(4.0)
    assert second.samples_per_s == 400 / 1.0


def test_quality_is_a_mean_with_an_interval_and_a_change_on_the_same_seeds(
    rows: list[LadderRow],
) -> None:
    first, second = rows[:2]
    assert first.test_mql == pytest.approx(1.1)
    assert (first.epochs, first.converged) == (42.0, 3)
    assert first.test_mql_change is None
    assert (second.seeds, second.converged) == (3, 2)
    # By Student's t with two degrees of freedom: 4.303 standard errors.
    assert first.test_mql_high == pytest.approx(1.1 + 4.3027 * 0.1 / 3**0.5, abs=1e-4)
    for end in ("", "_low", "_high"):
        assert getattr(second, f"test_mql_change{end}") == pytest.approx(0.1)
    single = next(row for row in rows if row.test_mql == 2.0)
    assert single.test_mql_low is None
    assert single.test_mql_change == pytest.approx(1.0)
    assert single.not_trained == "the budget of 5 s was spent"
    assert first.not_trained == ""


def test_what_was_not_measured_has_its_reason_in_row_and_page(
    rows: list[LadderRow], tmp_path: Path
) -> None:
    by_change = {row.change: row for row in rows}
    assert by_change["+ batch 1024"].failure == "out of memory: no"
    assert "needs a CUDA device" in by_change["+ captured step"].failure
    page = ladder_results(rows, CIRCUMSTANCES).page()
    assert "| + captured step (not here) |" in page
    assert "- + batch 1024 (cumulated): out of memory: no." in page
    assert "| 1.1000 [0.8516, 1.3484] |" in page
    assert "as the budget of 5 s was spent: " in page
    table, _ = ladder_results(rows, CIRCUMSTANCES).write(tmp_path)
    with table.open(encoding="utf-8", newline="") as file:
        written = list(csv.DictReader(file))
    assert [row["change"] for row in written] == [row.change for row in rows]
    assert (written[1]["precision"], written[1]["device"]) == ("bf16", "Example GPU")


def test_without_trainings_there_are_no_columns_of_quality(
    ladder: Ladder, turn: Callable[..., Round]
) -> None:
    found = [Measurement(each.entry, 1.0, [turn(0.1, (1.0, 0.1))]) for each in ladder.contenders]
    page = ladder_results(ladder_rows(ladder, found), CIRCUMSTANCES).page()
    assert "test MQL" not in page
    assert "Trained to convergence" not in page
