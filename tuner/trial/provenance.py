"""What code a result comes from: versions of packages, and the revision of the checkout."""

from __future__ import annotations

import functools
import platform
from importlib.metadata import PackageNotFoundError, version

import torch

from tuner.files.checkout import head, is_edited


@functools.cache
def versions() -> dict[str, str | None]:
    """Versions of what a result depends on."""
    found: dict[str, str | None] = {"python": platform.python_version(), "cuda": torch.version.cuda}
    for package in ("tuner", "torch", "optuna", "numpy", "neuralforecast"):
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
    revision = head()
    if revision is None:
        return None
    return revision + ("+changes" if is_edited() else "")
