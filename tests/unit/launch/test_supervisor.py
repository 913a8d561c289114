"""The supervisor while workers die: workers are short commands, the queue is made up."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from tests.support.supervised_launch import Launch, Queue, quickly
from tuner.devices import CpuCores
from tuner.devices.lock import Holder
from tuner.errors import TunerError
from tuner.launch import Outcome, supervisor
from tuner.launch.child import EarlyWorkers
from tuner.worker.process import FRESH_PROCESS


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    quickly(monkeypatch)


def test_a_worker_that_somebody_stops_is_started_again_however_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "MAX_RESTARTS", 2)
    launch = Launch(Queue(budget=4), tmp_path, script="kill -TERM $$")

    def filled(launch: Launch) -> None:
        if launch.starts() == 4:
            launch.queue.finished = 4

    assert launch.run(filled) is Outcome.FILLED
    assert launch.starts() >= 4


def test_a_broken_device_is_given_up_however_much_the_others_finish(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Else its workers would be started again for ever."""
    monkeypatch.setattr(supervisor, "MAX_RESTARTS", 3)
    until = f"while [ ! -e {tmp_path}/over ]; do sleep 0.02; done"
    broken = f'case "$*" in *"--cores 1 "*) exit 1;; *) {until};; esac'
    queue = Queue(budget=10**9, of=lambda worker: 7 if "-cpu0-" in worker else 0)
    launch = Launch(queue, tmp_path, devices=2, script=broken)

    def progress(launch: Launch) -> None:
        queue.finished += 1
        if "is not started again" in caplog.text or launch.starts(1) > 3:
            (tmp_path / "over").touch()
            queue.finished = queue.budget

    assert launch.run(progress) is Outcome.FILLED
    assert (launch.starts(0), launch.starts(1)) == (1, 3)


def test_a_launch_says_who_keeps_its_worker_waiting_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    holder = Holder(pid=12, host="here", born="1.0")
    monkeypatch.setattr(
        supervisor, "stopped_holder", lambda names: holder if names == ("cpu-core-0",) else None
    )
    Launch(Queue(budget=4, finished=4), tmp_path, devices=2).run()
    said = [
        record.getMessage()
        for record in caplog.records
        if "wait for its device" in record.getMessage()
    ]
    assert said == [f"the worker on CPU core 0 will have to wait for its device: {holder}"]


def test_a_worker_that_dies_after_results_of_its_own_is_started_again_however_often(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervisor, "MAX_RESTARTS", 2)
    launch = Launch(Queue(budget=100, of=lambda worker: 1), tmp_path, script="exit 1")

    def filled(launch: Launch) -> None:
        if launch.starts() == 5:
            launch.queue.finished = 100

    assert launch.run(filled) is Outcome.FILLED
    assert launch.starts() >= 5


@pytest.mark.parametrize(("results", "given_up"), [(1, True), (2, False)])
def test_a_device_that_loses_its_context_in_every_first_trial_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, results: int, given_up: bool
) -> None:
    """That trial has a result, which says so: it is no sign of life. Another one beside it is."""
    monkeypatch.setattr(supervisor, "MAX_RESTARTS", 3)
    launch = Launch(
        Queue(budget=100, of=lambda worker: results),
        tmp_path,
        script=f"echo lost; exit {FRESH_PROCESS}",
    )

    def filled(launch: Launch) -> None:
        if launch.starts() == 6:
            launch.queue.finished = 100

    with (
        pytest.raises(TunerError, match="could not be kept alive: lost")
        if given_up
        else contextlib.nullcontext()
    ):
        launch.run(filled)
    assert (launch.starts() == 3) is given_up


def test_what_a_dead_worker_had_computed_is_delivered_before_its_work_is_taken_back(
    tmp_path: Path,
) -> None:
    """After it, its result would not count."""
    done: list[str] = []

    class Told(Queue):
        def reap(self, *, worker: str | None = None, state: str = "lost") -> int:
            done.extend(["taken back"] if worker is not None else [])
            return 0

    def delivered() -> None:
        done.append("delivered")
        queue.finished = 4

    queue = Told(budget=4)
    launch = Launch(queue, tmp_path, script="kill -KILL $$", deliver=delivered)
    assert launch.run() is Outcome.FILLED
    assert launch.starts() == 1
    assert done[:2] == ["delivered", "taken back"]


def test_the_first_worker_is_the_one_that_waits_and_the_next_a_new_one(tmp_path: Path) -> None:
    queue = Queue(budget=1)
    early = EarlyWorkers(
        devices=[CpuCores((0,))],
        command=["/bin/sh", "-c", 'read names; echo "works at $names"; exit 1'],
        options=[],
        environment={},
        log_folder=tmp_path,
    )
    launch = Launch(queue, tmp_path, early=early)

    def finish(launch: Launch) -> None:
        if launch.starts():
            queue.finished = 1

    with early:
        assert launch.run(finish) is Outcome.FILLED
    (log,) = tmp_path.glob("worker-*")
    assert log.read_text().splitlines() == ["works at small", "started"]
