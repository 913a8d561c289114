"""Makes one fault at a time in a copy of the repository, and sees whether a test notices.

    .venv/bin/python tests/mutations/run.py [--kind WORD] [--name WORD] [--wide] [--jobs N]

For each fault of `mutations.toml` it prints by which test it was noticed, and after how long, or
that it survived. The tests that the fault names come first, then those that import what is changed,
from the cheapest folder to the dearest; with `--wide` a survivor is tried against every test of the
folders of its package. At the end each test that noticed something is run without any fault: one
that fails then has noticed nothing. The exit code is 1 where a fault survived, or a test fails by
itself.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import functools
import importlib
import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
MUTATIONS = Path(__file__).with_name("mutations.toml")
FOLDERS = ("tests/unit", "tests/interpreted", "tests/integration")
"""From the cheapest to the dearest."""
LIBRARIES = (
    *("moocore", "optuna.storages", "optuna.samplers", "pandas", "plotly.graph_objects", "psycopg"),
    *("rich.live", "scipy.stats", "sqlalchemy.orm", "sqlalchemy.dialects.sqlite", "torch"),
    *("torch._dynamo", "hypothesis", "typer", "pydantic", "psutil", "safetensors.torch", "pytest"),
)
AT_MOST_S = 900.0
"""Of one run of pytest; what takes longer hangs, which is noticed, too."""
PASSED, FAILED, NOTHING_TO_RUN = 0, 1, 5
"""Exit codes of pytest."""
_FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?(?:::[^\n]*?)?)(?: - .*)?$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """A fault: `old`, which occurs once in `file`, becomes `new`.

    Attributes:
        name: what is wrong then, in words.
        kind: of which part of the product's promise.
        file: below the repository.
        tests: files of tests that are run first.
    """

    name: str
    kind: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = ()

    @property
    def module(self) -> str:
        """The module's dotted name."""
        return self.file.removesuffix(".py").replace("/", ".")

    def problem(self, repository: Path) -> str | None:
        """Why it cannot be made there, in one line; None where it can."""
        found = (repository / self.file).read_text().count(self.old)
        if found != 1:
            return f"{self.name}: its text is {found} times in {self.file}; expected once"
        if self.old == self.new:
            return f"{self.name}: it changes nothing"
        missing = [each for each in self.tests if not (repository / each).is_file()]
        return f"{self.name}: there is no {missing[0]}" if missing else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What became of a fault: the test that noticed it, None for a survivor, and the seconds."""

    name: str
    kind: str
    by: str | None
    seconds: float


def read(path: Path = MUTATIONS) -> tuple[Mutation, ...]:
    """All faults, in the order of the file."""
    found = []
    for each in tomllib.loads(path.read_text())["mutation"]:
        each["tests"] = tuple(each.get("tests", ()))
        found.append(Mutation(**each))
    return tuple(found)


def stages(mutation: Mutation, repository: Path, *, wide: bool) -> Iterator[list[str]]:
    """Files of tests, a run of pytest each, every file once."""
    seen: set[str] = set(mutation.tests)
    if mutation.tests:
        yield list(mutation.tests)
    names = _names_of(mutation.module)
    for folder in FOLDERS:
        importing = [
            path
            for path in sorted((repository / folder).rglob("test_*.py"))
            if names.search(path.read_text())
        ]
        yield from _fresh(importing, repository, seen)
    if wide:
        package = mutation.file.split("/")[1]
        for folder in FOLDERS:
            whole = repository / folder / package
            yield from _fresh(sorted(whole.rglob("test_*.py")), repository, seen)


def _names_of(module: str) -> re.Pattern[str]:
    """What a file says that imports the module."""
    package, _, own = module.rpartition(".")
    wanted = rf"{re.escape(module)}\b|from {re.escape(package)} import [^\n]*\b{own}\b"
    return re.compile(wanted)


def _fresh(paths: Sequence[Path], repository: Path, seen: set[str]) -> Iterator[list[str]]:
    files = [str(path.relative_to(repository)) for path in paths]
    new = [file for file in files if file not in seen]
    seen.update(new)
    if new:
        yield new


def copied(into: Path) -> None:
    """The files of the checkout, as they are now, without what git ignores."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(listing, cwd=REPOSITORY, check=True, capture_output=True, text=True)
    for name in filter(None, listed.stdout.split("\0")):
        if (REPOSITORY / name).is_file():
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(REPOSITORY / name, into / name)


