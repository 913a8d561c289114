"""What an exception in the user's own class says, on one line, with the file and the line where it
was raised.
"""

from __future__ import annotations

import sys
import sysconfig
import traceback
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
        each for each in traceback.extract_tb(error.__traceback__) if _of_the_user(each.filename)
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
        if _of_the_user(filename):
            return f"{_short(filename)}, line {frame.f_lineno}"
        frame = frame.f_back
    return ""


def _of_the_user(filename: str) -> bool:
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
