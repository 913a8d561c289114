"""Whose lock files keep each other out: all processes that see the same lock folder of a host.

Two containers on a host may each have a folder of that name, and then each its own locks. What they
have in common is the database; there they must be told apart. Taking one folder for two only costs
time: its users take turns as strangers do. Taking two for one would let both train at once, so
everything that can tell them apart is in the name.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import secrets

from tuner.devices.common_files import open_common
from tuner.devices.lock import DeviceLockError, lock_folder, open_folder
from tuner.devices.physical import physical_host

NAME = "domain"
_DRAWN = re.compile(rb"[0-9a-f]{32}")
_ENTRY_BYTES = 64


def lock_domain() -> str:
    """The name of this process's lock folder: 64 characters, the same for all who share it.

    It is made of what was drawn for the folder, the folder's own place on its file system, and its
    host: an image or a snapshot with a folder in it gives many of them the same file.

    Raises:
        DeviceLockError: the folder is none to rely on.
    """
    with open_folder() as folder:
        status = os.fstat(folder)
        try:
            drawn = _drawn(folder)
        except OSError as error:
            path = lock_folder() / NAME
            raise DeviceLockError(
                f"cannot use {path}, which names the folder of the device locks: "
                f"{error.strerror}; remove it, if need be as root: rm {path}"
            ) from None
    told = f"{physical_host()} {status.st_dev} {status.st_ino} {drawn}"
    return hashlib.sha256(told.encode()).hexdigest()


def _drawn(folder: int) -> str:
    """What stands in the folder's file; drawn by whoever comes first."""
    descriptor = open_common(folder, NAME, os.O_RDWR)
    with os.fdopen(descriptor, "r+b") as file, contextlib.ExitStack() as stack:
        fcntl.flock(file, fcntl.LOCK_EX)
        stack.callback(fcntl.flock, file, fcntl.LOCK_UN)
        found = file.read(_ENTRY_BYTES)
        if not _DRAWN.fullmatch(found):
            found = secrets.token_hex(16).encode()
            file.seek(0)
            file.truncate()
            file.write(found)
            file.flush()
    return found.decode()
