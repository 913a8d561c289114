"""What every result says of where it comes from: device, date, duration, versions, revision and the exact command."""

from __future__ import annotations

import datetime
import json
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from tuner.trial.run import git_revision, versions

QUICK = Path(__file__).parents[2] / "notebooks" / "data"
"""A task and variants so small that a trial on a CPU takes a second: for dry runs."""


def circumstances(device: str) -> dict[str, Any]:
    """To be put into a result's JSON. `device` is the model of what ran it; it took since this process began, seconds."""
    return {
        "device": device,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "took_s": time.time() - psutil.Process().create_time(),
        "command": shlex.join(["python", *command_line()]),
        "versions": versions(),
        "git_revision": git_revision(),
    }


def command_line() -> list[str]:
    """The script as one names it from where it runs, and its arguments."""
    script = Path(sys.argv[0]).absolute()
    named = script.relative_to(Path.cwd()) if script.is_relative_to(Path.cwd()) else script
    return [str(named), *sys.argv[1:]]


def heading(found: dict[str, Any]) -> list[str]:
    """The same as the first lines of a result in Markdown."""
    named = ", ".join(f"{name} {version}" for name, version in found["versions"].items() if version)
    return [
        f"{found['device']}, {found['date']}, after {found['took_s']:.0f} s.",
        f"{named}; revision {found['git_revision'] or 'unknown'}.",
        "",
        f"    {found['command']}",
        "",
    ]


def write(output: Path, document: dict[str, Any], lines: list[str]) -> None:
    """OUTPUT.json and OUTPUT.md, the folder made if need be; what stands before an ending is kept, dots and all."""
    output.parent.mkdir(parents=True, exist_ok=True)
    Path(f"{output}.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    Path(f"{output}.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def tuner(*arguments: str, output: bool = False) -> str:
    """Run a `tuner` command; what it printed, with `output`. Its messages go to our stderr.

    Raises:
        SystemExit: it failed; with its exit code.
    """
    command = [sys.executable, "-m", "tuner", *arguments]
    print(f"$ {shlex.join(['tuner', *arguments])}", file=sys.stderr, flush=True)
    done = subprocess.run(
        command, stdout=subprocess.PIPE if output else sys.stderr, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.returncode)
    return done.stdout or ""
