"""Options that several commands share, and how each gets its value:
flag, then environment, then default.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner.display.text import shown
from tuner.errors import UsageError
from tuner.files.environment import DATA_VARIABLE, STORAGE_VARIABLE

if TYPE_CHECKING:
    from tuner.storage.database import Database


Storage = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help=f"Database (else {STORAGE_VARIABLE}, else sqlite:///storage/tuner.db)."
    ),
]
DataDir = Annotated[
    Path | None,
    typer.Option(
        metavar="DIR|URL",
        help=f"Folder or URL with the task's data (else {DATA_VARIABLE}, else a cache).",
    ),
]
Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON document on stdout; the rest goes to stderr.")
]
Study = Annotated[
    str | None, typer.Option(metavar="NAME", help="Study name (default: <task>-<variant>).")
]
TaskName = Annotated[
    str, typer.Option("--task", metavar="NAME|FILE", help="etth, demo, or a task file (.toml).")
]

OneGpu = Annotated[
    int | None,
    typer.Option("--gpu", min=0, metavar="INDEX", help="The GPU to run on (0 if there is one)."),
]
Cpu = Annotated[bool, typer.Option("--cpu", help="Run on the CPU.")]
Timeout = Annotated[str | None, typer.Option(metavar="2h", help="Stop cleanly after this long.")]

HangLimit = Annotated[
    str | None,
    typer.Option(
        metavar="10m",
        help="Kill a worker without a sign of life for this long (30m before a trial's first "
        "epoch, then 1m), "
        "or for ten of its trial's epochs if those take longer.",
    ),
]
Trust = Annotated[
    bool, typer.Option("--trust", help="Let a class or a program run that others named.")
]


def storage_url(flag: str | None) -> str:
    """The database URL as given; warns of a secret on the command line.

    Raises:
        UsageError: it is none.
    """
    from tuner.storage.url import DEFAULT_URL, parse_url

    if flag is not None and parse_url(flag).holds_secrets:
        note(
            "the password in --storage is visible to everyone who lists processes; "
            f"set {STORAGE_VARIABLE} or a PGPASSFILE instead"
        )
    if flag is not None:
        return flag
    if not (set_to := os.environ.get(STORAGE_VARIABLE)):
        return DEFAULT_URL
    try:
        parse_url(set_to)
    except UsageError as error:  # say where it came from: nobody typed the flag
        raise UsageError(str(error).replace("--storage", STORAGE_VARIABLE, 1)) from None
    return set_to


@contextmanager
def opened_database(url: str, *, create: bool = False) -> Iterator[Database]:
    """The database at an address that `storage_url` gave, as long as the context lasts."""
    from tuner.storage.database import open_database
    from tuner.storage.url import absolute, parse_url

    with contextlib.closing(open_database(absolute(parse_url(url)), create=create)) as database:
        yield database


def as_typed(storage: str | None) -> list[str]:
    """The words of this command, to be typed again;
    a `--storage` with a secret is left to the environment.
    """
    from tuner.storage.url import parse_url

    words = ["tuner", *sys.argv[1:]]
    if storage is None or not parse_url(storage).holds_secrets:
        return words
    return [word for word in words if word not in ("--storage", storage, f"--storage={storage}")]


def is_named(flag: str | None) -> bool:
    """Whether somebody said which database:
    one that is not there is then a mistake, not the first look.
    """
    return flag is not None or bool(os.environ.get(STORAGE_VARIABLE))


def data_folder(flag: Path | None) -> Path | None:
    """The data folder as given; None means the user cache."""
    if flag is not None:
        return flag
    return Path(os.environ[DATA_VARIABLE]) if os.environ.get(DATA_VARIABLE) else None


def note(message: str) -> None:
    """A line to the person at the terminal, never to stdout."""
    print(f"tuner: {shown(message)}", file=sys.stderr)  # noqa: T201 - this is the command line


# What goes to stdout, one JSON document or lines for a person.


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
