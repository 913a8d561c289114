"""The processes of `pytest -n N` as forks of one that has imported what the tests need.

Started as a Python of its own, each would import torch, Optuna and other libraries for ten seconds
before it knows which tests there are, and so would the process in which its commands run
(`forked_cli.py`). Here one process imports them, and is gone once all have been forked; each of
those forks has the process for its commands forked before it does anything.
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

import pytest
from _pytest.assertion import rewrite

from tests.support import fork_server, forked_cli, forks
from tests.support.forks import Nursery
from tests.support.paths import REPOSITORY

# Not neuralforecast: it imports Ray, which reads at once who may talk to its clusters, for good.
_IMPORTED = (
    *fork_server.IMPORTED,
    "alembic.command",
    "darts.models.forecasting.tsmixer_model",
    "sklearn.ensemble",
    "tuner.api",
)


@contextlib.contextmanager
def forked() -> Iterator[None]:
    """The processes that execnet starts meanwhile are forks, children of this process."""
    ours, theirs = forks.ends()
    parent = subprocess.Popen(
        [sys.executable, "-m", "tests.support.forked_suite", str(theirs.fileno())],
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


def rewrite_asserts(config: pytest.Config) -> None:
    """Have each test's file compiled once, as pytest does it, while libraries are imported: in a
    fresh checkout each process would compile all of them."""
    if sys.dont_write_bytecode:
        return
    state = config.stash[rewrite.assertstate_key]
    for file in (REPOSITORY / "tests").rglob("*.py"):
        if not file.name.startswith("test_"):
            continue
        folder = rewrite.get_cache_dir(file)
        cached = folder / f"{file.stem}{rewrite.PYC_TAIL}"
        if rewrite._read_pyc(file, cached) is None and rewrite.try_makedirs(folder):
            hashed, code = rewrite._rewrite_test(file, config)
            rewrite._write_pyc(state, code, hashed, cached)


def _serve(requests: socket.socket) -> None:
    """Fork for each request, until there will be none."""
    # What is imported stays: a garbage collector would look through it again and again.
    gc.disable()
    fork_server.import_all(_IMPORTED)
    gc.collect()
    gc.freeze()
    gc.enable()
    while True:
        forks.serve(requests, _become)


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
    _serve(socket.socket(fileno=int(sys.argv[1])))
