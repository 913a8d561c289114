"""The checkout that this code runs from, if it runs from one."""

from __future__ import annotations

import functools
from pathlib import Path

from tuner.files.child import SilentError, ran

_FOLDER = Path(__file__).parents[2]  # the package stands at the top of a checkout


@functools.cache
def head() -> str | None:
    """Its revision; None where the package is installed, or git does not say."""
    if not (_FOLDER / ".git").exists():
        return None
    found = _asked("rev-parse", "HEAD")
    return found.strip() or None if found is not None else None


def is_edited() -> bool | None:
    """Whether files that git knows were changed since; None where git does not say. It looks at
    all of them, which takes seconds where they are new to it.
    """
    found = _asked("status", "--porcelain", "-uno")
    return bool(found.strip()) if found is not None else None


def _asked(*words: str) -> str | None:
    try:
        done = ran(["git", *words], within_s=10, folder=_FOLDER)
    except (OSError, SilentError):
        return None
    return done.printed if done.code == 0 else None
