"""Whether others may change a folder whose content is executed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tuner.devices.common_files import who_may_change


@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_a_folder_of_ones_own_is_well(tmp_path: Path, mode: int) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(mode)
    assert who_may_change(tmp_path / "cache") is None


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o757])
def test_one_that_everybody_can_write_is_not(tmp_path: Path, mode: int) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(mode)
    said = who_may_change(tmp_path / "cache")
    assert said is not None
    assert said.startswith(f"{tmp_path / 'cache'} can be written by others (mode {mode:04o})")
    assert "\n" not in said


def test_nor_is_one_below_a_folder_that_others_can_write(tmp_path: Path) -> None:
    above = tmp_path / "above"
    (above / "cache").mkdir(parents=True)
    above.chmod(0o777)
    assert (who_may_change(above / "cache" / "not there yet") or "").startswith(str(above))
    above.chmod(0o1777)  # others may add to it, and replace nothing
    assert who_may_change(above / "cache") is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_nor_is_one_of_another_user(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    os.chown(tmp_path / "cache", 1, 1)
    (tmp_path / "cache").chmod(0o755)
    assert "belongs to" in (who_may_change(tmp_path / "cache") or "")


def test_the_group_counts_unless_it_is_the_user_s_own(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o775)
    own = (tmp_path / "cache").stat().st_gid == os.getegid() == os.geteuid()
    assert (who_may_change(tmp_path / "cache") is None) == own
