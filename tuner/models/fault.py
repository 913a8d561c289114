"""What an exception in the user's own class says, on one line, with the file and the line where it
was raised.
"""

from __future__ import annotations

import functools
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType

FAULTS = (Exception, SystemExit, GeneratorExit)
"""What code of the user's may raise: its `sys.exit()` is a fault of its own, and ends no process
of ours.
"""

MOST_CHARACTERS = 300
_OURS = Path(__file__).resolve().parent.parent


def on_one_line(error: BaseException) -> str:
    """`file.py, line 7: NameError: name 'x' is not defined`; without a place where none of the
    user's code was met.
    """
    said = " ".join(_words_of(error).split())[:MOST_CHARACTERS]
    what = f"{type(error).__name__}: {said}" if said else type(error).__name__
    place = _place(error)
    return f"{place}: {what}" if place else what


def _words_of(error: BaseException) -> str:
    try:
        return error.msg if isinstance(error, SyntaxError) else str(error)
    except Exception as failure:  # noqa: BLE001 - its words are somebody else's code, too
        return f"its words cannot be had: {type(failure).__name__}"


def _place(error: BaseException) -> str:
    """The last line of the user's own that was being run, or that cannot be read as Python."""
    if isinstance(error, SyntaxError) and error.filename and error.lineno:
        return f"{_short(error.filename)}, line {error.lineno}"
    frames = [
        each for each in traceback.extract_tb(error.__traceback__) if of_the_user(each.filename)
    ]
    return f"{_short(frames[-1].filename)}, line {frames[-1].lineno}" if frames else ""


def place_now(within: CodeType, *, but_in: str) -> str | None:
    """The innermost line of the user's own that is being run, as `file.py, line 7`.

    Args:
        within: the function that runs the user's code: what called it is not looked at.
        but_in: a file.

    Returns:
        The line; empty where none is being run, None where code of the file `but_in` is.
    """
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 - a whole stack would be slow
    while frame is not None and frame.f_code is not within:
        filename = frame.f_code.co_filename
        if filename == but_in:
            return None
        if of_the_user(filename):
            return f"{_short(filename)}, line {frame.f_lineno}"
        frame = frame.f_back
    return ""


@functools.cache
def of_the_user(filename: str) -> bool:
    """Neither this package, nor Python's own, nor an installed one, nor code without a file."""
    path = Path(filename)
    installed = {"site-packages", "dist-packages"} & set(path.parts)
    standard = Path(sysconfig.get_path("stdlib"))
    return (
        path.is_file()
        and not installed
        and not path.is_relative_to(standard)
        and not path.is_relative_to(_OURS)
    )


def _short(filename: str) -> str:
    """Relative to the current folder, where the file lies in it."""
    path = Path(filename)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


# Whether an exception says that memory ran out: torch has a class for it, others only words.


_WORDS = (
    "can't allocate memory",
    "CUDA error: out of memory",
    "Triton Error [CUDA]: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)
"""How the CPU's allocator, CUDA's libraries and Triton say it, without torch's class."""


def out_of_memory(error: BaseException) -> BaseException | None:
    """The exception that says that memory ran out, of device or host; None where none does.

    It is `error`, or one that was being handled when `error` was raised.

    What is cleaned up when memory ran out may fail in turn, and hide the reason: the end of a CUDA
    graph's capture that was cut short raises an error of its own.
    """
    return next((each for each in _with_its_causes(error) if _says_so(each)), None)


def _says_so(error: BaseException) -> bool:
    import torch  # here: who only launches a search names faults, too, and waits for no torch

    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(
        words in str(error) for words in _WORDS
    )


def _with_its_causes(error: BaseException) -> Iterator[BaseException]:
    """As a traceback would show them, the last first."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
