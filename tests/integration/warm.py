"""Commands without the wait: each is a fork of a process that has imported everything already.

Starting Python and importing torch, pandas and Optuna takes about three seconds, the command itself
a tenth of one. A fork has its own arguments, environment, folder, affinity and output, and nothing
else has run in it; the workers of a launch are forks as well (`nursery.py`). Other tests start
`python -m tuner` itself, as people do: `real`, and all that interrupt a launch or look at its
processes.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import nursery
from nursery import Nursery, OwnNursery

REPOSITORY = Path(__file__).resolve().parents[2]
PATIENCE_S = 240.0
IMPORTED = (
    "optuna.storages",
    "pandas",
    "plotly.graph_objects",
    "psycopg",
    "rich.live",
    "torch",
    "torch._dynamo",  # which the first optimiser asks for
    "tuner.cli.app",
    "tuner.export",
    "tuner.launch",
    "tuner.trial.run",
    "tuner.report.terminal",
    "tuner.worker",
)
SUPERVISED = "--supervised-by"
_PR_SET_NAME = 15
_NOT_INHERITED = ("TUNER_", "PG", "CUDA_VISIBLE_DEVICES")


@dataclass(frozen=True, slots=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def lines(self) -> list[str]:
        return [line for line in self.err.splitlines() if line.strip()]

    @property
    def error(self) -> str:
        """The one line that says what went wrong, after `tuner: error: `; other lines may only be
        notices."""
        assert "Traceback" not in self.err, self.err
        lines = self.err.splitlines()
        assert lines, f"nothing on stderr, exit code {self.code}, stdout {self.out!r}"
        assert all(line.startswith("tuner: ") for line in lines), self.err
        errors = [line for line in lines if line.startswith("tuner: error: ")]
        assert errors == lines[-1:], self.err
        return errors[0].removeprefix("tuner: error: ")


def given(environment: Mapping[str, str | None] | None = None) -> dict[str, str]:
    """The environment of a command: ours without what would steer tuner, and `environment` (None
    takes away)."""
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith(_NOT_INHERITED)
    }
    ours = {
        "PYTHONPATH": python_path(),
        "OMP_NUM_THREADS": "1",
        "COLUMNS": "200",
        "TMPDIR": _own_folder(),
    }
    merged = {**inherited, **ours, **(environment or {})}
    return {name: value for name, value in merged.items() if value is not None}


def python_path() -> str:
    """For a process that is to import tuner, too: what this one was given stays, dependencies may
    come from there."""
    given = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return os.pathsep.join(dict.fromkeys([str(REPOSITORY), *filter(None, given)]))


@functools.cache
def _own_folder() -> str:
    """For temporary files, device locks among them: whatever else runs on this machine must not
    make us wait."""
    folder = tempfile.mkdtemp(prefix="tuner-tests-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def run(
    *arguments: str,
    folder: Path,
    environment: Mapping[str, str | None] | None = None,
    cores: Sequence[int] | None = None,
) -> Done:
    """Run `tuner ARGUMENTS` in `folder`, on `cores`, or else on those that this process may use
    now."""
    with tempfile.TemporaryDirectory(prefix="tuner-output-") as output:
        out, err = Path(output, "out"), Path(output, "err")
        code = _warm_process().run(
            {
                "arguments": arguments,
                "folder": str(folder),
                "environment": given(environment),
                "cores": sorted(os.sched_getaffinity(0)) if cores is None else list(cores),
                "out": str(out),
                "err": str(err),
            }
        )
        return Done(code, out.read_text(), err.read_text())


def start(
    *arguments: str, folder: Path, environment: Mapping[str, str], cores: Sequence[int]
) -> subprocess.Popen[str]:
    """Start `tuner ARGUMENTS` in `folder` on `cores`, a child of this process with its output in
    pipes."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        return _warm_process().popen(
            [sys.executable, "-m", "tuner", *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        os.sched_setaffinity(0, before)


def popen() -> type[subprocess.Popen[str]]:
    """What starts `python -m tuner` as a fork, a child of this process, and all else as ever."""
    return _warm_process().popen


def real(
    *arguments: str, folder: Path, environment: Mapping[str, str | None] | None = None
) -> Done:
    """The same with a Python of its own, from the start."""
    done = subprocess.run(
        [sys.executable, "-m", "tuner", *arguments],
        cwd=folder,
        env=given(environment),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )
    return Done(done.returncode, done.stdout, done.stderr)


class _WarmProcess:
    """The one that forks."""

    def __init__(self) -> None:
        environment = {**os.environ, "PYTHONPATH": python_path(), "OMP_NUM_THREADS": "1"}
        ours, theirs = nursery.ends()
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            pass_fds=(theirs.fileno(),),
        )
        theirs.close()
        self.popen: type[subprocess.Popen[str]] = nursery.popen_of(Nursery(ours))
        atexit.register(self.close)

    def run(self, command: Mapping[str, Any]) -> int:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the process that runs commands ended with {self._process.wait()}"
        code: int = json.loads(answer)
        return code

    def close(self) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process.wait()


@functools.cache
def _warm_process() -> _WarmProcess:
    return _WarmProcess()


def _serve(requests: socket.socket) -> None:
    """Fork for each line on standard input, answering with the exit code, and for each request of a
    child."""
    import importlib

    for module in IMPORTED:
        importlib.import_module(module)
    while True:
        ready, _, _ = select.select([0, requests], [], [])
        if requests in ready:
            nursery.serve(requests, _end_as)
        if 0 in ready:
            line = _line()
            if not line:
                return
            command = json.loads(line)
            pid = os.fork()
            if pid == 0:
                _become(command)
            print(_exit_code(pid), flush=True)


def _line() -> bytes:
    """The next one, and nothing of what comes after it."""
    line = b""
    while not line.endswith(b"\n") and (byte := os.read(0, 1)):
        line += byte
    return line


def _exit_code(pid: int) -> int:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > deadline:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.005)


def _become(command: Mapping[str, Any]) -> None:
    """Turn this fork into the command; never returns."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    for target, source in enumerate(
        [nothing, os.open(command["out"], flags), os.open(command["err"], flags)]
    ):
        os.dup2(source, target)
    os.sched_setaffinity(0, command["cores"])
    _end_as(command["arguments"], command["folder"], command["environment"])


def _end_as(words: Sequence[str], folder: str, environment: Mapping[str, str]) -> None:
    """Run `tuner WORDS` in this process, and end it with the exit code."""
    has_children = words[:1] in (["launch"], ["verify"]) and nursery.available()
    children = OwnNursery(_end_as) if has_children else None
    if SUPERVISED in words:
        _call_itself(f"of-{words[words.index(SUPERVISED) + 1]}")
    code = 70
    try:
        os.chdir(folder)
        os.environ.clear()
        os.environ.update(environment)
        time.tzset()
        tempfile.tempdir = None  # it remembers the TMPDIR of before
        sys.argv = ["tuner", *words]
        _open_streams()
        if children is not None:
            children.adopt()
        from tuner.cli import main

        main()
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0
    except BaseException:  # noqa: BLE001 - as Python ends with an uncaught exception
        sys.excepthook(*sys.exc_info())
        code = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        if children is not None:
            children.close()
        os._exit(code)


def _open_streams() -> None:
    """The standard ones anew: those of before remember whether what they wrote to was a file."""
    sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - it lives as long as the process
    sys.stdout = open(1, "w", encoding="utf-8", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", encoding="utf-8", closefd=False, buffering=1)  # noqa: SIM115


def _call_itself(name: str) -> None:
    """What a list of processes shows, for its command line is still that of the process it was
    forked from."""
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
