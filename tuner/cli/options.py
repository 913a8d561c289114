"""Options that several commands share, and how each gets its value:
flag, then environment, then default.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from tuner.cli.command import option, switch
from tuner.cli.output import note
from tuner.config import MANY
from tuner.errors import UsageError
from tuner.files.environment import DATA_VARIABLE, STORAGE_VARIABLE
from tuner.settings import duration_s

if TYPE_CHECKING:
    from tuner.storage.database import Database
    from tuner.storage.url import DatabaseUrl

Asked = TypeVar("Asked")

Storage = Annotated[
    str | None,
    typer.Option(
        metavar="URL", help=f"Database ({STORAGE_VARIABLE}, or sqlite:///storage/tuner.db)."
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
    bool, typer.Option("--json", help="One JSON document on stdout; the rest on stderr.")
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


def studies(otherwise: str = "", *, default: Any = None) -> Any:
    """The option that names studies, which is the same in all commands; `otherwise` says what
    counts without it.
    """
    said = f"Studies, or group:NAME{otherwise and f' ({otherwise})'}."
    return option("NAME[,NAME]", said, default=default, named="--study")


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


def storage_address(flag: str | None) -> DatabaseUrl:
    """The same as an address, wherever this process goes.

    Raises:
        UsageError: it is none.
    """
    from tuner.storage.url import absolute, parse_url

    return absolute(parse_url(storage_url(flag)))


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


# The options of commands that start work: where it runs, on which data, for how long.


def named_as(options: object, kind: type[Any]) -> dict[str, Any]:
    """What options say of the fields of a `kind` of record, by their names."""
    names = [each.name for each in fields(kind)]
    return {name: getattr(options, name) for name in names if hasattr(options, name)}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkOptions:
    """The options of a command that starts workers."""

    task: TaskName = "etth"
    data_dir: DataDir = None
    gpus: str | None = option("0,1|all", "GPUs, one worker each; with --on: how many, or all.")
    cpu: Cpu = False
    workers: int | None = option(
        "N", "CPU workers, sharing out the cores (up to 4); with --on: so many.", min=1
    )
    on: str | None = option("ENGINE", "Workers elsewhere, by ray, ray://HOST:PORT, slurm or k8s.")
    placement: str | None = option(
        "KEY=VALUE,...|FILE",
        "What the engine is told beside (partition=gpu,time=2:00:00), or a TOML file with its "
        "table.",
    )
    timeout: Timeout = None
    trust: Trust = False
    storage: Storage = None
    json: Json = False

    def request(self, kind: type[Asked], **own: Any) -> Asked:
        """These options as a request of this `kind`, whose fields are called as they are; `own` are
        those of another name or form.
        """
        from tuner.launch import DeviceChoice

        own |= {
            "data_dir": data_folder(self.data_dir),
            "devices": DeviceChoice(**named_as(self, DeviceChoice)),
            "timeout_s": duration_s(self.timeout, "--timeout"),
            "storage": storage_url(self.storage),
        }
        return kind(**named_as(self, kind) | own)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchOptions(WorkOptions):
    """The options of a command that starts searches."""

    draw: int | None = option(
        "N",
        "Of all seeds, of searches, trainings and confirmations: another N asks the same question "
        "again (1).",
        min=1,
        max=MANY,
    )
    foundation: Path | None = option(
        "FOLDER", "A Chronos model on this machine, to hold the networks against."
    )
    track: str | None = option(
        "NAME", "Write the trials at the end for mlflow, wandb (offline) or tensorboard."
    )
    notify: str | None = option(
        "URL|COMMAND", "Tell it how this ended: a POST, or on its stdin, of a JSON document."
    )
    no_estimate: bool = switch("Measure nothing before the work to foretell it.")
    hang_limit: HangLimit = None

    def request(self, kind: type[Asked], **own: Any) -> Asked:
        """As of `WorkOptions`."""
        hang_limit_s = duration_s(self.hang_limit, "--hang-limit")
        estimate = not self.no_estimate
        return WorkOptions.request(self, kind, estimate=estimate, hang_limit_s=hang_limit_s, **own)
