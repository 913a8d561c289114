"""Whose lock files keep each other out."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.devices import CpuCores, host
from tuner.devices.host import NAME, lock_domain
from tuner.devices.lock import DeviceLockError, lock_folder


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TUNER_LOCK_DIR", str(tmp_path / "locks"))
    return lock_folder()


def test_all_processes_that_see_a_folder_are_one_domain() -> None:
    code = "from tuner.devices.host import lock_domain; print(lock_domain())"
    others = [
        subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    told = {other.communicate()[0].strip() for other in others}
    assert told == {lock_domain()}


def test_another_folder_is_another_domain_also_where_it_was_copied(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = lock_domain()
    copy = tmp_path / "image"
    copy.mkdir()
    shutil.copytree(folder, copy / folder.name)
    (copy / folder.name).chmod(0o1777)
    monkeypatch.setenv("TUNER_LOCK_DIR", str(copy / folder.name))
    assert (lock_folder() / NAME).read_bytes() == (folder / NAME).read_bytes()
    assert lock_domain() != here


def test_a_folder_that_was_cleaned_up_is_another_domain(folder: Path) -> None:
    before = lock_domain()
    shutil.rmtree(folder)
    assert lock_domain() != before


def test_what_somebody_else_wrote_into_its_file_is_drawn_anew(folder: Path) -> None:
    lock_domain()
    (folder / NAME).write_text("../../etc/passwd")
    assert len(lock_domain()) == 64
    assert len((folder / NAME).read_bytes()) == 32


def test_a_link_in_its_place_is_one_line(folder: Path, tmp_path: Path) -> None:
    lock_domain()
    (folder / NAME).unlink()
    (folder / NAME).symlink_to(tmp_path / "target")
    with pytest.raises(DeviceLockError, match="remove it, if need be as root: rm"):
        lock_domain()
    assert not (tmp_path / "target").exists()


def test_cores_are_called_by_the_kernel_that_runs_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    boot = host.BOOT_ID.read_text().strip()
    keys = CpuCores((2, 5)).lease_keys
    assert keys == (f"cpu-{boot}-core-2", f"cpu-{boot}-core-5")
    monkeypatch.setattr(platform, "node", lambda: "a-pod")
    assert CpuCores((2, 5)).lease_keys == keys
    monkeypatch.setattr(host, "BOOT_ID", tmp_path / "none")
    assert CpuCores((2,)).lease_keys == ("cpu-a-pod-core-2",)
