"""A study timed by two versions of the clock: wherever its front is shown, a line says so."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from optuna.trial import TrialState

from tuner.export.pick import Picked, how_chosen
from tuner.record import Recorded
from tuner.report.terminal.tables import print_status, print_summary
from tuner.storage.records import TrialResult
from tuner.study.open import OpenStudy
from tuner.study.results import read_results

SAID = "versions 1 and 2 of the clock"


def finish(study: OpenStudy, values: tuple[float, float], clock: int | None) -> None:
    claim = study.ledger.claim("somebody")
    assert claim is not None
    study.ask(claim)
    recorded = Recorded(stopped_by="converged", converged=True, epochs=3, clock_version=clock)
    assert study.ledger.finish(claim, TrialResult(TrialState.COMPLETE, values, recorded))


@pytest.mark.parametrize(
    "show",
    [lambda each: print_status([each]), lambda each: print_summary([each], [], ended="filled")],
)
def test_status_and_summary_say_it_once_there_are_two(
    study: OpenStudy, capsys: pytest.CaptureFixture[str], show: Callable[[OpenStudy], None]
) -> None:
    finish(study, (9.0, 1.0), None)
    show(study)
    assert SAID not in capsys.readouterr().out
    finish(study, (8.0, 1.1), 2)
    show(study)
    assert capsys.readouterr().out.replace("\n", " ").count(SAID) == 1


def test_a_configuration_that_is_chosen_of_them_comes_with_that_note(study: OpenStudy) -> None:
    finish(study, (9.0, 1.0), 1)
    finish(study, (8.0, 1.1), 2)
    results = read_results(study)
    picked = Picked(record=results.front[0], pick="time", chosen_on=None, why="")
    (note,) = how_chosen(picked, results.objectives, results.clocks_differ).notes
    assert SAID in note
    assert how_chosen(picked, results.objectives).notes == ()
