"""Paths with wildcards, much as a shell reads them: `*`, `?`, and `**` for any depth of folders.

A name that begins with a dot is found only by a part that does. Nothing is left out in silence: a
folder that cannot be read is an error, and so is a name that cannot be shown.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

WILDCARDS = "*?"
ANY_DEPTH = "**"


def is_wild(text: str) -> bool:
    """Whether a path, or a part of one, has a wildcard."""
    return any(each in text for each in WILDCARDS)


def at_first_wildcard(path: Path, known: int = 0) -> tuple[Path, tuple[str, ...]]:
    """The folder before the first wildcard, and the parts from there; no part where there is none.

    Args:
        path: with wildcards.
        known: so many parts from the first on are names, whatever they look like.
    """
    for n, part in enumerate(path.parts):
        if n >= known and is_wild(part):
            return Path(*path.parts[:n]), path.parts[n:]
    return path, ()


def problem_of(path: Path) -> str:
    """What is wrong with a path's wildcards, in words; empty where nothing is."""
    parts = at_first_wildcard(path)[1]
    for part in parts:
        if ANY_DEPTH in part and part != ANY_DEPTH:
            return f"in {part!r}, ** is not a folder by itself; write '*', or '**/' before it"
    if parts.count(ANY_DEPTH) > 1 or parts[-1:] == (ANY_DEPTH,):
        return "** stands once, and not last: 'runs/**/series.csv'"
    if ".." in parts:
        return "'..' after a wildcard finds files twice; leave it out"
    return ""


def files_found(root: Path, parts: Sequence[str]) -> Iterator[Path]:
    """The files below `root` that the parts of a path find, in the order of their names.

    Raises:
        OSError: a folder cannot be read; `filename` is which.
        ValueError: what is found is neither a file nor a folder, or cannot be shown.
    """
    part, rest = parts[0], parts[1:]
    if part == ANY_DEPTH:
        yield from files_found(root, rest)
        for each in _found(root, "*"):
            if each.is_dir() and not each.is_symlink():  # links may lead round in a circle
                yield from files_found(each, parts)
        return
    for each in _found(root, part):
        if each.is_dir() and (rest or is_wild(part)):
            if rest:
                yield from files_found(each, rest)
        elif not rest:
            if not each.is_file():
                raise ValueError(f"{each} is no regular file; leave it out, or put a file there")
            yield each


def _found(folder: Path, part: str) -> Iterator[Path]:
    """What a folder has by this name, or by names that fit; nothing where it is none."""
    if not is_wild(part):
        if os.path.lexists(folder / part):
            yield folder / part
        return
    try:
        names = sorted(each.name for each in folder.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return
    for name in names:
        hidden = name.startswith(".") and not part.startswith(".")
        if hidden or not fnmatchcase(name, part.replace("[", "[[]")):
            continue
        if not name.isprintable():
            raise ValueError(f"the name {name!a} in {str(folder)!a} is no text; rename it")
        yield folder / name
