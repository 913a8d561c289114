from __future__ import annotations

import itertools
import os
import signal
import time
from types import FunctionType

import pytest

from tests.support.interruptions import interrupted
from tuner.cli import foreground
from tuner.cli.foreground import stopped_by_signals
from tuner.launch import Outcome, StopRequests


def test_a_signal_that_follows_at_once_is_the_first_one_still() -> None:
    """As where Slurm tells each process of a job, and the job's shell passes it on."""
    stop = StopRequests()
    with stopped_by_signals(stop):
        for _ in range(3):
            os.kill(os.getpid(), signal.SIGTERM)
        assert (stop.first, stop.urgent) == (Outcome.TERMINATED, False)
        os.kill(os.getpid(), signal.SIGINT)  # nobody passes that on: somebody pressed Ctrl-C
        assert stop.urgent


def test_ctrl_c_that_a_container_follows_up_is_one_request() -> None:
    """As of `docker compose up`: the terminal tells all processes, and compose then ends them."""
    stop = StopRequests()
    with stopped_by_signals(stop):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        assert (stop.first, stop.urgent) == (Outcome.INTERRUPTED, False)


def test_a_later_one_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    stop = StopRequests()
    monkeypatch.setattr(foreground, "PASSED_ON_S", 0.01)
    with stopped_by_signals(stop):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)
        assert stop.urgent
    hurried = StopRequests()
    with stopped_by_signals(hurried):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        assert (hurried.first, hurried.urgent) == (Outcome.INTERRUPTED, True)


def test_one_that_comes_while_the_first_is_noted_is_the_first_one_still() -> None:
    """At whichever instruction of the handler: a cluster's own and that which its shell passes on
    are a millisecond apart.
    """

    def terminate() -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    for instruction in itertools.count():
        stop = StopRequests()
        with stopped_by_signals(stop):
            handler = signal.getsignal(signal.SIGTERM)
            assert isinstance(handler, FunctionType)
            came = interrupted(terminate, instruction, terminate, {handler.__code__})
            assert (stop.first, stop.urgent) == (Outcome.TERMINATED, False), instruction
        if not came:
            break
    assert instruction > 5, "no handler is that short"
