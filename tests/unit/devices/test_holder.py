"""Who waits for a device is told for whom, and what to do when that process was stopped."""

from __future__ import annotations

import json
import logging
import os
import platform
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tuner.devices import exclusive, lock
from tuner.devices.lock import Holder, holder_of, noted

PATIENCE_S = 60.0
HOLD = """
import sys
from tuner.devices import exclusive
with exclusive(["gpu-a"]):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(lock, "POLL_S", 0.01)
    monkeypatch.setenv("TUNER_LOCK_DIR", str(tmp_path / "locks"))
    return lock.lock_folder()


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process, which holds the device."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        env={**os.environ, "TUNER_LOCK_DIR": str(tmp_path / "locks")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.communicate()


def told(names: list[str], count: int, on_told: dict[int, object] | None = None) -> list[str]:
    """What `exclusive` says until it has said so much; after each, what `on_told` holds is done."""
    said: list[str] = []
    deadline = time.monotonic() + PATIENCE_S

    def waiting(who: Holder | None) -> None:
        said.append(str(who))
        action = (on_told or {}).get(len(said))
        if callable(action):
            action()

    def give_up() -> bool:
        assert time.monotonic() < deadline, said
        return len(said) >= count

    with exclusive(names, give_up=give_up, waiting=waiting) as held:
        assert not held
    return said


def stop(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)


def test_who_waits_is_told_for_whom_and_again_when_that_process_was_stopped(
    holder: subprocess.Popen[str],
) -> None:
    running, stopped = told(["gpu-a"], 2, {1: lambda: stop(holder)})
    user = psutil.Process().username()
    assert running == f"process {holder.pid} of {user} has it"
    assert stopped == (
        f"{running}, and is stopped: kill -CONT {holder.pid} lets it go on, "
        f"kill -KILL {holder.pid} ends it"
    )
    found = lock.stopped_holder(["gpu-b", "gpu-a"])
    assert found is not None
    assert found.pid == holder.pid
    holder.kill()  # which works on a stopped process too, and frees what it holds
    with exclusive(["gpu-a"]) as held:
        assert held
        assert lock.stopped_holder(["gpu-a"]) is None


def test_a_holder_that_runs_is_nobodys_obstacle(holder: subprocess.Popen[str]) -> None:
    assert lock.stopped_holder(["gpu-a"]) is None


def test_a_note_lasts_as_long_as_the_device_is_held(folder: Path) -> None:
    with exclusive(["gpu-a", "gpu-b"]):
        assert lock.holder_among(["gpu-b"]) == Holder.this_process()
    assert lock.holder_among(["gpu-b", "gpu-a"]) is None
    assert (folder / "gpu-b.holder").read_bytes() == b""


def test_a_worker_logs_for_whom_it_waits_and_louder_where_that_will_not_end(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    says = lock.logs_waiting("GPU 0")
    says(Holder.this_process())
    monkeypatch.setattr(psutil.Process, "status", lambda self: psutil.STATUS_STOPPED)
    says(Holder.this_process())
    says(None)
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING", "INFO"]
    assert caplog.records[2].getMessage() == "waiting for GPU 0: another process has it"


def test_who_waits_long_is_told_again_from_time_to_time(
    holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock, "AGAIN_S", 0.02)
    first, *again = told(["gpu-a"], 3)
    assert again == [first, first]


def test_a_process_of_another_container_or_machine_is_named_as_such() -> None:
    """Its number may be that of a process here, which was born at another time."""
    elsewhere = Holder(os.getpid(), "gpu7", "12.34")
    assert (
        str(elsewhere)
        == f"process {os.getpid()} on gpu7 has it, in another container or on another machine"
    )
    assert not elsewhere.is_stopped
    assert Holder.this_process().host == platform.node()


def test_what_no_tuner_wrote_says_nothing_and_hinders_nobody(tmp_path: Path) -> None:
    """All users may write into the folder."""
    there, outside = tmp_path / "there", tmp_path / "outside"
    there.mkdir()
    outside.write_text("somebody's")
    os.mkfifo(there / "pipe")
    (there / "link").symlink_to(outside)
    (there / "second-name").hardlink_to(outside)
    (there / "folder").mkdir()
    written = {
        "words": "not JSON",
        "list": json.dumps([1, 2]),
        "number": '{"pid": 1e999, "host": "a", "born": ""}',
        "below": '{"pid": -1, "host": "a", "born": ""}',
        "escape": json.dumps({"pid": os.getpid(), "host": "\x1b[2J", "born": "1.0"}),
    }
    for name, content in written.items():
        (there / name).write_text(content)
    folder = os.open(there, os.O_RDONLY)
    for path in there.iterdir():
        before = path.lstat().st_mode
        assert holder_of(folder, path.name) is None, path
        with noted(folder, path.name):
            pass
        assert path.lstat().st_mode == before
    assert outside.read_text() == "somebody's"
    assert holder_of(folder, "none") is None
    os.close(folder)
