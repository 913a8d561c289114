"""A file that may only be read is read, with what others wrote last."""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.paths import REPOSITORY
from tuner.cli import main
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.open import open_study

EXPORT = str(REPOSITORY / "notebooks" / "data" / "original.json.gz")
READERS: dict[str, tuple[str, ...]] = {
    "status": ("status", "--json"),
    "best": ("best", "--variant", "rmsnorm", "--task", "demo", "--pick", "knee"),
    "compare": ("compare", "rmsnorm", "original", "--task", "demo"),
    "check": ("db", "check"),
}


@pytest.mark.parametrize("command", READERS)
def test_a_file_that_may_only_be_read_is_read(
    command: str, copied: Path, read_only: Callable[[Path], None], capfd: pytest.CaptureFixture[str]
) -> None:
    path = copied / "storage" / "tuner.db"
    read_only(path)
    with pytest.raises(SystemExit) as ended:
        main([*READERS[command], "--storage", f"sqlite:///{path}"])
    assert ended.value.code == 0, capfd.readouterr().err


def test_what_others_wrote_last_is_read_too(
    copied: Path, read_only: Callable[[Path], None]
) -> None:
    """It may be in the writers' log only, which lies beside the file."""
    path = copied / "storage" / "tuner.db"
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("UPDATE tuner_studies SET budget = 77")
        read_only(path)
        database = open_database(parse_url(f"sqlite:///{path}"), create=False)
        assert open_study(database, "demo-rmsnorm").ledger.counts().budget == 77
        database.close()


def test_what_writes_to_a_file_that_may_only_be_read_says_so(
    copied: Path, read_only: Callable[[Path], None], capfd: pytest.CaptureFixture[str]
) -> None:
    path = copied / "storage" / "tuner.db"
    read_only(path)
    with pytest.raises(SystemExit) as ended:
        main(["study", "import", EXPORT, "--name", "x", "--storage", f"sqlite:///{path}"])
    assert ended.value.code == 1
    assert (
        "this user may only read it: name a database that can be written" in capfd.readouterr().err
    )


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> Callable[[Path], None]:
    """Makes a file and its folder one that this process may only read, also where it is root's, who
    may all."""

    def forbid(path: Path) -> None:
        there = os.access
        below = path.parent
        monkeypatch.setattr(
            os,
            "access",
            lambda asked, mode, **more: (
                there(asked, mode, **more)
                and not (mode & os.W_OK and below in (asked, Path(asked).parent))
            ),
        )

    return forbid
