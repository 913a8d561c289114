"""A disk that is soon full."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of two megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "none", str(folder)]
    if subprocess.run(mount, check=False, capture_output=True).returncode != 0:
        pytest.skip(
            "no right to mount a file system; tests/unit/files/test_durable.py makes its writes "
            "fail instead"
        )
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def fill(filler: Path) -> None:
    """Write this file until nothing more goes onto its disk."""
    with contextlib.suppress(OSError), filler.open("wb") as file:
        while True:
            file.write(b"\0" * 4096)
            file.flush()