def import_libraries() -> None:
    """What tests need beside the package itself: each run is a fork of a process that has it."""
    os.environ |= {"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    for name in LIBRARIES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def pytest(files: Sequence[str], folder: Path, *more: str) -> tuple[int | None, str]:
    """The exit code, None where it ran for too long, and what was printed."""
    with tempfile.TemporaryFile() as printed:
        pid = os.fork()
        if pid == 0:
            _become([*more, *files], folder, printed.fileno())
        code, deadline = None, time.monotonic() + AT_MOST_S
        while code is None and time.monotonic() < deadline:
            ended, status = os.waitpid(pid, os.WNOHANG)
            code = os.waitstatus_to_exitcode(status) if ended else None
            time.sleep(0.05)
        if code is None:
            os.killpg(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        printed.seek(0)
        return code, printed.read().decode(errors="replace")


def _become(words: Sequence[str], folder: Path, output: int) -> None:
    """Be pytest in that folder, in a process group of its own."""
    code = 70  # a failure of this function's own
    try:
        os.setsid()
        for stream in (1, 2):
            os.dup2(output, stream)
        os.chdir(folder)
        os.environ |= {"PYTHONPATH": str(folder), "CI": "1"}
        sys.path.insert(0, str(folder))
        main = importlib.import_module("pytest").main
        code = int(main(["-q", "-p", "no:cacheprovider", "--tb=no", *words]))
        sys.stdout.flush()
    finally:
        os._exit(code)


def judged(mutation: Mutation, folder: Path, *, wide: bool) -> Found:
    """Make the fault in the copy, run tests until one notices, and put the file back.

    Raises:
        RuntimeError: the tests could not be run.
    """
    path = folder / mutation.file
    before, began = path.read_text(), time.monotonic()
    path.write_text(before.replace(mutation.old, mutation.new))
    by = None
    try:
        for files in stages(mutation, folder, wide=wide):
            code, said = pytest(files, folder, "-x")
            if code is None:
                by = f"{files[0]} and {len(files) - 1} more (they hang)"
                break
            if code not in (PASSED, FAILED, NOTHING_TO_RUN) and not _FAILED.search(said):
                raise RuntimeError(f"{mutation.name}: pytest ended with {code}: {said[-2000:]}")
            if code not in (PASSED, NOTHING_TO_RUN):
                found = _FAILED.search(said)
                by = found[1] if found else files[0]
                break
    finally:
        path.write_text(before)
    seconds = time.monotonic() - began
    return Found(name=mutation.name, kind=mutation.kind, by=by, seconds=round(seconds, 1))


def all_judged(
    mutations: Sequence[Mutation], folders: Sequence[Path], *, wide: bool
) -> list[Found]:
    """In the order of the file; each copy serves one fault at a time."""
    context = multiprocessing.get_context("fork")
    free: multiprocessing.SimpleQueue[Path] = context.SimpleQueue()
    for folder in folders:
        free.put(folder)
    found = []
    # Not the pool of multiprocessing, whose processes may have no children of their own.
    with concurrent.futures.ProcessPoolExecutor(
        len(folders), context, initializer=_TAKEN.append, initargs=(free,)
    ) as pool:
        for each in pool.map(functools.partial(_judged_in_turn, wide=wide), mutations):
            word = "SURVIVED" if each.by is None else f"killed by {each.by}"
            print(f"{each.seconds:6.1f} s  {each.kind}: {each.name}: {word}", flush=True)
            found.append(each)
    return found


_TAKEN: list[multiprocessing.SimpleQueue[Path]] = []
"""In a process of the pool: where the copies are that nobody uses."""


def _judged_in_turn(mutation: Mutation, *, wide: bool) -> Found:
    folder = _TAKEN[0].get()
    try:
        return judged(mutation, folder, wide=wide)
    finally:
        _TAKEN[0].put(folder)


def main(words: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kind", default="", help="only kinds that hold this word")
    parser.add_argument("--name", default="", help="only faults whose name holds this word")
    parser.add_argument("--wide", action="store_true", help="try survivors against whole folders")
    parser.add_argument("--jobs", type=int, default=1, help="faults at a time")
    parser.add_argument("--json", type=Path, help="write what was found to this file")
    asked = parser.parse_args(words)
    chosen = [m for m in read() if asked.kind in m.kind and asked.name in m.name]
    problems = [problem for each in chosen if (problem := each.problem(REPOSITORY))]
    if problems or not chosen:
        print("\n".join(problems) or "there is no such fault", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="mutations-") as scratch:
        folders = [Path(scratch, str(number)) for number in range(max(1, asked.jobs))]
        for folder in folders:
            copied(folder)
        import_libraries()
        found = all_judged(chosen, folders, wide=asked.wide)
        killers = sorted({each.by for each in found if each.by and "::" in each.by})
        code, said = pytest(killers, folders[0]) if killers else (PASSED, "")
    if asked.json is not None:
        asked.json.write_text(json.dumps([asdict(each) for each in found], indent=1) + "\n")
    survived = [each.name for each in found if each.by is None]
    print(f"{len(found) - len(survived)} of {len(found)} were noticed")
    for name in survived:
        print(f"survived: {name}")
    for failed in _FAILED.findall(said) if code != PASSED else ():
        print(f"fails without any fault: {failed}")
    return int(bool(survived) or code != PASSED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
