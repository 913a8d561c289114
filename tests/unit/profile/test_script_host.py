"""A process that forks for each run of a script: what ends with it, and what a run cannot do."""

from __future__ import annotations

import json
import os
import signal
import textwrap
import time
from pathlib import Path

import psutil

from tuner.profile.script_changes import Changes
from tuner.profile.script_profile import ORDER, Order, Script, ScriptHost


def order(folder: Path, text: str) -> Path:
    """One for a script of this text, whose answer goes beside it."""
    script, path = folder / "script.py", folder / "order.json"
    script.write_text(textwrap.dedent(text), encoding="utf-8")
    script_ran = Script(path=script, arguments=(), steps=9)
    wanted = Order(script=script_ran, changes=Changes(), answer=folder / "answer.json")
    path.write_bytes(ORDER.dump_json(wanted))
    return path


def test_what_ends_badly_ends_alone_and_what_lasts_too_long_is_ended(tmp_path: Path) -> None:
    before = len(list(Path("/proc/self/fd").iterdir()))
    with ScriptHost() as host:
        assert host.run(order(tmp_path, "import os; os.kill(os.getpid(), 11)")) == -11
        assert host.run(order(tmp_path, "import os; os._exit(7)")) == 7
        slow = """
        import pathlib, subprocess, time
        child = subprocess.Popen(["sleep", "60"])
        pathlib.Path(__file__).with_name("child").write_text(str(child.pid))
        time.sleep(60)
        """
        began = time.monotonic()
        assert host.run(order(tmp_path, slow), within_s=3.0) is None
        assert time.monotonic() - began < 30
        child = int((tmp_path / "child").read_text())
        deadline = (
            time.monotonic() + 10
        )  # it was killed with its group, and dies when it has its turn
        while _lives(child):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert not (tmp_path / "answer.json").exists()
        # Nothing of what came before is left in a later run's process.
        alone = "import sys; assert 'child' not in globals(); raise SystemExit(sys.stdin.read())"
        assert host.run(order(tmp_path, alone)) == 0
        answer = json.loads((tmp_path / "answer.json").read_text())
        assert answer["failure"] == "it ended: SystemExit"  # an empty text: nothing was to be read
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def _lives(process: int) -> bool:
    try:
        return bool(psutil.Process(process).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_runs_end_with_whoever_asked_for_them(tmp_path: Path) -> None:
    path = order(
        tmp_path,
        "import os, pathlib, time\n"
        "pathlib.Path(__file__).with_name('pid').write_text(str(os.getpid()))\ntime.sleep(60)",
    )
    asking = os.fork()
    if asking == 0:
        with ScriptHost() as host:
            host.run(path)
        os._exit(0)
    try:
        pid = tmp_path / "pid"
        deadline = time.monotonic() + 120
        while not (pid.exists() and pid.read_text()) and time.monotonic() < deadline:
            time.sleep(0.05)
        running = psutil.Process(int(pid.read_text()))
    finally:
        os.kill(asking, signal.SIGKILL)
        os.waitpid(asking, 0)
    assert running.wait(timeout=10) is None
