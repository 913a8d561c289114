"""Python files that a file of the user's own imports from beside it: a network in several files.

They are found without running anything. What is imported in another way, by a computed name or from
a folder of Python's path, is not seen.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
from collections.abc import Iterator
from pathlib import Path

MOST_FILES = 300


def imported_names(content: bytes) -> Iterator[str]:
    """First parts of what a file imports by name, each once: not of what begins with dots, for a
    file by itself is in no package.
    """
    first = (name.partition(".")[0] for name in _imported(content))
    yield from dict.fromkeys(filter(None, first))


def lies_in(folder: Path, module: str) -> bool:
    """Whether a module of this name is a file or a package in a folder."""
    return (folder / f"{module}.py").is_file() or (folder / module / "__init__.py").is_file()


def files_beside(path: Path) -> dict[str, str]:
    """The SHA-256 of each file beside `path` that it imports, and of what these import in turn, by
    its place below the folder (`blocks.py`, `layers/norm.py`).
    """
    folder, found = path.absolute().parent, dict[str, str]()
    left = [path.absolute()]
    while left and len(found) < MOST_FILES:
        importing = left.pop()
        try:
            content = importing.read_bytes()
        except OSError:
            continue
        for each in _files_of(content, importing.parent, folder):
            name = each.relative_to(folder).as_posix()
            if name not in found and each != path.absolute():
                with contextlib.suppress(OSError):
                    found[name] = hashlib.sha256(each.read_bytes()).hexdigest()
                    left.append(each)
    return dict(sorted(found.items()))


def _files_of(content: bytes, beside: Path, folder: Path) -> Iterator[Path]:
    """Files below `folder` that a file in the folder `beside` imports."""
    for name in _imported(content):
        dots = len(name) - len(name.lstrip("."))
        start = beside if dots else folder
        for _ in range(dots - 1):
            start = start.parent
        if start != folder and folder not in start.parents:
            continue
        here = start
        for part in name.lstrip(".").split("."):
            here = here / part
            for file in (here.with_name(f"{part}.py"), here / "__init__.py"):
                if file.is_file():
                    yield file


def _imported(content: bytes) -> Iterator[str]:
    """What a file imports, with its dots: `a.b` of `import a.b`, and of `from a import b`, since b
    may be a module.
    """
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom):
            before = "." * node.level + (node.module or "")
            for each in node.names:
                yield before + ("." if node.module else "") + each.name
