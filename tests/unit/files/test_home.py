"""Users without a home, as containers have them: caches have a place all the same, and it is theirs
alone."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

import numpy as np
import pytest

from tuner.data import maps
from tuner.files.environment import guard_compiler_cache, provide_home, user_cache

USER = os.geteuid()


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without an entry in the list of users, and an empty temporary folder."""

    def nobody(uid: int) -> pwd.struct_passwd:
        raise KeyError(uid)

    for name in ("HOME", "XDG_CACHE_HOME", "USER", "LOGNAME", "LNAME", "USERNAME", "TRITON_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("TORCHINDUCTOR_CACHE_DIR", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def test_a_user_without_home_and_name_is_given_both_and_told_once(temporary: Path) -> None:
    line = provide_home(os.environ)
    place = temporary / f"tuner-home-{USER}"
    assert f"caches are kept in {place}; HOME, or XDG_CACHE_HOME, names a lasting place" in line
    assert os.environ["HOME"] == str(place)
    assert os.environ["USER"] == f"user{USER}"
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert user_cache() == place / ".cache" / "tuner"
    assert provide_home(os.environ) == ""


def test_a_home_that_cannot_be_written_stays_and_only_the_caches_move(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(
        "HOME", "/proc/self"
    )  # where not even root makes a folder, though it may seem to be allowed
    monkeypatch.setattr(os, "access", lambda path, *_, **__: not str(path).startswith("/proc"))
    provide_home(os.environ)
    assert os.environ["HOME"] == "/proc/self"
    assert os.environ["XDG_CACHE_HOME"] == str(temporary / f"tuner-home-{USER}" / ".cache")


def test_a_home_that_works_is_left_alone(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(temporary))
    monkeypatch.setenv("USER", "ann")
    before = dict(os.environ)
    assert provide_home(os.environ) == ""
    assert dict(os.environ) == before
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("plant", ["link", "open to all"])
def test_a_planted_home_is_not_used(plant: str, temporary: Path) -> None:
    place, target = temporary / f"tuner-home-{USER}", temporary / "target"
    target.mkdir()
    if plant == "link":
        place.symlink_to(target)
    else:
        place.mkdir()
        place.chmod(0o777)
    line = provide_home(os.environ)
    assert f"{place} is not this user's alone" in line
    assert Path(os.environ["HOME"]) not in (place, target)
    assert list(target.iterdir()) == []


def test_the_compiler_gets_a_folder_that_nobody_else_has_made(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("USER", "ann")
    monkeypatch.setenv("LOGNAME", "ann")
    guard_compiler_cache(os.environ)
    assert "TORCHINDUCTOR_CACHE_DIR" not in os.environ
    folder = temporary / "torchinductor_ann"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    folder.chmod(0o777)
    guard_compiler_cache(os.environ)
    own = Path(os.environ["TORCHINDUCTOR_CACHE_DIR"])
    assert own != folder
    assert stat.S_IMODE(own.stat().st_mode) == 0o700


def test_prepared_data_is_never_unpickled(temporary: Path) -> None:
    maps.keep(temporary, "key", {"a": np.arange(3)})
    found = maps.kept(temporary, "key")
    assert found is not None
    assert found["a"].tolist() == [0, 1, 2]
    np.savez(temporary / "key.npz", a=np.array([{"code": 1}], dtype=object))
    assert maps.kept(temporary, "key") is None
