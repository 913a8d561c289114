"""The terminal that results are shown on. Whatever string is printed there is text, on one line.

Rich takes strings for markup: a study called `exp [/v2]` would end every table that names it. Here
brackets, `:smile:` and numbers are what they are, and what a terminal would act upon is escaped,
line breaks too. Colours are given beside a string; lines of our own are printed one by one.
"""

from __future__ import annotations

import os
from typing import Any

import rich.console
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


def lines(text: str) -> Text:
    """A cell of several lines, whose breaks are our own; a line that is too long is folded."""
    return Text(shown_lines(text), overflow="fold")
