"""What a study minimises and the limits it sets: one reading of a trial's record for
everyone."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
from optuna.trial import TrialState

from tuner.config import TrainingSettings
from tuner.data.task import load_task
from tuner.errors import TunerError
from tuner.export.pick import choose
from tuner.record import Recorded
from tuner.spec.definition import StudyDefinition
from tuner.spec.objectives import objective_names, time_to_target, values_of, violations
from tuner.spec.policy import SearchPolicy
from tuner.spec.study_file import load_study_file
from tuner.study.create import describe
from tuner.study.results import StudyResults, TrialRecord, judged

POLICY = SearchPolicy(max_time_s=10.0, max_mql=0.8, max_memory_bytes=1000)


def definition(**changes: Any) -> StudyDefinition:
    file = load_study_file("rmsnorm")
    task = load_task("demo").model_copy(update={"name": "tiny"}).definition()
    return StudyDefinition.of(
        file, task=task, data_hash="0" * 64, training=TrainingSettings(), **changes
    )


def record(number: int, values: tuple[float, float] | None, **said: Any) -> TrialRecord:
    state = TrialState.COMPLETE if values else TrialState.PRUNED
    return TrialRecord(
        number, state, {}, values, Recorded(**{"converged": True} | said), None, None
    )


def results(*records: TrialRecord, policy: SearchPolicy = POLICY) -> StudyResults:
    return judged(records, objective_names("wall_clock_s", "test"), policy)


def test_the_time_to_a_target_is_the_clock_at_the_first_loss_at_or_under_it() -> None:
    curve = [(0.5, 1.0), (None, 2.0), (0.3, 3.0), (0.2, 4.0), (0.3, 5.0)]
    assert time_to_target(curve, 0.3) == 3.0
    assert time_to_target(curve, 0.25) == 4.0
    assert time_to_target(curve, 0.1) is None  # a miss is no number


def test_values_are_the_named_figures_or_none_at_all() -> None:
    said = Recorded(
        total_s=5.0,
        val_mql=0.7,
        wall_clock_s=4.0,
        test_mql=float("nan"),
        time_to_target_s=None,
    )
    assert values_of(said, ("total_s", "val_mql")) == (5.0, 0.7)
    for objectives in (
        ("wall_clock_s", "test_mql"),
        ("time_to_target_s", "val_mql"),
        ("absent", "val_mql"),
    ):
        assert values_of(said, objectives) is None


def test_a_violation_is_the_share_of_the_limit_by_which_it_is_exceeded() -> None:
    found = violations(
        POLICY, (15.0, 0.6), Recorded(peak_memory_bytes=1000, val_loss=0.3), target_val_loss=0.2
    )
    assert found == pytest.approx(
        {"max_time": 0.5, "max_mql": -0.25, "max_memory": 0.0, "target": 0.5}
    )
    assert (
        violations(POLICY, (15.0, 0.6), Recorded())["max_memory"] == 0.0
    )  # not recorded breaks no limit
    assert violations(SearchPolicy(), (15.0, 0.6), Recorded()) == {}


def test_the_front_is_of_trials_that_keep_the_limits() -> None:
    found = results(
        record(0, (1.0, 0.9)), record(1, (5.0, 0.75)), record(2, (9.0, 0.7)), record(3, (11.0, 0.6))
    )
    assert [r.number for r in found.front] == [1, 2]
    assert [r.feasible for r in found.records] == [False, True, True, False]
    assert not found.infeasible
    assert found.limits == "wall_clock_s <= 10 and test_mql <= 0.8 and peak memory <= 1e-06 GB"


def test_where_no_trial_keeps_the_limits_the_front_is_marked_and_none_is_chosen() -> None:
    found = results(record(0, (1.0, 0.9)), record(1, (12.0, 0.75)))
    assert found.infeasible
    assert [r.number for r in found.front] == [0, 1]
    with pytest.raises(TunerError, match=r"keeps the study's limits, wall_clock_s <= 10.*--trial"):
        choose(found, "s", pick="knee")
    assert (
        choose(results(record(0, (1.0, 0.9)), policy=SearchPolicy()), "s", pick="knee").number == 0
    )


def test_a_missed_target_is_counted_and_stands_nowhere() -> None:
    found = results(
        record(0, (1.0, 0.7)), record(1, None, target_missed=True, stopped_by="converged")
    )
    assert found.missed == 1
    assert [r.number for r in found.front] == [0]


def test_objectives_and_target_are_part_of_what_a_study_is() -> None:
    plain = definition()
    assert "target_val_loss" not in plain.as_dict()  # an identity from before there was one stays
    changes: list[dict[str, Any]] = [
        {"time_objective": "time_to_target_s", "target_val_loss": 0.2},
        {"time_objective": "time_to_target_s", "target_val_loss": 0.3},
        {"time_objective": "total_s"},
        {"mql_split": "val"},
    ]
    made = [definition(**change) for change in changes]
    assert len({each.identity() for each in [plain, *made]}) == 5
    assert made[0].objectives == ("time_to_target_s", "test_mql")
    assert made[3].objectives == ("wall_clock_s", "val_mql")
    for each in made:
        assert StudyDefinition.from_json(each.to_json()).identity() == each.identity()
        assert all(f"**{name}**" in describe(each) for name in each.objectives)
    assert "under 0.3" in describe(made[1])
    assert dataclasses.replace(made[2], objectives=plain.objectives).identity() == plain.identity()
