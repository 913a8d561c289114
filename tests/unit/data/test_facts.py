from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.support.small_csv import LONG, TASK, csv_lines
from tuner.cli.data import facts_of, span
from tuner.config import Objective
from tuner.data.prepare import objective_shares
from tuner.data.series import Series
from tuner.data.task import Task

HOURS = np.arange("2024-01-01", "2024-01-05", dtype="datetime64[h]").astype("datetime64[us]")


def series(name: str, *columns: np.ndarray) -> Series:
    return Series(name=name, timestamps=HOURS, values=np.stack(columns, axis=1).astype(np.float64))


@pytest.fixture
def task(task_file: Callable[..., Task]) -> Task:
    return task_file(csv_lines(60))


def test_a_column_weighs_what_a_forecast_errs_by(task: Task) -> None:
    saw = np.arange(len(HOURS)) % 2
    shares = objective_shares(task, (series("x", 9.0 * saw, 1.0 * saw),))
    assert shares == pytest.approx({"a": 0.9, "b": 0.1})


def test_a_high_level_alone_weighs_nothing(task: Task) -> None:
    saw = np.arange(len(HOURS)) % 2
    shares = objective_shares(task, (series("x", 1e6 + saw, 1.0 * saw),))
    assert shares == pytest.approx({"a": 0.5, "b": 0.5})


def test_only_the_series_of_the_objective_count(task: Task) -> None:
    saw = np.arange(len(HOURS)) % 2
    two = (series("x", 9.0 * saw, 1.0 * saw), series("y", 0.0 * saw, 9.0 * saw))
    assert objective_shares(task, two) == pytest.approx({"a": 9 / 19, "b": 10 / 19})
    one = task.model_copy(update={"objective_series": "y"})
    assert objective_shares(one, two) == pytest.approx({"a": 0, "b": 1})


def test_a_scaled_objective_weighs_columns_alike(task: Task) -> None:
    saw = np.arange(len(HOURS)) % 2
    scaled = task.model_copy(update={"objective": Objective.SCALED})
    shares = objective_shares(scaled, (series("x", 9.0 * saw, 1.0 * saw),))
    assert shares == pytest.approx({"a": 0.5, "b": 0.5})


def test_rows_after_the_training_are_not_looked_at(task: Task) -> None:
    saw = np.arange(len(HOURS)) % 2
    late = np.where(np.arange(len(HOURS)) < 60, saw, 1e9 * saw)
    assert objective_shares(task, (series("x", late, 1.0 * saw),))["a"] < 0.6


def test_where_nothing_changes_there_are_no_shares(task: Task) -> None:
    flat = np.ones(len(HOURS))
    assert objective_shares(task, (series("x", flat, flat),)) == {}


def test_facts_are_of_each_series(task_file: Callable[..., Task]) -> None:
    lines = ["unique_id,ds,y"]
    for name, rows in (("north", 50), ("south", 60)):
        value = "7" if name == "south" else None
        lines += [
            f"{name},{line.partition(',')[0]},{value or i % 5}"
            for i, line in enumerate(csv_lines(rows)[1:])
        ]
    facts = facts_of(task_file(lines, LONG))
    assert [
        (each.name, len(each.values), str(each.timestamps[0])[:10]) for each in facts.series
    ] == [
        ("north", 50, "2024-01-01"),
        ("south", 60, "2024-01-01"),
    ]
    assert facts.constant == ("south: y",)


def test_an_undated_index_has_no_span(task_file: Callable[..., Task]) -> None:
    lines = [line.partition(",")[2] for line in csv_lines(60)]
    undated = facts_of(task_file(lines, TASK + "index = true\n"))
    assert span(undated, undated.series[0]) == ()
    dated = facts_of(task_file(lines, TASK + 'index = true\nstart = "1990-01-01"\n'))
    assert span(dated, dated.series[0]) == ("1990-01-01", "1990-01-03 11:00:00")
