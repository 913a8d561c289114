"""Which physical host this is, whatever it is called: containers on it have names of their own."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import re
import secrets
from pathlib import Path

import psutil

from tuner.devices.common_files import open_common
from tuner.devices.lock import DeviceLockError, lock_folder, open_folder

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_ID = re.compile(r"[0-9a-f-]{36}")


def boot_id() -> str | None:
    """What the kernel drew when it started, the same in all of its containers; None where it does
    not say.
    """
    try:
        found = BOOT_ID.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return None
    return found if _ID.fullmatch(found) else None


def physical_host() -> str:
    """A name that all containers of a host have in common and no other host has: the kernel's boot
    id, else the host's name.
    """
    return boot_id() or platform.node()[:60]


# Whose lock files keep each other out: all processes that see the same lock folder of a host.


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


# How much memory of the host a process may still take.


CGROUPS = Path("/sys/fs/cgroup")


def free_memory_bytes(cgroups: Path = CGROUPS) -> int:
    """Bytes that are free, or become free where they are needed: of the machine, and of the
    container that this process runs in.

    Beyond the first, the kernel ends some process; beyond the second, this one.

    Source: cgroup v2 and v1 of the Linux kernel's documentation. Elsewhere only the machine counts.
    """
    machine = int(psutil.virtual_memory().available)
    v1 = cgroups / "memory"
    limits = (
        _left(cgroups / "memory.max", cgroups / "memory.current", cgroups / "memory.stat"),
        _left(v1 / "memory.limit_in_bytes", v1 / "memory.usage_in_bytes", v1 / "memory.stat"),
    )
    return min(machine, *(each for each in limits if each is not None), machine)


def _left(limit: Path, used: Path, stat: Path) -> int | None:
    """Of a group's limit; None where it has none."""
    try:
        cached = _inactive_file(stat.read_text())
        return max(int(limit.read_text()) - int(used.read_text()) + cached, 0)
    except (OSError, ValueError):  # no such group, or "max"
        return None


def _inactive_file(stat: str) -> int:
    """Bytes of files in memory that the kernel gives up first."""
    counts = dict(line.split(maxsplit=1) for line in stat.splitlines())
    return int(counts.get("total_inactive_file", counts.get("inactive_file", 0)))
