"""Which physical host this is, whatever it is called: containers on it have names of their own."""

from __future__ import annotations

import platform
import re
from pathlib import Path

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
