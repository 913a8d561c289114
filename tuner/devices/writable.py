"""Whether others may change what lies in a folder whose content is executed."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from tuner.devices.common_files import user_name


def who_may_change(cache: Path) -> str | None:
    """Why what others compiled could be executed from Triton's cache, in one line; None if not.

    The folder itself and those above it are looked at, as far as they are there. A group that is
    the user's own, as many systems give everybody, is not others.

    Args:
        cache: which may not be there yet.
    """
    path = Path(os.path.realpath(cache))
    for folder in (path, *path.parents):
        try:
            status = folder.stat()
        except OSError:
            continue
        if (problem := _problem(status, may_add=folder != path)) is not None:
            return (
                f"{folder} {problem}, and what lies in Triton's cache {cache} is executed: make it "
                "writable by you alone, or set TRITON_CACHE_DIR to another folder"
            )
    return None


def _problem(status: os.stat_result, *, may_add: bool) -> str | None:
    """`may_add`: others may, where they cannot replace what is there, as in /tmp."""
    mode = stat.S_IMODE(status.st_mode)
    if may_add and mode & stat.S_ISVTX:
        return None
    own_group = status.st_gid == os.getegid() == os.geteuid()
    if mode & stat.S_IWOTH or (mode & stat.S_IWGRP and not own_group):
        return f"can be written by others (mode {mode:04o})"
    if status.st_uid not in (0, os.geteuid()):
        return f"belongs to {user_name(status.st_uid)}"
    return None
