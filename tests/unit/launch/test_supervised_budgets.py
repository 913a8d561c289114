"""The supervisor while budgets change: workers are short commands, the queue is made up."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.supervised_launch import Launch, Queue, quickly
from tuner.errors import TunerError
from tuner.launch import Outcome, supervisor


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    quickly(monkeypatch)


def test_a_budget_raised_just_when_the_workers_went_home_calls_them_back(tmp_path: Path) -> None:
    launch = Launch(Queue(budget=4, finished=4), tmp_path)

    def raised_once(launch: Launch) -> None:
        if launch.queue.budget == 4:
            launch.queue.budget = 6
        elif launch.starts() == 2:
            launch.queue.finished = 6

    assert launch.run(raised_once) is Outcome.FILLED
    assert launch.starts() == 2


def test_a_worker_that_went_home_is_called_back_while_another_still_works(tmp_path: Path) -> None:
    until = f"while [ ! -e {tmp_path}/over ]; do sleep 0.02; done"
    launch = Launch(
        Queue(budget=4), tmp_path, devices=2, script=f'case "$*" in *"--cores 1 "*) {until};; esac'
    )

    def raised(launch: Launch) -> None:
        if launch.ticks == 20:
            launch.queue.budget = 6
        if launch.starts(0) == 2:
            launch.queue.finished = 6
            (tmp_path / "over").touch()

    assert launch.run(raised) is Outcome.FILLED
    assert (launch.starts(0), launch.starts(1)) == (2, 1)


def test_workers_are_called_back_once_for_a_raise_not_for_ever(tmp_path: Path) -> None:
    """Workers that end content while something is left, as when another launch runs the last
    trial."""
    launch = Launch(Queue(budget=6, finished=4), tmp_path)
    assert launch.run() is Outcome.FILLED
    assert launch.starts() == 1


def test_a_budget_lowered_below_what_is_finished_ends_the_launch_as_filled(tmp_path: Path) -> None:
    launch = Launch(
        Queue(budget=50, finished=5),
        tmp_path,
        script=f"while [ ! -e {tmp_path}/lowered ]; do sleep 0.02; done",
    )

    def lowered(launch: Launch) -> None:
        if launch.ticks == 3:
            launch.queue.budget = 2
            (tmp_path / "lowered").touch()

    assert launch.run(lowered) is Outcome.FILLED
    assert launch.starts() == 1


def test_a_raise_does_not_call_back_a_worker_that_was_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "MAX_RESTARTS", 1)
    launch = Launch(Queue(budget=4), tmp_path, script="echo it cannot be; exit 1")

    def raised(launch: Launch) -> None:
        launch.queue.budget = 6

    with pytest.raises(TunerError, match="could not be kept alive: it cannot be"):
        launch.run(raised)
    assert launch.starts() == 1


def test_a_worker_that_dies_once_the_budget_is_filled_is_not_started_again(tmp_path: Path) -> None:
    launch = Launch(
        Queue(budget=4),
        tmp_path,
        script=f"while [ ! -e {tmp_path}/full ]; do sleep 0.02; done; exit 1",
    )

    def filled(launch: Launch) -> None:
        launch.queue.finished = 4
        (tmp_path / "full").touch()

    assert launch.run(filled) is Outcome.FILLED
    assert launch.starts() == 1
