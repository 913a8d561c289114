"""Commands without the wait: each is a fork of a process that has imported everything already.

Starting Python and importing torch, pandas and Optuna takes about three seconds, the command itself
a tenth of one. A fork has its own arguments, environment, folder, affinity and output, and nothing
else has run in it; the workers of a launch are forks as well (`forks.py`). Other tests start
`python -m tuner` itself, as people do: all that interrupt a launch or look at its
processes.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import io
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support import fork_server, forks
from tests.support.forks import Nursery
from tests.support.paths import REPOSITORY

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
    merged.setdefault("TUNER_LOCK_DIR", f"{merged['TMPDIR']}/tuner-device-locks")
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


def run_here(
    *arguments: str, folder: Path, environment: Mapping[str, str | None] | None = None
) -> Done:
    """The same in this process, for what starts no other and prints through Python alone: a tenth
    of a second less."""
    from tuner.cli.run import run as run_command

    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", newline="") for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name in set(os.environ) - set(given(environment)):
            patch.delenv(name)
        for name, value in given(environment).items():
            patch.setenv(name, value)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                code = run_command(list(arguments))
            except SystemExit as ended:
                code = ended.code if isinstance(ended.code, int) else 0
    said = []
    for stream in (out, err):
        stream.flush()
        said.append(stream.buffer.getvalue().decode())
    return Done(code, *said)


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


class _WarmProcess:
    """The one that forks."""

    def __init__(self) -> None:
        process, lines, answers, requests = fork_server.prepared() or self._started()
        self._process = process
        self._lines = os.fdopen(lines, "w")
        self._answers = os.fdopen(answers)
        self.popen: type[subprocess.Popen[str]] = forks.popen_of(
            Nursery(socket.socket(fileno=requests))
        )
        atexit.register(self.close)

    @staticmethod
    def _started() -> tuple[int, int, int, int]:
        environment = {**os.environ, "PYTHONPATH": python_path(), "OMP_NUM_THREADS": "1"}
        ours, theirs = forks.ends()
        lines, answers = os.pipe(), os.pipe()
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.support.fork_server", str(theirs.fileno())],
            stdin=lines[0],
            stdout=answers[1],
            env=environment,
            pass_fds=(theirs.fileno(),),
        )
        theirs.close()
        for descriptor in (lines[0], answers[1]):
            os.close(descriptor)
        process.returncode = 0  # it is waited for by its number
        return process.pid, lines[1], answers[0], ours.detach()

    def run(self, command: Mapping[str, Any]) -> int:
        self._lines.write(json.dumps(command) + "\n")
        self._lines.flush()
        answer = self._answers.readline()
        assert answer, f"the process that runs commands ended with {self._wait()}"
        code: int = json.loads(answer)
        return code

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._lines.close()
        with contextlib.suppress(ChildProcessError):
            self._wait()

    def _wait(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self._process, 0)[1])


@functools.cache
def _warm_process() -> _WarmProcess:
    return _WarmProcess()
