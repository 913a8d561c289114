"""The process behind `forked_cli.py`: it imports everything, then forks for each command that it is
to run."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tests.support import forks, namespaces
from tests.support.forks import OwnNursery

PATIENCE_S = 240.0
IMPORTED = (
    "moocore",
    "optuna.storages",
    "pandas",
    "platformdirs.unix",
    "plotly.graph_objects",
    "psycopg",
    "rich.live",
    "scipy.stats",
    "sqlalchemy.dialects.sqlite",
    "torch",
    "torch._dynamo",  # which the first optimiser asks for
    "transformers.models.gpt2.modeling_gpt2",  # of .venv-libraries
    "tuner.cli.app",
    "tuner.cli.foreground",
    "tuner.cli.run",
    "tuner.data.proposal.proposed_task",
    "tuner.data.recent_rows",
    "tuner.estimate.driven",
    "tuner.export",
    "tuner.export.saved_model",
    "tuner.launch",
    "tuner.training.baselines.libraries",
    "tuner.training.baselines.plain",
    "tuner.trial.run",
    "tuner.trial.seeds_and_reruns",
    "tuner.training.one_step",
    "tuner.report.terminal",
    "tuner.report.terminal.live",
    "tuner.report.terminal.tables",
    "tuner.worker",
    "tuner.worker.process",
    "tuner.worker.trainer",
)
SUPERVISED = "--supervised-by"
PARENTS = [[name] for name in ("estimate", "launch", "retune", "verify", "worker")]
"""Commands whose children are forks, too."""
_PR_SET_NAME = 15
_PREPARED = "FORK_SERVER_OF_THE_TESTS"


def import_all(modules: Sequence[str]) -> None:
    """And have Optuna's tables looked through, and our commands put together and one of them read,
    for which typer imports more: else each fork would do it for itself."""
    for module in modules:
        with contextlib.suppress(ImportError):  # a test that needs it says so
            importlib.import_module(module)
    importlib.import_module("sqlalchemy.orm").configure_mappers()
    importlib.import_module("tuner.cli.app").whole().commands["doctor"].make_context("doctor", [])


def prepare() -> None:
    """Have a fork of this process answer, which has imported everything; `prepared` finds it."""
    lines, answers = os.pipe(), os.pipe()
    ours, theirs = forks.ends()
    pid = os.fork()
    if pid == 0:
        for target, source in enumerate((lines[0], answers[1])):
            os.dup2(source, target)
        for descriptor in (*lines, *answers, ours.fileno()):
            os.close(descriptor)
        gc.freeze()
        _answer(theirs)
        os._exit(0)
    for descriptor in (lines[0], answers[1], theirs.detach()):
        os.close(descriptor)
    found = (pid, lines[1], answers[0], ours.detach())
    os.environ[_PREPARED] = " ".join(map(str, found))


def prepared() -> tuple[int, int, int, int] | None:
    """Once, if there is one: its process, where it reads, where it writes, and where it forks."""
    said = os.environ.pop(_PREPARED, "")
    if not said:
        return None
    process, lines, answers, requests = map(int, said.split())
    return process, lines, answers, requests


def _serve(requests: socket.socket) -> None:
    """Fork for each line on standard input, answering with the exit code, and for each request of a
    child."""
    import_all(IMPORTED)
    # A fork's garbage collector would look through all of it, and copy each page that it looks at.
    gc.collect()
    gc.freeze()
    _answer(requests)


def _answer(requests: socket.socket) -> None:
    while True:
        ready, _, _ = select.select([0, requests.fileno()], [], [])
        if requests.fileno() in ready:
            forks.serve(requests, _end_as)
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
    """Run `tuner WORDS`, or `python WORDS` of a child, in this process, and end it with the exit
    code."""
    is_child = words[:1] in (["-m"], ["-c"])
    if SUPERVISED not in words and not is_child:
        namespaces.enter_if_asked(environment)
    has_children = words[:1] in PARENTS and forks.available()
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
        sys.dont_write_bytecode = bool(environment.get("PYTHONDONTWRITEBYTECODE"))
        sys.argv = ["tuner", *words]
        open_streams()
        if children is not None:
            children.adopt()
        if is_child:
            _run_python(*words)
        else:
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


def _run_python(how: str, what: str, *words: str) -> None:
    """As `python -m WHAT WORDS` or `python -c WHAT WORDS`."""
    sys.argv = [how, *words]
    if how == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        exec(what, {"__name__": "__main__"})


def open_streams() -> None:
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
