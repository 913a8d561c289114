"""What a study's front rests on, told where its times are not of one clock."""

from __future__ import annotations

from typing import Any

import pytest
from optuna.trial import TrialState

from tuner.record import Recorded
from tuner.report.figures.front import FrontSeries, pareto_figure
from tuner.study.results import StudyResults, TrialRecord


def record(number: int, clock: int | None, **said: Any) -> TrialRecord:
    recorded = Recorded(**{"converged": True} | said, clock_version=clock)
    values = (1.0 + number, 2.0 - number)
    return TrialRecord(number, TrialState.COMPLETE, {}, values, recorded, None, None)


@pytest.mark.parametrize("clock", [None, 1, 2])
def test_times_of_one_clock_need_no_words(clock: int | None) -> None:
    results = StudyResults((record(0, clock), record(1, clock)))
    assert results.clocks == (clock or 1,)
    assert results.clocks_differ == ""


def test_times_of_two_clocks_are_told_where_they_decide_on_the_front() -> None:
    results = StudyResults((record(0, None), record(1, 2)))
    assert results.clocks == (1, 2)
    assert "versions 1 and 2 of the clock" in results.clocks_differ
    beside = record(1, 2, converged=False)
    assert StudyResults((record(0, 1), beside)).clocks_differ == "", "it is not of the front"


def test_a_figure_of_two_clocks_says_so_on_its_axis() -> None:
    series = [FrontSeries(name="a", points=[(1.0, 0.5)], labels=["0"])]
    told, silent = (
        pareto_figure(series, clocks_differ=differ).layout.xaxis.title.text
        for differ in (True, False)
    )
    assert told == f"{silent}, by several versions of the clock"
