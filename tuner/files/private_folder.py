"""Folders in which nobody but this user can write or read."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tuner.errors import TunerError

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
