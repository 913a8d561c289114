"""What code a result comes from: versions of packages, and the revision of the checkout."""

from __future__ import annotations

import functools
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch


@functools.cache
def versions() -> dict[str, str | None]:
    """Versions of what a result depends on."""
    found: dict[str, str | None] = {"python": platform.python_version(), "cuda": torch.version.cuda}
    for package in ("tuner", "torch", "optuna", "numpy"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = None
    found["torch"] = torch.__version__
    return found


@functools.cache
def git_revision() -> str | None:
    """The revision of the checkout that this code runs from,
    `+changes` when edited; None when installed.
    """
    folder = Path(__file__).parents[2]  # the package stands at the top of a checkout
    if not (folder / ".git").exists():
        return None
    try:
        head = subprocess.run(
            ["git", "rev-parse", "HEAD"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
        edited = subprocess.run(
            ["git", "status", "--porcelain", "-uno"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    if head.returncode != 0:
        return None
    return head.stdout.strip() + ("+changes" if edited.stdout.strip() else "")
