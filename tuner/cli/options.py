"""Options that several commands share, and how each gets its value:
flag, then environment, then default.
"""

from __future__ import annotations

import math
import os
import re
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.display.text import shown
from tuner.errors import UsageError
from tuner.files.environment import DATA_VARIABLE, STORAGE_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

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
Variant = Annotated[str, typer.Option(metavar="NAME", help="Variant, see 'tuner variants'.")]
TaskName = Annotated[
    str, typer.Option("--task", metavar="NAME|FILE", help="etth, demo, or a task file (.toml).")
]

Gpus = Annotated[
    str | None,
    typer.Option(metavar="0,1|all", help="GPUs, one worker each; with --on: how many, or all."),
]
OneGpu = Annotated[
    int | None,
    typer.Option("--gpu", min=0, metavar="INDEX", help="The GPU to run on (0 if there is one)."),
]
Cpu = Annotated[bool, typer.Option("--cpu", help="Run on the CPU.")]
Workers = Annotated[
    int | None,
    typer.Option(
        min=1, metavar="N", help="CPU workers, sharing out the cores (up to 4); with --on: so many."
    ),
]
On = Annotated[
    str | None,
    typer.Option(
        metavar="ENGINE",
        help="Who places the workers on other machines: ray, ray://HOST:PORT, slurm or k8s.",
    ),
]
Placement = Annotated[
    str | None,
    typer.Option(
        metavar="KEY=VALUE,...|FILE",
        help="What the engine is told beside (partition=gpu,time=2:00:00), or a TOML file with "
        "its table.",
    ),
]
PrintOnly = Annotated[
    bool,
    typer.Option(
        "--print", help="Print what the engine would be told; the studies are made, nobody works."
    ),
]
Timeout = Annotated[str | None, typer.Option(metavar="2h", help="Stop cleanly after this long.")]

Trust = Annotated[
    bool, typer.Option("--trust", help="Let a class or a program run that others named.")
]

LONGEST_S = 100 * 365 * 24 * 3600.0
LARGEST_BYTES = 2.0**60

_DURATION = re.compile(
    r"^(?:(\d+(?:\.\d+)?)h)?(?:(\d+(?:\.\d+)?)m)?(?:(\d+(?:\.\d+)?)s?)?$", re.ASCII
)
_SIZE = re.compile(r"^(?P<number>\d+(?:\.\d+)?) ?(?P<unit>[KMGT]I?B)$", re.IGNORECASE | re.ASCII)
_SHARE = re.compile(r"^(?P<number>\d+(?:\.\d*)?|\.\d+) ?(?P<percent>%)?$", re.ASCII)
_UNITS = {
    f"{prefix}{i}B": (1024 if i else 1000) ** power
    for power, prefix in enumerate("KMGT", 1)
    for i in ("", "I")
}


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

    database = open_database(absolute(parse_url(url)), create=create)
    try:
        yield database
    finally:
        database.close()


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


def duration_s(text: str | None, flag: str) -> float | None:
    """Seconds of `90`, `90s`, `30m`, `2h` or `1h30m`.

    Raises:
        UsageError: none of these, or nothing at all.
    """
    if text is None:
        return None
    match = _DURATION.match(text.strip())
    hours, minutes, seconds = (
        (float(part or 0) for part in match.groups()) if match else (0.0, 0.0, 0.0)
    )
    total = hours * 3600 + minutes * 60 + seconds
    if not 0 < total < LONGEST_S:
        raise UsageError(f"{flag}: {text!r} is no duration; expected e.g. 90s, 30m or 1h30m")
    return total


def size_bytes(text: str | None, flag: str) -> int | None:
    """Bytes of `800MB`, `8GB` or `8GiB`.

    Raises:
        UsageError: none of these, or nothing at all.
    """
    if text is None:
        return None
    match = _SIZE.match(text.strip())
    size = float(match["number"]) * _UNITS[match["unit"].upper()] if match else 0.0
    if not 1 <= size < LARGEST_BYTES:
        raise UsageError(
            f"{flag}: {text!r} is no amount of memory; expected e.g. 800MB, 8GB or 8GiB"
        )
    return int(size)


def share(text: str | None, flag: str) -> float | None:
    """The margin that `1%`, `1 %` or `0.01` names.

    Raises:
        UsageError: none of these, or more than a margin may be.
    """
    from tuner.spec.margin import checked_margin

    if text is None:
        return None
    match = _SHARE.match(text.strip())
    if match is None:
        raise UsageError(f"{flag}: {shown(text)!r} is no share; expected e.g. 1% or 0.01")
    try:
        return checked_margin(float(match["number"]) / (100 if match["percent"] else 1))
    except UsageError as error:
        raise UsageError(f"{flag}: {error}") from None


def above_zero(text: str | None, flag: str) -> float | None:
    """The number that a limit names.

    Raises:
        UsageError: no finite number above 0.
    """
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise UsageError(f"{flag}: {text!r} is no limit; expected a number above 0")
    return value


def note(message: str) -> None:
    """A line to the person at the terminal, never to stdout."""
    print(f"tuner: {shown(message)}", file=sys.stderr)  # noqa: T201 - this is the command line
