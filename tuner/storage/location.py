"""Where an SQLite database lies and how many share it: said once, before it hurts."""

from __future__ import annotations

import re
from pathlib import Path

from tuner.storage.url import DatabaseUrl

MOST_WORKERS = 4
"""On one SQLite database. It lets one of them write at a time: more wait for each other."""

_NETWORK = (
    "9p afs beegfs ceph cifs coda glusterfs gpfs lustre ncpfs nfs nfs4 orangefs panfs pvfs2 "
    "smb2 smb3 smbfs wekafs"
)
_FUSE = "beegfs ceph cephfs gcsfuse glusterfs juicefs rclone s3fs sshfs weed"
NETWORK_FILESYSTEMS = frozenset(_NETWORK.split()) | {f"fuse.{name}" for name in _FUSE.split()}
"""As /proc/mounts names them: file locks there depend on a server,
and SQLite depends on file locks."""

_MOUNTS = Path("/proc/mounts")


def cautions(address: DatabaseUrl, *, workers: int = 1) -> list[str]:
    """What to know before `workers` workers use the database at `address`:
    nothing, or a line for each danger.
    """
    if not address.is_sqlite:
        return []
    found = []
    path = address.sqlite_path.absolute()
    place = network_mount(path, _mounts())
    if place is not None:
        kind, mount = place
        found.append(
            f"the database {path} lies on a network filesystem ({kind} at {mount}), whose file "
            "locks SQLite cannot "
            "rely on: it may be damaged; put it on a local disk, or share a PostgreSQL "
            "(docs/several-machines.md)"
        )
    if workers > MOST_WORKERS:
        found.append(
            f"{workers} workers share an SQLite database, which takes one writer at a time: beyond "
            f"{MOST_WORKERS} they "
            "wait for each other; a PostgreSQL serves them all (docs/several-machines.md)"
        )
    return found


def lies_on_network(path: Path) -> bool:
    """Whether other hosts may see it, as far as its filesystem tells."""
    return network_mount(path.absolute(), _mounts()) is not None


def network_mount(path: Path, mounts: str) -> tuple[str, str] | None:
    """Kind and mount point of the network filesystem that `path` lies on;
    None when it is on another kind.

    `mounts` is what /proc/mounts holds. Of several mounts on the path the innermost counts, of two
    at one place the later.
    """
    real = path.resolve()
    kind, innermost = "", Path("/")
    for line in mounts.splitlines():
        fields = line.split()
        if len(fields) < 3:  # noqa: PLR2004 - device, mount point, kind
            continue
        mount = Path(_unescaped(fields[1]))
        if real.is_relative_to(mount) and len(mount.parts) >= len(innermost.parts):
            kind, innermost = fields[2], mount
    return (kind, str(innermost)) if kind in NETWORK_FILESYSTEMS else None


def _mounts() -> str:
    try:
        return _MOUNTS.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:  # not Linux
        return ""


def _unescaped(field: str) -> str:
    r"""The kernel writes blanks and backslashes as octal numbers, a blank as \040."""
    return re.sub(r"\\([0-7]{3})", lambda found: chr(int(found[1], 8)), field)
