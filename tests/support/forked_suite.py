"""The processes of `pytest -n N` as forks of one that has imported what the tests need.

Started as a Python of its own, each would import torch, Optuna and other libraries for ten seconds
before it knows which tests there are, and so would the process in which its commands run
(`forked_cli.py`). Here one process imports them, and the tests, and is gone once all have been
forked; each of those forks has the process for its commands forked before it does anything.
"""

from __future__ import annotations

import contextlib
import gc
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from tests.support import fork_server, forked_cli, forks
from tests.support.forks import Nursery

# Not neuralforecast: it imports Ray, which reads at once who may talk to its clusters, for good.
_IMPORTED = (
    *fork_server.IMPORTED,
    "alembic.command",
    "darts.models",
    "sklearn.ensemble",
    "tuner.api",
)


@contextlib.contextmanager
def forked(paths: Sequence[str]) -> Iterator[None]:
    """The processes that execnet starts meanwhile are forks, children of this process, and find the
    tests of `paths` imported."""
    ours, theirs = forks.ends()
    parent = subprocess.Popen(
        [sys.executable, "-m", "tests.support.forked_suite", str(theirs.fileno()), *paths],
        env={**os.environ, "PYTHONPATH": forked_cli.python_path()},
        pass_fds=(theirs.fileno(),),
    )
    theirs.close()
    plain = subprocess.Popen
    subprocess.Popen = forks.popen_of(  # type: ignore[misc, assignment]
        Nursery(ours), [sys.executable, "-u", "-c"]
    )
    try:
        yield
    finally:
        subprocess.Popen = plain  # type: ignore[misc]
        ours.close()  # upon which it ends
        parent.wait()


def _serve(requests: socket.socket, paths: Sequence[str]) -> None:
    """Fork for each request, until there will be none."""
    # What is imported stays: a garbage collector would look through it again and again.
    gc.disable()
    fork_server.import_all(_IMPORTED)
    _import_tests(paths)
    gc.collect()
    gc.freeze()
    gc.enable()
    while True:
        forks.serve(requests, _become)


def _import_tests(paths: Sequence[str]) -> None:
    """As each fork would. Of what was not imported whole nothing is left: it says so there."""
    unfit: set[Path] = set()

    class Collected:
        def pytest_collectreport(self, report: pytest.CollectReport) -> None:
            if not report.passed:
                unfit.add(Path(report.nodeid.partition("::")[0]).absolute())

    with (
        Path(os.devnull).open("w") as nothing,
        contextlib.redirect_stdout(nothing),
        contextlib.redirect_stderr(nothing),
    ):
        words = ["--collect-only", "-qqq", "-p", "no:cacheprovider", *paths]
        pytest.main(words, plugins=[Collected()])
    for name, module in list(sys.modules.items()):
        file = Path(getattr(module, "__file__", None) or os.devnull)
        if not unfit.isdisjoint((file, *file.parents)):
            del sys.modules[name]


def _become(words: Sequence[str], folder: str, environment: Mapping[str, str]) -> None:
    """Run `python -u -c WORDS` in this process, and end it."""
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    fork_server.prepare()
    sys.argv = ["-c", *words[1:]]
    fork_server.open_streams()
    exec(words[0], {"__name__": "__main__", "__builtins__": __builtins__})
    sys.exit()


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2:])
