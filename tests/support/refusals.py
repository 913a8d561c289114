"""Commands that must fail, or change nothing: `refused`, and what a folder holds."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

from tests.support.forked_cli import run_here


def contents(folder: Path) -> dict[str, str]:
    """Every file and folder beneath `folder`, with a digest of what it holds; but for what Python
    keeps of the modules that it imports.
    """
    found: dict[str, str] = {}
    for path in sorted(folder.rglob("*")):
        if "__pycache__" in path.parts:
            continue
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "folder"
        found[str(path.relative_to(folder))] = digest
    return found


def refused(
    *arguments: str,
    folder: Path,
    code: int,
    says: tuple[str, ...],
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run a command that must fail: in one line that holds all of `says`, without writing anything
    into `folder`."""
    before = contents(folder)
    done = run_here(*arguments, folder=folder, environment=environment)
    assert done.code == code, f"exit code {done.code}\n{done.out}{done.err}"
    assert done.out == ""
    for words in says:
        assert words in done.error, done.error
    assert contents(folder) == before
    return done.error
