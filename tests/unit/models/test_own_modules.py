"""A process that keeps to a file of the user's own has it as it was."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from tuner.errors import UsageError
from tuner.models.own_modules import EditedError, keep_to_file, module_from_file


def sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def write(path: Path, number: int) -> str:
    path.write_text(f"NUMBER = {number}\n" * number, encoding="utf-8")  # Python looks at the size
    return sha256(path)


@pytest.fixture
def net(tmp_path: Path) -> Path:
    return tmp_path / "net.py"


def test_it_is_what_it_was_whatever_lies_there_later(net: Path) -> None:
    first = write(net, 1)
    keep_to_file(f"{net}:Net", first)
    write(net, 2)
    keep_to_file(f"{net}:Net", first)
    assert module_from_file(str(net)).NUMBER == 1
    net.unlink()
    assert module_from_file(str(net)).NUMBER == 1


def test_who_keeps_to_nothing_has_it_as_it_is(net: Path) -> None:
    write(net, 1)
    keep_to_file(f"{net}:Net", None)
    keep_to_file("package.module:Net", "0" * 64)
    assert module_from_file(str(net)).NUMBER == 1
    write(net, 2)
    assert module_from_file(str(net)).NUMBER == 2


def test_a_study_of_another_file_at_that_path_has_its_own(net: Path) -> None:
    keep_to_file(f"{net}:Net", write(net, 1))
    keep_to_file(f"{net}:Net", write(net, 2))
    assert module_from_file(str(net)).NUMBER == 2


def test_one_that_is_another_by_then_is_not_imported(net: Path) -> None:
    first = write(net, 1)
    net.write_text("raise RuntimeError\n", encoding="utf-8")
    with pytest.raises(EditedError, match=r"net.py is no longer the file .*; restore it"):
        keep_to_file(f"{net}:Net", first)
    net.unlink()
    with pytest.raises(UsageError, match="cannot be read"):
        keep_to_file(f"{net}:Net", first)
