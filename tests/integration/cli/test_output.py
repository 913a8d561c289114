"""Where the output goes: to somebody who reads only its beginning, to nobody, or onto a disk that
is full."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.forked_cli import given
from tests.support.recorded_studies import RecordedDatabase

COMMANDS = {
    "a document": ("status", "--json"),
    "a long line after line": (
        "best",
        "--variant",
        "rmsnorm",
        "--task",
        "demo",
        "--pick",
        "knee",
        "--values",
        "single",
        "--format",
        "python",
    ),
}


def ended(
    *arguments: str, database: RecordedDatabase, stdout: int
) -> subprocess.CompletedProcess[str]:
    """A command with this standard output, in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "tuner", *arguments],
        cwd=database.path.parent,
        env=given({"TUNER_STORAGE": f"sqlite:///{database.path}"}),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("what", COMMANDS)
def test_a_reader_that_has_seen_enough_is_no_failure(
    what: str, recorded_database: RecordedDatabase
) -> None:
    reading, writing = os.pipe()
    os.close(reading)  # as `| head` does, only sooner
    try:
        done = ended(*COMMANDS[what], database=recorded_database, stdout=writing)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a device that is always full is needed")
def test_a_full_disk_is_one_line(recorded_database: RecordedDatabase) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    try:
        done = ended("status", database=recorded_database, stdout=full)
    finally:
        os.close(full)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 1
    assert line == "tuner: error: writing or reading failed: No space left on device"


def test_a_bare_environment_is_enough(recorded_database: RecordedDatabase) -> None:
    missing = {"HOME": None, "TERM": None, "LANG": None}
    done = subprocess.run(
        [sys.executable, "-m", "tuner", "status", "--json"],
        cwd=recorded_database.path.parent,
        env=given({"TUNER_STORAGE": f"sqlite:///{recorded_database.path}", **missing}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(json.loads(done.stdout)["studies"]) == len(recorded_database.studies)
