"""Where device locks are: one place for all users, and nothing that somebody planted there is used
or changed."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from tuner.cli import machine
from tuner.devices import common_files, exclusive, lock
from tuner.devices.lock import DeviceLockError, check_folder, lock_folder

ROOT = os.geteuid() == 0
as_root = pytest.mark.skipif(not ROOT, reason="makes folders of other users")


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A temporary folder as hosts have one."""
    base = tmp_path / "tmp"
    base.mkdir()
    base.chmod(0o1777)
    monkeypatch.delenv("TUNER_LOCK_DIR")
    monkeypatch.setattr(lock, "_TEMPORARY", (base,))
    monkeypatch.setattr(lock, "SYSTEM_FOLDER", tmp_path / "run" / "tuner-device-locks")
    monkeypatch.setattr(common_files, "_SOON_S", 0.02)
    return base


def of_the_doctor() -> tuple[str, str]:
    check = machine._locks()
    return check.level, check.detail


def refused() -> str:
    """The one line that each of them says."""
    with pytest.raises(DeviceLockError) as met:
        check_folder()
    with pytest.raises(DeviceLockError) as at_work, exclusive(["gpu"]):
        pytest.fail("it was used")
    assert str(at_work.value) == str(met.value)
    assert of_the_doctor() == ("error", str(met.value))
    assert "\n" not in str(met.value)
    return str(met.value)


def test_the_folder_is_made_open_to_all_and_the_doctor_says_so_before_and_after(base: Path) -> None:
    folder = base / "tuner-device-locks"
    assert of_the_doctor() == ("ok", f"in {folder}, which the first launch makes")
    assert not folder.exists()
    before = os.umask(0o077)
    try:
        check_folder()
    finally:
        os.umask(before)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o1777
    assert of_the_doctor() == ("ok", f"in {folder}, made by {common_files.user_name(os.geteuid())}")


def test_a_planted_link_is_neither_followed_nor_changed(base: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.mkdir(mode=0o700)
    (base / "tuner-device-locks").symlink_to(target)
    line = refused()
    assert f"{base}/tuner-device-locks is a link (of " in line
    assert f"'rm {base}/tuner-device-locks' removes it" in line
    assert "install -d -m 1777" in line
    assert stat.S_IMODE(target.stat().st_mode) == 0o700
    assert list(target.iterdir()) == []
    (base / "tuner-device-locks").unlink()
    check_folder()


def test_a_link_that_leads_nowhere_is_refused_as_well(base: Path, tmp_path: Path) -> None:
    (base / "tuner-device-locks").symlink_to(tmp_path / "nowhere")
    assert "is a link" in refused()
    assert not (tmp_path / "nowhere").exists()


def test_a_file_is_no_folder(base: Path) -> None:
    (base / "tuner-device-locks").write_text("mine")
    assert "is no folder" in refused()
    assert (base / "tuner-device-locks").read_text() == "mine"


def test_a_folder_where_others_may_replace_a_lock_is_refused(base: Path) -> None:
    folder = base / "tuner-device-locks"
    folder.mkdir()
    folder.chmod(0o777)
    line = refused()
    assert "mode 0777) lets others replace what lies in it" in line
    assert stat.S_IMODE(folder.stat().st_mode) == 0o777
    folder.chmod(0o1777)  # as the line says
    check_folder()


def test_a_folder_in_use_is_not_opened_to_all(base: Path) -> None:
    folder = base / "tuner-device-locks"
    folder.mkdir(mode=0o700)
    (folder / "mine").touch()
    check_folder()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert "not all users can write there" in of_the_doctor()[1]


@as_root
def test_a_folder_of_a_stranger_counts_only_where_it_is_open_to_all(base: Path) -> None:
    folder = base / "tuner-device-locks"
    folder.mkdir(mode=0o755)
    os.chown(folder, 12345, 12345)
    assert "belongs to user 12345 and is not open to all (mode 0755)" in refused()
    folder.chmod(0o1777)
    check_folder()
    assert of_the_doctor() == ("ok", f"in {folder}, made by user 12345")


def test_a_folder_that_cannot_be_made_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lock, "_TEMPORARY", (Path("/proc/self"),))
    with pytest.raises(
        DeviceLockError, match="no place for the device locks: cannot make /proc/self/tuner-device-"
    ):
        check_folder()
    monkeypatch.setenv("TUNER_LOCK_DIR", "/proc/self/mine")
    with pytest.raises(
        DeviceLockError, match=r"cannot make /proc/self/mine: .*; or have TUNER_LOCK_DIR name a fo"
    ):
        check_folder()


@pytest.mark.parametrize("plant", ["link", "pipe", "second name"])
def test_a_planted_lock_is_one_line_and_hurts_nobody(
    plant: str, base: Path, tmp_path: Path
) -> None:
    check_folder()
    path, outside = lock_folder() / "gpu.lock", tmp_path / "outside"
    outside.write_text("somebody's")
    how: dict[str, Callable[[], object]] = {
        "link": lambda: path.symlink_to(outside),
        "pipe": lambda: os.mkfifo(path),
        "second name": lambda: path.hardlink_to(outside),
    }
    how[plant]()
    with (
        pytest.raises(
            DeviceLockError,
            match=f"cannot use the device lock {path}: .*; remove it, .*: rm {path}",
        ),
        exclusive(["gpu"]),
    ):
        pytest.fail("it was used")
    assert outside.read_text() == "somebody's"
    path.unlink()
    with exclusive(["gpu"]) as held:
        assert held


def test_a_folder_that_root_has_made_comes_first(tmp_path: Path) -> None:
    lock.SYSTEM_FOLDER.mkdir(parents=True)
    lock.SYSTEM_FOLDER.chmod(0o1777)
    assert lock_folder() == lock.SYSTEM_FOLDER
    with exclusive(["gpu"]):
        assert (lock.SYSTEM_FOLDER / "gpu.lock").is_file()


def test_a_lock_that_was_deleted_while_somebody_waited_for_it_keeps_nobody_out(base: Path) -> None:
    with exclusive(["gpu"]):
        (lock_folder() / "gpu.lock").unlink()
        with exclusive(["gpu"], give_up=lambda: True) as held:
            assert held  # nothing else can be known; nobody waits for a file that is no more


HOLD_AS = """
import os, pathlib, sys
from tuner.devices import exclusive, lock
lock.POLL_S = 0.01
lock._TEMPORARY = (pathlib.Path(sys.argv[2]),)
os.setgroups([]); os.setgid(int(sys.argv[1])); os.setuid(int(sys.argv[1]))
with exclusive(["gpu"], give_up=lambda: True) as held:
    print(held, flush=True)
    sys.stdin.read()
"""


@as_root
@pytest.mark.parametrize(("first", "second"), [(12345, 54321), (12345, 0), (0, 12345)])
def test_two_users_meet_at_the_same_lock(first: int, second: int, base: Path) -> None:
    for parent in (base, *base.parents):  # pytest keeps its folders to itself
        if parent == Path("/"):
            break
        parent.chmod(parent.stat().st_mode | 0o011)

    def start(user: int) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(HOLD_AS), str(user), str(base)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    holder, other = start(first), None
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        other = start(second)
        assert other.communicate()[0] == "False\n"
        holder.communicate()
        assert start(second).communicate()[0] == "True\n"
    finally:
        for each in filter(None, (holder, other)):
            each.kill()
            each.communicate()
