"""The terminal that results are shown on."""

from __future__ import annotations

import os

from rich.console import Console

PIPE_WIDTH = 160


def make_console(*, stderr: bool = False) -> Console:
    """A console as wide as the terminal; where there is none (a pipe, a file), wide enough not to cut tables short."""
    console = Console(stderr=stderr)
    if not console.is_terminal and not os.environ.get("COLUMNS"):
        return Console(stderr=stderr, width=PIPE_WIDTH)
    return console


def is_live(console: Console) -> bool:
    """True on a terminal that can be drawn over; a pipe or a dumb terminal gets plain lines instead."""
    return console.is_terminal and not console.is_dumb_terminal
