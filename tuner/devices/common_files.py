"""Files in a folder that all users of the host write into: whatever lies there may be another's, or no file at all."""

from __future__ import annotations

import os
from pathlib import Path


def open_common(path: Path, flags: int) -> int:
    """A descriptor of the plain file at `path`, which is made where it is missing, for all users to write.

    Args:
        path: in a folder that all users may write.
        flags: as of `os.open`, without O_CREAT: systems refuse that for another user's file (fs.protected_regular).

    Raises:
        OSError: it cannot be opened, or is a link.
    """
    flags |= os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    while True:
        try:
            return os.open(path, flags)
        except FileNotFoundError:
            try:
                descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL)
            except FileExistsError:  # somebody else was faster
                continue
            os.fchmod(descriptor, 0o666)
            return descriptor
