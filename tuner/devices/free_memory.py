"""How much memory of the host a process may still take."""

from __future__ import annotations

from pathlib import Path

import psutil

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
