"""A file is there whole or not at all; a full disk is known whoever reports it."""

from __future__ import annotations

import errno
import os
import resource
import signal
import sqlite3
from pathlib import Path

import pytest
from optuna.exceptions import StorageInternalError
from sqlalchemy.exc import OperationalError

from tuner.files.durable import is_full, put, read_regular, replacing, write_durably


def test_a_file_is_replaced_whole_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "new" / "one"
    write_durably(path, b"first")
    write_durably(path, b"second")
    assert path.read_bytes() == b"second"
    assert [each.name for each in path.parent.iterdir()] == ["one"]
    assert path.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("failing", ["fsync", "write"])
def test_a_write_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    path = tmp_path / "one"
    write_durably(path, b"first")

    def fail(*_: object, **_more: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if failing == "fsync":
        monkeypatch.setattr(os, "fsync", fail)
    else:
        monkeypatch.setattr("tempfile.NamedTemporaryFile", fail)
    with pytest.raises(OSError) as raised:
        write_durably(path, b"second")
    monkeypatch.undo()
    assert is_full(raised.value)
    assert path.read_bytes() == b"first"
    assert [each.name for each in tmp_path.iterdir()] == ["one"]


def test_a_file_that_is_written_bit_by_bit_is_moved_into_place_at_its_end(tmp_path: Path) -> None:
    path = tmp_path / "one"
    with replacing(path) as file:
        file.write(b"first")
        assert not path.exists()
    with pytest.raises(KeyError):
        replace_and_fail(path)
    assert path.read_bytes() == b"first"
    assert path.stat().st_mode & 0o777 == 0o644
    assert [each.name for each in tmp_path.iterdir()] == ["one"]


def replace_and_fail(path: Path) -> None:
    with replacing(path) as file:
        file.write(b"second")
        raise KeyError


def test_only_plain_files_of_a_fitting_size_are_read(tmp_path: Path) -> None:
    (tmp_path / "plain").write_bytes(b"12345")
    (tmp_path / "link").symlink_to(tmp_path / "plain")
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    assert read_regular(tmp_path / "plain", at_most=5) == b"12345"
    with pytest.raises(ValueError, match="more than the 4"):
        read_regular(tmp_path / "plain", at_most=4)
    for name in ("link", "pipe", "folder", "absent"):
        with pytest.raises((OSError, ValueError)):
            read_regular(tmp_path / name, at_most=5)


def test_a_full_disk_is_known_whoever_reports_it() -> None:
    full = sqlite3.OperationalError("database or disk is full")
    ours = OperationalError("INSERT", {}, full)
    optunas = StorageInternalError("An exception is raised during the commit.")
    optunas.__cause__ = ours
    assert is_full(ours)
    assert is_full(optunas)
    assert is_full(OSError(errno.EDQUOT, "quota"))
    postgres = Exception(
        'could not extend file "base/5/2": No space left on device\nHINT:  Check free disk space.'
    )
    assert is_full(OperationalError("INSERT", {}, postgres))
    assert not is_full(
        OperationalError("INSERT", {}, sqlite3.OperationalError("database is locked"))
    )
    assert not is_full(OSError(errno.EIO, "broken"))


def test_a_file_that_cannot_be_written_whole_stays_what_it_was(tmp_path: Path) -> None:
    """As on a disk that is full: no file of this process may be larger than that."""
    path = tmp_path / "one"
    put(path, b"first")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match="too large"):
            put(path, b"2" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)
    assert path.read_bytes() == b"first"
    assert [each.name for each in tmp_path.iterdir()] == ["one"]


def test_a_link_leads_to_what_is_written_and_a_pipe_takes_it(tmp_path: Path) -> None:
    path, link, pipe = tmp_path / "one", tmp_path / "link", tmp_path / "pipe"
    path.write_bytes(b"first")
    link.symlink_to(path)
    put(link, b"second")
    assert link.is_symlink()
    assert path.read_bytes() == b"second"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    put(pipe, b"third")
    assert os.read(reader, 10) == b"third"
    with replacing(pipe) as file:
        file.write(b"fourth")
    assert os.read(reader, 10) == b"fourth"
    os.close(reader)
    assert pipe.is_fifo()
    nameless, end = os.pipe()
    put(Path(f"/dev/fd/{end}"), b"as /dev/stdout")
    assert os.read(nameless, 20) == b"as /dev/stdout"
    os.close(nameless)
    os.close(end)
    round_and_round = tmp_path / "round"
    round_and_round.symlink_to(round_and_round)
    with pytest.raises(OSError, match="symbolic links"):
        put(round_and_round, b"fifth")
    assert round_and_round.is_symlink()


def test_a_name_as_long_as_a_name_can_be_has_room_for_its_temporary_file(tmp_path: Path) -> None:
    path = tmp_path / ("n" * 255)
    put(path, b"first")
    assert path.read_bytes() == b"first"
