"""What a worker does when it is told to stop, and told again."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType

import pytest

from tests.support.interruptions import interrupted
from tuner.worker import process
from tuner.worker.process import StopFlag


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_same_signal_said_twice_at_once_is_one_and_lets_the_trial_be_handed_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As the kernel does when a supervisor with several threads is killed."""
    monkeypatch.setattr(process, "SAME_SIGNAL_S", 3600.0)
    stop = StopFlag()
    received = process.stop_on_signals(stop)
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGTERM)
    assert stop.is_set()
    assert received == [signal.SIGTERM]


def test_what_its_supervisor_passes_on_late_takes_no_checkpoint_from_a_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As Slurm does on a busy node: it tells each process of a job, and so does the job's shell."""
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.setattr(process, "SAME_SIGNAL_S", -1.0)
    stop = StopFlag()
    received = process.stop_on_signals(stop, supervised=True)
    for _ in range(3):
        os.kill(os.getpid(), signal.SIGTERM)
    assert stop.is_set()
    assert (received, ended) == ([signal.SIGTERM], [])


def test_a_second_signal_ends_the_worker_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.setattr(process, "SAME_SIGNAL_S", -1.0)
    process.stop_on_signals(StopFlag())
    os.kill(os.getpid(), signal.SIGTERM)
    assert ended == []
    os.kill(os.getpid(), signal.SIGINT)
    assert ended == [130]


def test_a_signal_ends_a_wait_at_whichever_instruction_it_comes() -> None:
    """A lock that the wait holds just then must not be what its handler waits for, in the same
    thread, for ever.
    """

    def hangs(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"signal {number} in {frame}")

    before = signal.signal(signal.SIGALRM, hangs)
    try:
        for instruction in itertools.count():
            flag = StopFlag()
            signal.alarm(5)
            came = interrupted(lambda: flag.wait(0.05), instruction, flag.set)  # noqa: B023
            signal.alarm(0)
            assert flag.is_set() is came
            if not came:
                break
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
    assert instruction > 5, "no wait is that short"


def test_a_wait_lasts_its_time_or_until_it_is_over() -> None:
    flag = StopFlag()
    began = time.monotonic()
    assert flag.wait(0.1) is False
    assert time.monotonic() - began >= 0.1
    timer = threading.Timer(0.05, flag.set)
    timer.start()
    assert flag.wait(60.0) is True
    assert time.monotonic() - began < 30.0
    timer.join()
