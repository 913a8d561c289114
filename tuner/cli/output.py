"""What a command prints: notes on stderr; on stdout one JSON document, or lines for a person."""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

import typer

from tuner.display.text import shown


def note(message: str) -> None:
    """A line to the person at the terminal, never to stdout."""
    print(f"tuner: {shown(message)}", file=sys.stderr)  # noqa: T201 - this is the command line


def print_json(document: Any) -> None:
    """One JSON document on stdout. What is no finite number (the loss of a diverging trial) has no
    JSON: it is null.
    """
    print(json.dumps(_finite(document), indent=2, allow_nan=False))  # noqa: T201


def say(line: str) -> None:
    """A line on stdout, whatever names are in it."""
    typer.echo(shown(line))


def say_told(told: str | Mapping[str, str], *, json: bool) -> None:
    """What an engine would be told: a script as it is, or a line for each value."""
    if json:
        print_json({"script": told} if isinstance(told, str) else told)
    elif isinstance(told, str):
        typer.echo(told, nl=False)
    else:
        for name, value in told.items():
            say(f"{name}: {value}")


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


# What code of the user's prints is not part of a JSON document.


STDOUT, STDERR = 1, 2


@contextlib.contextmanager
def printed_to_stderr(*, wanted: bool) -> Iterator[None]:
    """In here all that is printed goes to stderr, also by a library in C or by a program that is
    started.
    """
    if not wanted:
        yield
        return
    with contextlib.redirect_stdout(sys.stderr), contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # one of them may be closed
            kept = os.dup(STDOUT)
            stack.callback(os.close, kept)
            os.dup2(STDERR, STDOUT)
            stack.callback(os.dup2, kept, STDOUT)
        yield
