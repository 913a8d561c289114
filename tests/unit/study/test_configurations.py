"""Several trials of one configuration are one point of a study: made-up records, where the lucky
run of four would be on the front by itself."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

import pytest
from optuna.trial import TrialState

from tuner.api import front_frame, to_frame
from tuner.config import OBJECTIVES, Value
from tuner.export.pick import choose
from tuner.record import Recorded
from tuner.report.dashboard.downloads import _trials_csv
from tuner.report.figures.series import common_reference, front_series, trade_series, volume_series
from tuner.report.terminal.live import Look, picture
from tuner.report.terminal.tables import trials_table
from tuner.spec.pareto import Point, front_indices, hypervolume, hypervolume_trace
from tuner.spec.policy import SearchPolicy
from tuner.storage.records import Counts
from tuner.study.results import StudyResults, TrialRecord, configurations, judged, median_values

A, B, C, D = (
    {
        "learning_rate": rate,
        "weight_decay": 0.0,
        "dropout": 0.1,
        "hidden_size": 64,
        "batch_size": 256,
    }
    for rate in (1e-4, 1e-3, 3e-3, 1e-2)
)


def trial(
    number: int,
    params: Mapping[str, Value],
    values: Point | None,
    state: TrialState | None = None,
    **said: Any,
) -> TrialRecord:
    given: dict[str, Any] = {"converged": True, "stopped_by": "converged", "epochs": 10}
    return TrialRecord(
        number=number,
        state=state or (TrialState.COMPLETE if values else TrialState.FAIL),
        params=dict(params),
        values=values,
        recorded=Recorded(**given | {"seed": 100 + number} | said),
        started=f"2026-01-01T00:{number:02}:00",
        ended=f"2026-01-01T00:{number:02}:59",
    )


DEFAULT = trial(0, A, (10.0, 1.00), default=True)
STEADY = trial(1, B, (4.0, 1.02))
SLOW = trial(2, C, (20.0, 0.98))
RUNS = (
    trial(3, D, (5.0, 1.10), epochs=20),
    trial(4, D, (2.0, 0.90), epochs=8),  # the lucky one: it would dominate everything
    trial(5, D, (6.0, 1.12), epochs=24),
    trial(6, D, (7.0, 1.04), epochs=30),
)
OTHERS = (DEFAULT, STEADY, SLOW)
MEDIANS = (5.5, 1.07)


def study(*records: TrialRecord) -> StudyResults:
    return StudyResults(records)


REPEATED = study(*OTHERS, *RUNS)


def numbers(records: tuple[TrialRecord, ...]) -> list[int]:
    return [record.number for record in records]


def test_a_configuration_with_one_trial_is_that_trial_unchanged() -> None:
    found = configurations((*OTHERS, RUNS[0]))
    assert all(a is b for a, b in zip(found, (*OTHERS, RUNS[0]), strict=True))
    assert not study(*OTHERS).repeated
    assert "runs" not in DEFAULT.as_dict()
    unknown = dataclasses.replace(DEFAULT, params={})
    assert len(configurations((unknown, dataclasses.replace(unknown, number=9)))) == 2


def test_several_trials_are_one_point_their_medians_under_the_first_number() -> None:
    (one,) = configurations(RUNS)
    assert (one.number, one.values, one.runs, one.numbers) == (3, MEDIANS, 4, (3, 4, 5, 6))
    assert one.recorded.epochs == 20, "the lower middle one of 8, 20, 24, 30: one that occurred"
    assert (one.started, one.ended) == (RUNS[0].started, RUNS[3].ended)
    assert one.converged
    assert one.as_dict() | {"runs": 4, "trials": [3, 4, 5, 6]} == one.as_dict()
    assert configurations(RUNS[::-1])[0].number == 3, "whatever ended first"


def test_numbers_that_a_database_rounds_are_the_same_configuration() -> None:
    near = dataclasses.replace(
        RUNS[1], params=D | {"learning_rate": D["learning_rate"] * (1 + 1e-14)}
    )
    assert configurations((RUNS[0], near))[0].runs == 2


def test_the_lucky_run_is_not_on_the_front_and_the_steady_one_is() -> None:
    singles = [r.values for r in REPEATED.complete if r.values]
    lucky = [REPEATED.complete[i].number for i in front_indices(singles)]
    assert lucky == [4], "of single runs it dominates all"
    assert numbers(REPEATED.front) == [1, 0, 2]
    assert REPEATED.on_front == {0, 1, 2}
    assert REPEATED.repeated
    reference = REPEATED.reference
    assert reference is not None
    assert list(reference) == pytest.approx([22.0, 1.07 * 1.1])
    assert REPEATED.hypervolume == hypervolume([(10, 1), (4, 1.02), (20, 0.98), MEDIANS], reference)
    assert [choose(REPEATED, "s", pick=p).number for p in ("time", "mql")] == [1, 2]
    assert choose(REPEATED, "s", pick="knee").number in (0, 1)


def test_a_median_that_is_not_dominated_is_on_the_front_with_its_count() -> None:
    good = [dataclasses.replace(r, values=(3.0 + i, 0.99)) for i, r in enumerate(RUNS)]
    results = study(*OTHERS, *good)
    assert numbers(results.front) == [1, 3, 2]
    assert results.front[1].values == (4.5, 0.99)
    assert results.on_front == {1, 2, 3, 4, 5, 6}
    assert results.front[1].runs_in_words == "4 runs"
    assert choose(results, "s", pick="knee").runs == 4
    frame = to_frame(results)
    assert frame["wall_clock_s"].tolist()[3:] == [3, 4, 5, 6], "trials as they were"
    assert frame["on_front"].tolist() == [False, True, True, True, True, True, True]
    front = front_frame(results)
    assert front[["trial", "runs", "wall_clock_s"]].to_numpy().tolist() == [
        [1, 1, 4.0],
        [3, 4, 4.5],
        [2, 1, 20.0],
    ]


@pytest.mark.parametrize(
    "miss",
    [
        trial(7, D, (9.0, 0.8), converged=False, stopped_by="epoch_limit"),
        trial(7, D, None, converged=False, stopped_by="diverged"),
        trial(7, D, None, converged=False, stopped_by="out_of_memory"),
        trial(7, D, None, TrialState.PRUNED, converged=False, target_missed=True),
    ],
)
def test_a_run_that_missed_keeps_the_configuration_off_the_front(miss: TrialRecord) -> None:
    good = dataclasses.replace(RUNS[0], values=(1.0, 0.5))
    assert numbers(study(*OTHERS, good).front) == [3]
    results = study(*OTHERS, good, miss)
    assert numbers(results.front) == [1, 0, 2]
    assert not results.censored
    whole = results.configuration_of(3)
    assert whole is not None
    assert not whole.converged
    assert whole.recorded.stopped_by == miss.recorded.stopped_by


@pytest.mark.parametrize(
    "other",
    [
        trial(7, D, None, converged=False, stopped_by="error"),
        trial(7, D, None, TrialState.PRUNED, converged=False, stopped_by="pruned"),
        trial(7, D, None, TrialState.RUNNING),
        trial(7, D, None, TrialState.WAITING),
    ],
)
def test_what_says_nothing_of_convergence_counts_for_nothing(other: TrialRecord) -> None:
    good = dataclasses.replace(RUNS[0], values=(1.0, 0.5))
    results = study(*OTHERS, good, other)
    assert results.front == (good,)


def test_where_every_configuration_missed_once_the_front_is_censored() -> None:
    cut = trial(7, D, (9.0, 0.8), converged=False, stopped_by="epoch_limit")
    results = study(RUNS[0], cut)
    assert results.censored
    assert numbers(results.front) == [3]
    assert results.front[0].values == pytest.approx((7.0, 0.95))


def test_disturbed_timings_are_left_out_where_another_is_clean() -> None:
    disturbed = trial(7, D, (99.0, 1.3), contaminated=True, s_per_epoch=9.0, contamination="x")
    clean = dataclasses.replace(
        RUNS[0], recorded=dataclasses.replace(RUNS[0].recorded, s_per_epoch=0.25)
    )
    (one,) = configurations((clean, disturbed))
    assert one.values == pytest.approx((5.0, 1.2))
    assert one.recorded.s_per_epoch == 0.25
    assert not one.recorded.contaminated
    assert one.recorded.epochs == 10, "how it went is of all"
    (both,) = configurations((disturbed, dataclasses.replace(disturbed, number=8)))
    assert both.values == (99.0, 1.3)
    assert both.recorded.contaminated
    assert median_values([disturbed]) == (99.0, 1.3)


def test_limits_are_of_the_medians() -> None:
    records = (*OTHERS, *RUNS)
    results = judged(records, OBJECTIVES, SearchPolicy(max_time_s=5.5))
    assert numbers(results.eligible) == [1, 3]
    strict = judged(records, OBJECTIVES, SearchPolicy(max_time_s=5.4))
    assert numbers(strict.eligible) == [1], "though two of the four runs keep it"
    assert numbers(judged(records, OBJECTIVES, SearchPolicy(max_time_s=2.5)).front) != [4]
    assert judged(records, OBJECTIVES, SearchPolicy(max_time_s=2.5)).infeasible


def test_the_default_is_one_configuration_also_where_only_one_trial_says_so() -> None:
    again = trial(7, A, (14.0, 1.04))
    default = study(*OTHERS, again).default
    assert default is not None
    assert (default.number, default.runs, default.values) == (0, 2, (12.0, 1.02))
    later = study(
        dataclasses.replace(again, number=0), dataclasses.replace(DEFAULT, number=7)
    ).default
    assert later is not None
    assert (later.number, later.runs, later.is_default) == (0, 2, True)


def test_figures_draw_configurations() -> None:
    series = front_series(REPEATED, "s")
    assert list(series.points) == [(10.0, 1.0), (4.0, 1.02), (20.0, 0.98), MEDIANS]
    assert series.labels[3].startswith("trial 3, 4 runs<br>")
    assert series.labels[1].startswith("trial 1<br>")
    paced = [
        dataclasses.replace(r, recorded=dataclasses.replace(r.recorded, s_per_epoch=0.1))
        for r in REPEATED.records
    ]
    trade = trade_series(study(*paced), "s")
    assert [epochs for epochs, _ in trade.points] == [10, 10, 10, 20]


def test_the_volume_falls_where_a_lucky_run_is_corrected_and_ends_at_the_fronts() -> None:
    lucky_first = [dataclasses.replace(r, number=n, ended=f"2026-01-01T00:0{n}:59")
                   for n, r in enumerate((RUNS[1], RUNS[0], RUNS[2], RUNS[3]), 3)]  # fmt: skip
    results = study(*OTHERS, *lucky_first)
    series = volume_series(results, "s", common_reference([results]))
    assert len(series.volume) == 7
    assert series.volume[-1] == pytest.approx(results.hypervolume)
    assert series.volume[3] > series.volume[4] > 0, "the second run takes half of the luck away"
    assert all(b >= a for a, b in itertools.pairwise(series.volume[:4]))


def test_a_trace_of_points_that_are_replaced_is_that_of_what_stands() -> None:
    points = [(1.0, 1.0), (2.0, 0.5), (3.0, 3.0), (2.0, 2.0), (0.5, 4.0)]
    names = ["a", "b", "a", "b", "c"]
    stands: dict[str, Point] = {}
    expected = []
    for name, point in zip(names, points, strict=True):
        stands[name] = point
        expected.append(hypervolume(list(stands.values()), (5.0, 5.0)))
    assert hypervolume_trace(points, (5.0, 5.0), names) == pytest.approx(expected)
    assert hypervolume_trace(points, (5.0, 5.0)) == hypervolume_trace(points, (5.0, 5.0), "abcde")


def test_a_launch_shows_the_count(capsys: pytest.CaptureFixture[str]) -> None:
    from tuner.display.terminal import Console

    good = [dataclasses.replace(r, values=(3.0 + i, 0.99)) for i, r in enumerate(RUNS)]
    look = Look("s", Counts(20, 0, 7), study(*OTHERS, *good), ())
    console = Console(width=60, height=40, force_terminal=False)
    console.print(picture([look], console))
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[-2:] for row in rows if row[:4] == ["3", "4.500", "0.9900", "20"]] == [
        ["4", "runs"]
    ]


def test_a_price_gives_each_trial_a_cost_and_a_configuration_the_middle_one() -> None:
    """At 3.6 an hour a thousand seconds of a device cost 1."""
    seconds = (100.0, 400.0, 200.0)
    runs = [
        trial(n, D, (5.0 + n, 1.1), total_s=s, devices=2, energy_j=1e3 * s, contaminated=n == 1)
        for n, s in enumerate(seconds)
    ]
    failed, at_work = trial(3, A, None, total_s=50.0), trial(4, B, None, TrialState.WAITING)
    free = judged([*runs, failed, at_work], OBJECTIVES, SearchPolicy())
    assert (free.cost, free.records[0].cost) == (None, None)
    assert "cost" not in to_frame(free)
    found = judged(free.records, OBJECTIVES, SearchPolicy(price_per_gpu_hour=3.6))
    costs = [each.cost for each in found.records]
    assert costs[:4] == pytest.approx([0.2, 0.8, 0.4, 0.05])
    assert costs[4] is None
    assert found.cost == pytest.approx(1.45)
    (one,) = found.configurations
    assert one.cost == pytest.approx(0.4)
    assert one.recorded.energy_j == 150e3, "of the runs that had their device alone"
    assert one.as_dict()["energy_j"] == 150e3
    assert to_frame(found)["energy_j"].tolist()[:3] == [100e3, 400e3, 200e3]
    assert to_frame(found)["cost"].tolist()[:4] == pytest.approx([0.2, 0.8, 0.4, 0.05])
    assert front_frame(found)[["energy_j", "cost"]].values.tolist() == [[150e3, one.cost]]
    shown = trials_table(found.front, OBJECTIVES, 200)
    assert [str(next(iter(column.cells))) for column in shown.columns[4:6]] == ["150,000 J", "0.4"]
    plain = trials_table(free.front, OBJECTIVES, 200)
    assert [column.header for column in plain.columns[4:6]] == ["energy", "lr"]
    text = _trials_csv(found)
    assert {"energy_j", "cost"} <= set(text.splitlines()[0].split(","))
