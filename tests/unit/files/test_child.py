"""What holds for every child process: what it finds, how it is heard, and that it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tuner.files import child
from tuner.files.child import ChildError, ChildProcess, SilentError, ran

PATIENCE_S = 60.0
STUBBORN = "trap '' TERM; echo ready; sleep 600 & wait; wait"


def python(text: str, **options: Any) -> ChildProcess:
    return ChildProcess("the child", [sys.executable, "-c", text], **options)


def shell(text: str, **options: Any) -> ChildProcess:
    return ChildProcess("the child", ["/bin/sh", "-c", text], asked=True, **options)


def lives(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def wait_until(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


ANSWERS = """
import os
from tuner.files.child import Orders
orders = Orders({parent})
print("a library prints this")
for order in orders:
    orders.answer({{"pid": os.getpid(), "heard": order}})
"""


def test_it_is_told_and_answers_whatever_else_is_printed() -> None:
    with (
        tempfile.TemporaryFile() as log,
        python(ANSWERS.format(parent=os.getpid()), told=True, asked=True, log=log) as running,
    ):
        for order in ({"first": 1}, ["second"]):
            running.say(order)
            heard = running.hear(PATIENCE_S)
            assert heard == {"pid": running.popen.pid, "heard": order}
        assert running.runs
    assert not running.runs


def test_it_ends_with_its_parent_however_that_dies() -> None:
    script = (
        "import os, sys\n"
        "from tuner.files.child import ChildProcess\n"
        f"text = {ANSWERS!r}.format(parent=os.getpid())\n"
        "running = ChildProcess('it', [sys.executable, '-c', text], told=True, asked=True)\n"
        "running.say(1)\n"
        "print(running.hear()['pid'], flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    wait_until(lambda: not lives(int(done.stdout)))


def test_one_whose_parent_is_gone_already_does_nothing() -> None:
    done = ran([sys.executable, "-c", ANSWERS.format(parent=-1)], given="1\n")
    assert (done.code, done.printed) == (143, "")


def test_the_databases_secrets_are_not_in_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = ("TUNER_STORAGE", "PGPASSWORD", "PGPASSFILE", "PGSERVICEFILE")
    for name in (*secrets, "PGHOST"):
        monkeypatch.setenv(name, "secret")
    names = ran(["env"]).printed
    assert "PGHOST=secret" in names.splitlines()
    assert not [name for name in secrets if f"{name}=" in names]


def test_how_it_ended_is_one_line_with_its_last_words() -> None:
    with tempfile.TemporaryFile() as log:
        with shell("echo first >&2; echo tuner: error: no room >&2; exit 3", log=log) as running:
            with pytest.raises(ChildError) as raised:
                running.hear(PATIENCE_S)
            assert str(raised.value) == "the child ended with exit code 3: no room"
        with (
            shell("yes | head -c 9000 >&2; echo at last >&2; kill -9 $$", log=log) as running,
            pytest.raises(ChildError, match=r"was ended by SIGKILL; the kernel does .*: at last$"),
        ):
            running.hear(PATIENCE_S)
    with (
        shell("exit 3") as running,
        pytest.raises(ChildError, match=r"exit code 3; what it said last stands above$"),
    ):
        running.hear(PATIENCE_S)


def test_one_that_has_ended_cannot_be_told_anything() -> None:
    with shell("exit 3", told=True) as running:
        running.popen.wait(PATIENCE_S)
        with pytest.raises(ChildError, match="the child ended with exit code 3"):
            running.say({})


@pytest.mark.parametrize("grace_s", [0.0, 0.2])
def test_it_and_its_group_end_in_time_although_they_ignore_sigterm(grace_s: float) -> None:
    running = shell(STUBBORN)
    assert running.lines.next(PATIENCE_S) == b"ready"
    wait_until(lambda: bool(psutil.Process(running.popen.pid).children()))
    (started,) = psutil.Process(running.popen.pid).children()
    began = time.monotonic()
    running.end(grace_s)
    assert grace_s <= time.monotonic() - began < 10.0
    assert running.code == -signal.SIGKILL
    wait_until(lambda: not lives(started.pid))


def test_it_may_end_by_itself_when_it_is_asked_to(tmp_path: Path) -> None:
    running = shell(f"trap 'echo > {tmp_path}/asked; exit 5' TERM; echo ready; sleep 600 & wait")
    assert running.lines.next(PATIENCE_S) == b"ready"
    running.end(PATIENCE_S)
    assert running.code == 5
    assert (tmp_path / "asked").exists()


def test_a_line_that_is_no_json_is_named_in_one_line() -> None:
    with (
        shell("echo 'not so'; sleep 600") as running,
        pytest.raises(ChildError, match=r"^the child said 'not so', which is no line of JSON$"),
    ):
        running.hear(PATIENCE_S)


def test_a_huge_line_is_refused() -> None:
    with (
        shell("yes | tr -d '\\n'") as running,
        pytest.raises(ChildError, match=r"^the child said a line of more than 1 MiB$"),
    ):
        running.hear(PATIENCE_S)


def test_who_says_nothing_in_time_is_named() -> None:
    with shell("sleep 600") as running:
        with pytest.raises(SilentError, match=r"^the child was not done after 0 s$"):
            running.hear(0.1)
        assert running.lines.came() == []
        assert running.runs


def test_what_came_is_taken_line_by_line_and_half_a_line_waits_for_its_rest() -> None:
    with shell("printf '1\\n2\\n3'; read go; echo 4", told=True) as running:
        assert [running.lines.next(PATIENCE_S) for _ in range(2)] == [b"1", b"2"]
        assert running.lines.came() == []
        running.say("go")
        assert running.lines.next(PATIENCE_S) == b"34"
        assert running.lines.next(PATIENCE_S) is None
        assert running.lines.ended


def test_a_command_is_run_to_its_end() -> None:
    done = ran(["/bin/sh", "-c", "cat; echo why >&2; exit 2"], given="hello")
    assert (done.code, done.printed, done.said, done.last_words()) == (2, "hello", "why\n", "why")


def test_a_command_that_takes_too_long_ends_with_all_that_it_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(child, "GRACE_S", 0.2)
    pid = tmp_path / "pid"
    text = f"trap '' TERM; sleep 600 & echo $! > {pid}; wait; wait"
    with pytest.raises(SilentError, match=r"^/bin/sh did not answer within 1 s$"):
        ran(["/bin/sh", "-c", text], within_s=1.0)
    wait_until(lambda: not lives(int(pid.read_text())))


def test_one_that_is_not_there_says_so() -> None:
    with pytest.raises(FileNotFoundError):
        ran(["/no/such/command"])


def test_a_child_is_itself_and_no_other() -> None:
    """A launch looks for the one that ended among all that it has started."""
    with shell("exit 3") as first, ChildProcess("the child", ["/bin/sh", "-c", "exit 3"]) as second:
        children = [first, second]
        assert (first in children, second in children) == (True, True)
        children.remove(second)
        assert children == [first]
        assert first != second
