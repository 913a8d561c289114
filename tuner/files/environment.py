"""What a process runs in: a user's folders, variables that stand in for flags, and imports that
nobody collects.
"""

from __future__ import annotations

import contextlib
import gc
import getpass
import os
import re
import stat
import tempfile
from collections.abc import Iterator, Mapping, MutableMapping
from pathlib import Path

from tuner.errors import DataError, TunerError

# A place for caches where a user has no home: containers run as bare user numbers, and system users
# have none. Python, PyTorch's compilers and Triton all ask for the home folder or for the user's
# name, and fail each in its own way where there is neither.


CACHE, TRITON, INDUCTOR, NAME = "XDG_CACHE_HOME", "TRITON_HOME", "TORCHINDUCTOR_CACHE_DIR", "USER"
_LASTING = f"HOME, or {CACHE}, names a lasting place"


def provide_home(environment: MutableMapping[str, str]) -> str:
    """Have `environment` name places for caches that exist and can be written, and a user.

    What is there and works is left alone. Returns what to tell the person, nothing where there is
    nothing new.
    """
    if not _has_name():
        environment[NAME] = f"user{os.geteuid()}"
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - Path.home() raises where there is none
    lost = not home.is_absolute()
    wanted = {CACHE: ".cache", TRITON: ".triton"}
    missing = [
        name
        for name, folder in wanted.items()
        if name not in environment and (lost or not _takes(home, folder))
    ]
    if not lost and not missing:
        return ""
    try:
        place, line = _temporary_home()
    except OSError:  # nothing at all can be written: what needs a cache will say so
        return ""
    if lost:
        environment["HOME"] = str(place)
    environment.update(
        {name: str(place / wanted[name]) if name == CACHE else str(place) for name in missing}
    )
    return line


def user_cache() -> Path:
    """The user's folder for what can be made or downloaded again.

    Raises:
        DataError: there is no home, nor anything else to go by.
    """
    from platformdirs import user_cache_dir

    try:
        return Path(user_cache_dir("tuner"))
    except RuntimeError:
        raise DataError(
            f"there is no home folder for a cache; name a folder for it: {CACHE}=DIR"
        ) from None


def guard_compiler_cache(environment: MutableMapping[str, str]) -> None:
    """Keep PyTorch's compiler out of a cache that another user may have made.

    It takes a folder of a name that all can foresee, in the temporary folder, and runs what it
    finds there.
    """
    if INDUCTOR in environment:
        return
    # No name, or no temporary folder: the compiler will say so.
    with contextlib.suppress(OSError, KeyError):
        _guard(environment)


def _guard(environment: MutableMapping[str, str]) -> None:
    user = re.sub(r'[\\/:*?"<>|]', "_", getpass.getuser())  # as PyTorch makes a folder's name of it
    folder = Path(tempfile.gettempdir()) / f"torchinductor_{user}"
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)  # now, so that nobody else does before the compiler comes to it
    if not _is_own(folder, others_may=0o055):
        environment[INDUCTOR] = tempfile.mkdtemp(prefix="tuner-torchinductor-")


def _is_own(folder: Path, *, others_may: int) -> bool:
    """Whether it is a folder of this user, and others have at most these rights."""
    status = folder.lstat()
    refused = 0o077 & ~others_may
    return (
        stat.S_ISDIR(status.st_mode)
        and status.st_uid == os.geteuid()
        and not status.st_mode & refused
    )


def _has_name() -> bool:
    try:
        getpass.getuser()
    except (KeyError, OSError):
        return False
    return True


def _takes(home: Path, folder: str) -> bool:
    """Whether the user can write into `folder` of the home, or make it."""
    there = home / folder
    return os.access(there if there.exists() else home, os.W_OK | os.X_OK, effective_ids=True)


def _temporary_home() -> tuple[Path, str]:
    """A folder that nobody else may write into,
    the same in each process of this user where possible.

    What is cached there is run or unpickled later: a folder that somebody else has put there is not
    used.
    """
    place = Path(tempfile.gettempdir()) / f"tuner-home-{os.geteuid()}"
    why = f"user {os.geteuid()} has no home folder that can be written"
    with contextlib.suppress(FileExistsError):
        place.mkdir(mode=0o700)
        return place, f"{why}: caches are kept in {place}; {_LASTING}"
    if _is_own(place, others_may=0):
        return place, ""
    once = Path(tempfile.mkdtemp(prefix="tuner-home-"))
    said = f"{why}, and {place} is not this user's alone: caches of this command are in {once}"
    return once, f"{said}; {_LASTING}"


# Folders in which nobody but this user can write or read.


ALONE = 0o700


class PrivateFolderError(TunerError):
    """A folder that others could change, or that cannot be made (exit code 1)."""


def private_folder(path: Path) -> Path:
    """`path`, made for this user alone where it is missing. The folders above it are made as usual.

    Raises:
        PrivateFolderError: it cannot be made, is a link or no folder, belongs to somebody else, or
            others may do more there than nothing.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.mkdir(mode=ALONE, exist_ok=True)
        status = path.lstat()
    except OSError as error:
        raise PrivateFolderError(f"cannot make {path}: {error.strerror}") from None
    if not stat.S_ISDIR(status.st_mode):
        raise PrivateFolderError(f"{path} is no folder; remove it: rm {path}")
    if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
        raise PrivateFolderError(
            f"{path} is not this user's alone (mode {stat.S_IMODE(status.st_mode):04o}), and what "
            f"lies there is executed; remove it: rm -r {path}"
        )
    return path


# Variables that stand in for flags, and imports of torch that nobody searches for garbage.


STORAGE_VARIABLE = "TUNER_STORAGE"
"""The database's address: workers get it so, for it may hold a password."""
DATA_VARIABLE = "TUNER_DATA_DIR"
"""The folder with a task's data."""
LLM_VARIABLE = "TUNER_LLM_FOLDER"
"""The folder of a language model, where it is not where a study file says."""
LOCK_VARIABLE = "TUNER_LOCK_DIR"
"""The folder of the device locks, where containers or their like share a device."""


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """What a process gets that runs the user's own code: it has no business with the database."""
    secrets = (STORAGE_VARIABLE, "PGPASSWORD", "PGPASSFILE", "PGSERVICEFILE")
    return {name: text for name, text in environment.items() if name not in secrets}


# Imports of torch that nobody searches for garbage.


@contextlib.contextmanager
def nothing_collected() -> Iterator[None]:
    """In here no garbage is looked for, and what is here at the end is never looked through again.

    With torch come a million objects that stay. Python looks through all of them each time they
    have become a quarter more, which is a fifth of a worker's start, and every now and then in the
    middle of a training, for a quarter of a second.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collects:
            gc.enable()
