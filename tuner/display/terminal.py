"""The terminal that results are shown on. Whatever string is printed there is text, on one line.

Rich takes strings for markup: a study called `exp [/v2]` would end every table that names it. Here
brackets, `:smile:` and numbers are what they are, and what a terminal would act upon is escaped,
line breaks too. Colours are given beside a string; lines of our own are printed one by one.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import Any

import rich.console
from rich.table import Table
from rich.text import Text

from tuner.display.text import shown, shown_lines

PIPE_WIDTH = 160


class Console(rich.console.Console):
    """Rich's, without markup, emoji codes and highlighting. To be made by `make_console`."""

    def render_str(self, text: str, **how: Any) -> Text:
        """Every string that is printed comes by here: lines, cells, headings and titles."""
        return super().render_str(shown(text), **how)


def make_console(*, stderr: bool = False) -> Console:
    """A console as wide as the terminal; where there is none (a pipe, a file), wide enough not to
    cut tables short.
    """
    console = Console(stderr=stderr, markup=False, emoji=False, highlight=False)
    if not console.is_terminal and not os.environ.get("COLUMNS"):
        console.width = PIPE_WIDTH
    return console


def is_live(console: Console) -> bool:
    """True on a terminal that can be drawn over;
    a pipe or a dumb terminal gets plain lines instead.
    """
    return console.is_terminal and not console.is_dumb_terminal


def line(*parts: str | tuple[str, str], style: str = "") -> Text:
    """One line with a style of its own, of parts that may have theirs. It ends in an ellipsis where
    it does not fit.
    """
    pairs = [(part, "") if isinstance(part, str) else part for part in parts]
    return Text.assemble(
        *((shown(text), own) for text, own in pairs), style=style, overflow="ellipsis", no_wrap=True
    )


def number_table(*headings: str, title: str | None = None) -> Table:
    """Numbers below their headings, without lines between them."""
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def lines(text: str) -> Text:
    """A cell of several lines, whose breaks are our own; a line that is too long is folded."""
    return Text(shown_lines(text), overflow="fold")


# Log lines that hold names of others.


def log_to_stderr() -> None:
    """All of this process's log, from now on, a line each."""
    log = logging.StreamHandler(sys.stderr)
    log.setFormatter(OneLine("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[log], force=True)


class OneLine(logging.Formatter):
    """Log lines with names of others in them:
    the message is one line, and only a traceback has more.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the base class's name
        return shown(super().formatMessage(record))

    def formatException(self, ei: Any) -> str:  # noqa: N802 - the base class's name
        return shown_lines(super().formatException(ei))
