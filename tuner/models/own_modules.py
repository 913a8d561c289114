"""Modules of the user's own: imported by name, or from a file."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib
import importlib.util
import os
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from tuner.config import names_file
from tuner.errors import UsageError
from tuner.models.fault import FAULTS, on_one_line

# Python files that a file of the user's own imports from beside it: a network in several files.


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


_KEPT = "__tuner_kept__"
"""Of a module that a process keeps to: the SHA-256 of its file."""


class EditedError(UsageError):
    """A file is not what it was (exit code 2)."""


def installed() -> tuple[str, ...]:
    """How the paths of Python's own modules begin, of installed packages' and of tuner's."""
    folders = [Path(path).resolve() for path in sysconfig.get_paths().values()]
    folders.append(Path(__file__).resolve().parents[1])
    return tuple(f"{each}{os.sep}" for each in folders)


def module_by_name(name: str) -> ModuleType:
    """Raises UsageError where it is not there, or fails on import."""
    try:
        with _importable(Path.cwd()):
            return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name == error.name or name.startswith(f"{error.name}.")):
            raise UsageError(
                f"no module {name!r}; "
                "it is looked for in the installed packages and in the current folder"
            ) from error
        raise UsageError(f"importing {name} failed: {on_one_line(error)}") from error
    except FAULTS as error:
        raise UsageError(f"importing {name} failed: {on_one_line(error)}") from error


def module_from_file(location: str) -> ModuleType:
    """Raises UsageError where there is no such file, or it fails on import."""
    path = Path(location).expanduser().resolve()
    if (kept := sys.modules.get(_name_kept(path))) is not None:
        return kept
    if not path.is_file():
        raise UsageError(f"{location}: no such file; expected path/to/file.py:NAME")
    # The same file is the same module: classes keep their identity between a process's trainings.
    digest = hashlib.sha256(str(path).encode() + path.read_bytes()).hexdigest()[:16]
    name = f"_tuner_own_{path.stem}_{digest}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{location}: cannot be imported as Python")
    _refuse_namesakes(location, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        with _importable(path.parent):  # for what lies beside it
            spec.loader.exec_module(module)
    except FAULTS as error:
        del sys.modules[name]
        raise UsageError(f"importing {location} failed: {on_one_line(error)}") from error
    return module


def _refuse_namesakes(location: str, path: Path) -> None:
    """Raises UsageError where this process has another folder's module under the name of a file
    beside this one: the class would silently get that. What is installed hides such a file, always.
    """
    for module in imported_names(path.read_bytes()):
        there = getattr(sys.modules.get(module), "__file__", None)
        if there is None or not lies_in(path.parent, module):
            continue
        file = Path(there).resolve()
        if path.parent not in file.parents and not str(file).startswith(installed()):
            raise UsageError(
                f"{location} imports {module} beside it, and another {module} is in use already, "
                f"{there}; give one of them another name"
            )


@contextlib.contextmanager
def _importable(place: Path) -> Iterator[None]:
    """A folder, last in line: it can add modules but not hide any."""
    folder = str(place)
    sys.path.append(folder)
    importlib.invalidate_caches()
    try:
        yield
    finally:
        sys.path.reverse()
        sys.path.remove(folder)
        sys.path.reverse()


def keep_to_file(reference: str, sha256: str | None) -> None:
    """From now on the file of an import string is, in this process, what it is now: an edit is
    meant for another study. Of what is no file nothing is kept.

    Raises:
        EditedError: its hash is not `sha256`.
        UsageError: it cannot be imported.
    """
    if sha256 is None or not names_file(reference):
        return
    location = reference.rpartition(":")[0]
    path = Path(location).expanduser().resolve()
    name = _name_kept(path)
    if getattr(sys.modules.get(name), _KEPT, None) == sha256:
        return
    sys.modules.pop(name, None)  # of a study with another file at that path
    _refuse_edited(location, path, sha256)
    module = module_from_file(location)
    setattr(module, _KEPT, sha256)
    sys.modules[name] = module


def hash_kept(reference: str) -> str | None:
    """Of the file of an import string, which this process keeps to; None where it keeps none."""
    path = Path(reference.rpartition(":")[0]).expanduser().resolve()
    kept: str | None = getattr(sys.modules.get(_name_kept(path)), _KEPT, None)
    return kept


def _refuse_edited(location: str, path: Path, sha256: str) -> None:
    try:
        found = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise EditedError(f"{location}: cannot be read ({error.strerror}); restore it") from None
    if found != sha256:
        raise EditedError(
            f"{location} is no longer the file that the study was made with (sha256 {found[:12]} "
            f"here, {sha256[:12]} there); restore it"
        )


def _name_kept(path: Path) -> str:
    return f"_tuner_kept_{hashlib.sha256(str(path).encode()).hexdigest()[:16]}"
