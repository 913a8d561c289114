"""No worker outlives its supervisor, not even one that was stopped and can hear no signal."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from tests.support.cli_processes import wait_for
from tests.support.forked_cli import python_path
from tests.support.paths import SCRIPTS

SCRIPT = SCRIPTS / "orphan_worker.py"


def test_a_worker_whose_supervisor_is_killed_ends_also_when_it_was_stopped(tmp_path: Path) -> None:
    note = tmp_path / "worker"
    # In a session of its own: in the suite's, whoever inherits the worker may be a link of its
    # group to the session.
    supervisor = subprocess.Popen(
        [sys.executable, str(SCRIPT)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": python_path()},
        start_new_session=True,
    )
    worker = None
    try:
        number = wait_for(lambda: note.exists() and note.read_text(), "the worker's start")
        worker = psutil.Process(int(number))
        worker.suspend()
        wait_for(lambda: stopped_wholly(worker), "the worker to be stopped")
        supervisor.send_signal(signal.SIGKILL)
        supervisor.wait()
        wait_for(lambda: gone(worker), "the worker's end")
    finally:
        supervisor.kill()
        supervisor.wait()
        if worker is not None:
            with contextlib.suppress(psutil.NoSuchProcess):
                worker.kill()


def stopped_wholly(process: psutil.Process) -> bool:
    """Each of its threads is: before that the kernel does not take it for stopped."""
    threads = Path(f"/proc/{process.pid}/task").glob("*/stat")
    states = [stat.read_text().rpartition(")")[2].split()[0] for stat in threads]
    return set(states) == {"T"}


def gone(process: psutil.Process) -> bool:
    """Ended, also where nobody has asked for its exit code."""
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True
