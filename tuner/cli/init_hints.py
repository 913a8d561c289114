"""Remedies that name keys of a task file, where there is no such file yet: as options."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tuner.display.text import command_line
from tuner.errors import TunerError


@contextmanager
def as_options(file: str | None = None) -> Iterator[None]:
    """What is raised inside names the options of `tuner init data`; that command, too, where
    another one looks at the `file`.
    """
    from tuner.data.split_rows import SMALLER_WINDOW
    from tuner.data.times import SET_ID_COLUMN, SHORTER_FREQUENCY

    before = "" if file is None else command_line(["tuner", "init", "data", file]) + " "
    remedies = {
        SET_ID_COLUMN: ("set id_column", "--id-column NAME"),
        SMALLER_WINDOW: (SMALLER_WINDOW, "--input-size N --horizon N"),
        SHORTER_FREQUENCY: ("set a shorter frequency", "--frequency min"),
    }
    try:
        yield
    except TunerError as error:
        said = str(error)
        for remedy, (what, options) in remedies.items():
            said = said.replace(remedy, f"{what} with '{before}{options}'")
        raise type(error)(said) from None
