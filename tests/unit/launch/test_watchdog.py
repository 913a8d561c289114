"""A worker without a sign of life is killed, however busy its other threads look."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.stopped_clock import StoppedClock
from tuner.devices import CpuCores
from tuner.files.child import ChildProcess, Lines
from tuner.launch import child
from tuner.launch.child import EPOCHS, FIRST_LIMIT_S, FLOOR_S, Child, Watchdog
from tuner.worker.process import IDLE, TRAINER, Beat, Heartbeat

PATIENCE_S = 120


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> StoppedClock:
    """The watchdog's time, which stands still."""
    stopped = StoppedClock(1000.0)
    monkeypatch.setattr(child, "time", stopped)
    return stopped


@pytest.fixture
def process() -> Iterator[ChildProcess]:
    with ChildProcess("a worker", ["sleep", "600"]) as started:
        yield started


class Line:
    """A worker's end of a heartbeat, and the watch over it."""

    def __init__(self, dog: Watchdog, process: ChildProcess) -> None:
        listening, self.beating = os.pipe()
        self.heartbeat = Heartbeat(self.beating)
        self.watched = Child(CpuCores((0,)), Path(os.devnull), process)
        self.watched.lines = Lines(listening, "CPU core 0")
        dog.watch(self.watched)


def test_the_limit_follows_what_the_worker_is_at() -> None:
    dog = Watchdog()
    assert dog.limit_of(Beat("starting")) == dog.limit_of(Beat("database")) == FIRST_LIMIT_S
    assert dog.limit_of(Beat("waiting")) == FLOOR_S
    assert dog.limit_of(Beat("training", 0.1)) == FLOOR_S
    assert dog.limit_of(Beat("training", 60.0)) == 60.0 * EPOCHS
    given = Watchdog(limit_s=5.0)
    assert given.limit_of(Beat("starting")) == FIRST_LIMIT_S
    assert [given.limit_of(Beat(phase)) for phase in ("database", "waiting", "training")] == [
        5.0
    ] * 3
    assert given.limit_of(Beat("training", 2.0)) == 20.0


def test_a_silent_worker_is_killed_and_a_beating_one_is_not(
    process: ChildProcess, clock: StoppedClock
) -> None:
    dog = Watchdog()
    line = Line(dog, process)
    line.heartbeat.new_trial()
    line.heartbeat.training(0.2)
    clock.now += FLOOR_S + 1
    dog.look()  # the beats are read first
    assert not line.watched.killed
    clock.now += FLOOR_S
    dog.look()
    assert not line.watched.killed
    clock.now += 1
    dog.look()
    assert process.popen.wait(PATIENCE_S) == -signal.SIGKILL
    assert line.watched.killed


@pytest.mark.parametrize("hangs", [False, True])
def test_a_trainer_is_watched_beside_its_worker_and_not_while_it_waits_for_it(
    process: ChildProcess, clock: StoppedClock, caplog: pytest.LogCaptureFixture, hangs: bool
) -> None:
    """The worker lives on, and says so: that tells nothing of the process that trains for it."""
    dog = Watchdog()
    line = Line(dog, process)
    trainer = Heartbeat(line.beating, source=TRAINER)
    trainer.phase(IDLE)
    if hangs:
        trainer.training(0.2)
    for _ in range(3):
        line.heartbeat.phase("waiting")
        dog.look()
        clock.now += FLOOR_S / 2 + 1
    dog.look()
    assert line.watched.killed == hangs
    assert ("the trainer on CPU core 0 hangs" in caplog.text) == hangs


def test_a_stopped_worker_is_killed_too(
    process: ChildProcess, clock: StoppedClock, caplog: pytest.LogCaptureFixture
) -> None:
    process.popen.send_signal(signal.SIGSTOP)
    dog = Watchdog(limit_s=30.0)
    line = Line(dog, process)
    line.heartbeat.phase("set-up")
    dog.look()
    clock.now += 31.0
    dog.look()
    assert process.popen.wait(PATIENCE_S) == -signal.SIGKILL
    assert (
        "the worker on CPU core 0 hangs: no life sign for 31 s (limit 30 s), "
        "last at: set-up; it is killed" in caplog.text
    )


def test_a_longest_epoch_is_a_trials_own(process: ChildProcess) -> None:
    dog = Watchdog()
    line = Line(dog, process)
    for seconds in (3.0, 30.0, 3.0):
        line.heartbeat.training(seconds)
    dog.look()
    assert line.watched.beat == Beat("training", 30.0)
    line.heartbeat.new_trial()
    line.heartbeat.training(3.0)
    dog.look()
    assert line.watched.beat == Beat("training", 3.0)


def test_noise_and_torn_lines_are_life_signs_without_meaning(
    process: ChildProcess,
) -> None:
    dog = Watchdog()
    line = Line(dog, process)
    os.write(
        line.beating, Beat("training", 1.0).to_line() + b'nonsense\n{"a": 1}\n["x", []]\n["wai'
    )
    dog.look()
    assert line.watched.beat == Beat("training", 1.0)
    os.write(line.beating, b'ting", 0, "worker"]\n')
    dog.look()
    assert line.watched.beat == Beat("waiting", 0.0)


def test_a_supervisor_that_does_not_read_blocks_nobody(process: ChildProcess) -> None:
    line = Line(Watchdog(), process)
    for _ in range(10_000):
        line.heartbeat.phase("waiting")


def test_a_supervisor_that_is_gone_blocks_nobody() -> None:
    listening, beating = os.pipe()
    heartbeat = Heartbeat(beating)
    os.close(listening)
    heartbeat.phase("waiting")
    assert heartbeat.pipe is None
    os.close(beating)


def test_the_dog_looks_by_itself_and_closes_what_it_was_given(
    process: ChildProcess,
) -> None:
    with Watchdog(limit_s=0.05, look_s=0.01) as dog:
        line = Line(dog, process)
        line.heartbeat.new_trial()
        assert process.popen.wait(PATIENCE_S) == -signal.SIGKILL
        assert line.watched.lines is not None
        pipe = line.watched.lines.pipe
    assert line.watched.lines is None
    with pytest.raises(OSError):
        os.fstat(pipe)
