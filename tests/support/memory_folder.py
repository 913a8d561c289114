"""Where the suite keeps its files: in memory, where there is enough of it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

ENOUGH = 4 << 30
"""Bytes that are free. The whole suite needs less than half of that in two processes."""


def memory_folder(environment: Mapping[str, str], folder: Path = Path("/dev/shm")) -> Path | None:
    """`folder`, if it is writable, has room, and lets programs be loaded from it; None where
    TMPDIR names another place, for that was somebody's choice."""
    if "TMPDIR" in environment or not os.access(folder, os.W_OK | os.X_OK):
        return None
    found = os.statvfs(folder)
    # Containers mount it so that compiled networks could not be loaded from there.
    if found.f_flag & os.ST_NOEXEC or found.f_bavail * found.f_frsize < ENOUGH:
        return None
    return folder
