"""Where `tuner init` writes: never over a file unasked, and only what its reader takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tuner.errors import TunerError, UsageError

Read = TypeVar("Read")


def check_place(path: Path, *, kind: str, force: bool) -> None:
    """Whether a file of this `kind` ("study", "task") may be written to `path`.

    Raises:
        UsageError: another ending, no folder, or a file that is there already.
    """
    if path.suffix != ".toml":
        raise UsageError(f"--output: {path}: a {kind} file is named .toml; name it so")
    if not path.parent.is_dir():
        raise UsageError(f"--output: {path}: there is no folder {path.parent}; make it first")
    if path.is_dir():
        raise UsageError(f"--output: {path}: is a folder; name a file")
    if path.is_symlink() or (path.exists() and not path.is_file()):
        raise UsageError(f"--output: {path}: is a link, a pipe or a device; name a plain file")
    if path.exists() and not force:
        raise UsageError(
            f"{path}: is there already; name another file with --output, or say --force to write "
            "over it"
        )


def written(path: Path, text: str, read: Callable[[str], Read]) -> Read:
    """Put `text` at `path` if `read`, which is given the name of a file that holds it, takes it;
    what it made of it.

    Raises:
        UsageError: the disk does not take the file.
        TunerError: what `read` raised, about `path`.
    """
    from tuner.files.durable import replacing

    try:
        with replacing(path) as partial:
            partial.write(text.encode("utf-8"))
            partial.flush()
            try:
                return read(partial.name)
            except TunerError as error:
                raise type(error)(str(error).replace(partial.name, str(path))) from None
    except OSError as error:
        raise UsageError(f"--output: {path}: cannot be written ({error.strerror})") from error
