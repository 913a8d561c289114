"""The suite keeps its files in memory only where nothing else becomes of them there."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support import memory_folder as tested
from tests.support.memory_folder import memory_folder


def test_a_folder_with_room_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tested, "ENOUGH", 1)
    assert memory_folder({}, tmp_path) == tmp_path


def test_a_temporary_folder_that_was_named_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tested, "ENOUGH", 1)
    assert memory_folder({"TMPDIR": "/elsewhere"}, tmp_path) is None


def test_one_that_is_not_there_or_too_small_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert memory_folder({}, tmp_path / "missing") is None
    monkeypatch.setattr(tested, "ENOUGH", 1 << 60)
    assert memory_folder({}, tmp_path) is None


def test_one_from_which_no_program_can_be_loaded_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tested, "ENOUGH", 1)
    shut = SimpleNamespace(f_flag=os.ST_NOEXEC, f_bavail=1 << 30, f_frsize=4096)
    monkeypatch.setattr(os, "statvfs", lambda folder: shut)
    assert memory_folder({}, tmp_path) is None
