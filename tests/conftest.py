"""Fixtures for the whole suite: what it finds does not depend on where it runs, when, and beside
what."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import shutil
import signal
import sys
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import hypothesis
import pytest

from tests.support import forked_suite, forks
from tests.support.memory_folder import memory_folder
from tests.support.paths import REPOSITORY

# Read when torch is imported, which is after this. Two threads that wait for each other crawl as
# soon as anything else runs on their cores, and here something always does: another part of the
# suite.
os.environ["OMP_NUM_THREADS"] = "1"
# Workers that tests launch have both cores. Their threads sleep while they wait: by turning round
# instead they would burn twice what they compute.
os.environ["OMP_WAIT_POLICY"] = "PASSIVE"

if (
    sys.__stdin__ is None
):  # closed, as some schedulers start a job: IPython asks it for its encoding
    sys.__stdin__ = Path(os.devnull).open(encoding="utf-8")  # type: ignore[misc]  # noqa: SIM115 - for as long as the tests run

# What would steer tuner, a database driver or the look of what is printed, in the shell of whoever
# runs the suite; some of it is read when rich and typer are imported.
_KEPT = ("TUNER_DATA_DIR", "TUNER_TEST_", "TUNER_SCREENSHOTS")
_COLOURS = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR", "PY_COLORS", "TTY_", "GITHUB_ACTIONS")
_STEERING = ("TUNER_", "PG", "COLUMNS", "LINES", *_COLOURS)
for _name in list(os.environ):
    if _name.startswith(_STEERING) and not _name.startswith(_KEPT):
        del os.environ[_name]

# Every result is written to disk before anybody hears of it, and here thousands are: the suite
# would wait for the disk half of its time. What waits for what stays the same in memory.
_MEMORY = memory_folder(os.environ)
if _MEMORY is not None:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MEMORY))

# What runs in a shell's background ignores Ctrl-C, and so would everything that the suite starts
# and then interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# How long an example takes says what else the machine does, nothing of the code.
_UNHURRIED = hypothesis.settings(
    max_examples=25, deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.register_profile("explore", _UNHURRIED)
hypothesis.settings.register_profile("repeat", _UNHURRIED, derandomize=True, database=None)
hypothesis.settings.load_profile("repeat" if os.environ.get("CI") else "explore")


@pytest.hookimpl(wrapper=True)
def pytest_sessionstart(session: pytest.Session) -> Generator[None]:
    """With `-n`, the processes are forks of one that has imported what the tests need."""
    distributes = session.config.pluginmanager.hasplugin("dsession") and forks.available()
    with forked_suite.forked() if distributes else contextlib.nullcontext():
        if distributes:
            forked_suite.rewrite_asserts(session.config)
        yield


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported meanwhile stays: a garbage collector would look through it again and
    again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests first: a long one that is begun last keeps one process busy and all
    others waiting."""
    slow = {item.path for item in items if item.get_closest_marker("slow") is not None}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="module", autouse=True)
def _frozen() -> None:
    """What is there when a file begins stays: a garbage collector that looks through torch, and
    through what other files left, takes a third of a second each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def _surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A user cache and a folder of device locks of our own; no proxy between this machine and
    itself."""
    # Not beneath pytest's own folder: sockets are made here, whose paths may have a hundred
    # characters.
    temporary = Path(tempfile.mkdtemp(prefix="tuner-tests-", dir=_MEMORY))
    temporary.chmod(0o755)  # PostgreSQL runs as another user
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("user-cache")))
        if (
            "TRITON_CACHE_DIR" not in os.environ
        ):  # a folder that is named is shared: compiling takes minutes on a GPU
            patch.setenv("TRITON_CACHE_DIR", str(temporary / "triton"))
        patch.setenv("TMPDIR", str(temporary))
        patch.setenv("TUNER_LOCK_DIR", str(temporary / "tuner-device-locks"))
        patch.setattr(tempfile, "tempdir", None)
        for name in ("no_proxy", "NO_PROXY"):
            patch.setenv(name, "127.0.0.1,localhost")
        yield
    shutil.rmtree(temporary, ignore_errors=True)


@pytest.fixture(autouse=True)
def _seeded() -> None:
    """Whoever draws without a seed of its own draws the same every time, whatever ran before."""
    random.seed(0)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.manual_seed(0)


@pytest.fixture
def one_core() -> Iterator[None]:
    """Threads that wait for each other crawl where something else runs on their cores."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    yield
    os.sched_setaffinity(0, cores)


@pytest.fixture(scope="session")
def etth_dir() -> Path:
    """Folder with ETTh1.csv and ETTh2.csv: TUNER_DATA_DIR, else ../shared/data beside the
    repository."""
    named = os.environ.get("TUNER_DATA_DIR")
    folder = Path(named) if named else REPOSITORY.parent / "shared" / "data"
    if not (folder / "ETTh1.csv").is_file() or not (folder / "ETTh2.csv").is_file():
        pytest.skip(
            f"no ETTh1.csv and ETTh2.csv in {folder}; name their folder with TUNER_DATA_DIR"
        )
    return folder
