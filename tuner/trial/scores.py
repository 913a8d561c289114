"""How good a trial's forecasts are, as it is recorded."""

from __future__ import annotations

import dataclasses

from tuner.data.origins import TestWindows
from tuner.data.windows import DeviceData
from tuner.record import Recorded
from tuner.spec.definition import StudyDefinition
from tuner.training import Evaluation
from tuner.training.naive_forecasts import score_baselines


def objective_mql(evaluation: Evaluation, definition: StudyDefinition) -> tuple[float, float]:
    """Test and validation MQL of the task's objective series, else the means over all forecasts:
    the two rank configurations of the same thing.
    """
    return evaluation.of_series(definition.task.get("objective_series"))


def with_scores(
    recorded: Recorded, evaluation: Evaluation, definition: StudyDefinition
) -> Recorded:
    """With how good the forecasts are."""
    series = definition.task.get("objective_series")
    test_mql, val_mql = objective_mql(evaluation, definition)
    return dataclasses.replace(
        recorded,
        test_mql=test_mql,
        val_mql=val_mql,
        test_mql_mean=evaluation.test_mql_mean,
        series_test_mql=evaluation.test_mql,
        series_val_mql=evaluation.val_mql,
        column_test_mql=evaluation.test_columns,
        column_val_mql=evaluation.val_columns,
        block_test_mql={
            str(number): scores.by_series[series] if series else scores.mean
            for number, scores in evaluation.test_blocks.items()
        },
    )


def with_baselines(
    recorded: Recorded, data: DeviceData, definition: StudyDefinition, windows: TestWindows
) -> Recorded:
    """With what needs no network: the default configuration says it for all of its study."""
    test: dict[str, float] = {}
    val: dict[str, float] = {}
    for each in score_baselines(data, windows=windows):
        test[each.name], val[each.name] = objective_mql(each.evaluation, definition)
    return dataclasses.replace(recorded, baseline_test_mql=test, baseline_val_mql=val)
