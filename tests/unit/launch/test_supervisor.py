"""The supervisor while budgets change and workers die: workers are short commands, the queue is
made up."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tuner.devices import CpuCores
from tuner.devices.holder import Holder
from tuner.errors import TunerError
from tuner.launch import Outcome, Supervisor, supervisor
from tuner.launch.early import EarlyWorkers, no_early_workers
from tuner.storage.records import Counts
from tuner.worker.heartbeat import FRESH_PROCESS


@dataclass
class Queue:
    """A study's ledger and roster: how many trials are planned and finished, and whose results
    those were."""

    budget: int
    finished: int = 0
    asked: int = 0
    of: Callable[[str], int] = lambda worker: 0
    on_ask: Callable[[Queue], None] = lambda queue: None

    def counts(self) -> Counts:
        self.asked += 1
        self.on_ask(self)
        return Counts(self.budget, 0, self.finished)

    def reap(self, *, worker: str | None = None, state: str = "lost") -> int:
        return 0

    def results(self, worker: str) -> int:
        return self.of(worker)

    def leave(self, worker: str) -> None:
        """Nobody is listed here."""


@dataclass
class Study:
    ledger: Queue
    name: str = "small"

    @property
    def roster(self) -> Queue:
        return self.ledger


@dataclass
class Launch:
    """A supervisor whose workers run `script`, which hears nothing of the queue."""

    queue: Queue
    folder: Path
    script: str = "exit 0"
    devices: int = 1
    deliver: Callable[[], object] = lambda: None
    ticks: int = 0
    started: list[str] = field(default_factory=list)
    early: EarlyWorkers = field(default_factory=no_early_workers)

    def run(self, on_tick: Callable[[Launch], None] = lambda launch: None) -> Outcome:
        def tick() -> None:
            self.ticks += 1
            on_tick(self)

        return Supervisor(
            studies=[Study(self.queue)],
            devices=[CpuCores((core,)) for core in range(self.devices)],
            worker_options=["--"],
            environment={},
            log_folder=self.folder,
            worker_command=["/bin/sh", "-c", f"echo started; {self.script}"],
            deliver=self.deliver,
            early=self.early,
        ).run(tick)

    def starts(self, core: int = 0) -> int:
        return sum(
            log.read_text().count("started") for log in self.folder.glob(f"worker-*-cpu{core}.log")
        )


@pytest.fixture(autouse=True)
def _quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "POLL_S", 0.01)
    monkeypatch.setattr(supervisor, "REAP_S", 0.02)
    monkeypatch.setattr(supervisor, "FIRST_PAUSE_S", 0.01)


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
