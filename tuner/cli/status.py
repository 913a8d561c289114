"""`tuner status`, `tuner trial` and `tuner dashboard`: how studies and their trials stand."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Container, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tuner.cli.command import argument, command, option, switch
from tuner.cli.options import (
    Json,
    Storage,
    is_named,
    opened_database,
    storage_address,
    storage_url,
    studies,
)
from tuner.cli.output import note, print_json, say
from tuner.display.text import command_line
from tuner.errors import (
    EmptyDatabaseError,
    StorageError,
    StudyGoneError,
    UsageError,
    exit_code_of,
    unknown_name,
)
from tuner.files.environment import nothing_collected

if TYPE_CHECKING:
    from tuner.report.study_status import Standing
    from tuner.storage.database import Database
    from tuner.storage.optuna.trials import OtherStudy
    from tuner.storage.url import DatabaseUrl
    from tuner.study.open import OpenStudy


WATCH_S = 2.0


@command
def status(
    study: str | None = studies("default: all"),
    storage: Storage = None,
    watch: bool = switch("Stay and refresh; end with Ctrl-C."),
    json: Json = False,
) -> int:
    """Show studies: trials, front, hypervolume, workers."""
    with nothing_collected():  # looking through all that is imported here takes a tenth of it all
        from tuner.report.study_status import groups_of, standing
        from tuner.storage.database import open_database
        from tuner.storage.optuna.trials import studies_of_others
        from tuner.study.open import list_studies
        from tuner.study.snapshot import studies_meant

    if watch and json:
        raise UsageError("--watch and --json exclude each other; choose one")
    address = storage_address(storage)
    if address.is_sqlite and not address.sqlite_path.exists() and not is_named(storage):
        return _nothing_yet(address, study, storage, json=json)
    try:
        database = open_database(address, create=False)
    except EmptyDatabaseError:
        return _nothing_yet(address, study, storage, json=json)
    try:
        names = list_studies(database) if study is None else studies_meant(database, study)
        found = standing(database, names)
        others = studies_of_others(database.engine, names) if study is None else []
        if study is not None and found.unreadable:
            raise StorageError(next(iter(found.unreadable.values())))
        if json:
            document = {"studies": list(found.statuses.values()), "groups": groups_of(found.opened)}
            damaged = {"unreadable": dict(found.unreadable)} if found.unreadable else {}
            print_json({"storage": str(address), **document, "others": _in_json(others), **damaged})
        elif not names:
            return _nothing_yet(address, study, storage, json=False)
        elif watch and found.opened:
            _say_unreadable(found)
            return _watch(database, study, leave_out=found.unreadable)
        elif found.opened:
            from tuner.report.terminal.tables import print_status

            print_status(found.opened, found.statuses)
        _say_others(address, () if json else others)
        _say_unreadable(found)
    finally:
        database.close()
    return StorageError.exit_code if found.unreadable else 0


def _say_others(address: DatabaseUrl, others: Sequence[OtherStudy]) -> None:
    """Studies that tuner did not launch, as what they are."""
    for each in others:
        say(f"{each.name}: {each.in_words}")
    if theirs := [each.name for each in others if each.is_foreign]:
        words = ["tuner", "confirm", str(address), "--study", theirs[0]]
        say(f"to confirm one: {command_line([*words, '--objective', 'FILE.py:NAME'])}")


def _in_json(others: Sequence[OtherStudy]) -> list[dict[str, Any]]:
    return [asdict(each) for each in others]


def _say_unreadable(found: Standing) -> None:
    """A line for each study that cannot be read; that of the first is the last, and what failed."""
    lines = [" ".join(why.splitlines()) for why in found.unreadable.values()]
    for line in reversed(lines[1:]):
        note(line)
    for line in lines[:1]:
        note(f"error: {line}")


def _nothing_yet(address: DatabaseUrl, study: str | None, flag: str | None, *, json: bool) -> int:
    """A database that nobody has launched into is a beginning, no failure; that a study is not
    there is one.

    Raises:
        UsageError: a study was named.
    """
    if study is not None:
        raise unknown_name("study", study, [], more=f" in {address}; 'tuner launch' creates one")
    others: Sequence[OtherStudy] = ()
    if not address.is_sqlite or address.sqlite_path.exists():
        from tuner.storage.database import read_only_storage
        from tuner.storage.optuna.trials import studies_of_others

        with (
            contextlib.suppress(EmptyDatabaseError),
            contextlib.closing(read_only_storage(address)) as database,
        ):
            others = studies_of_others(database.engine, ())
    if json:
        none = {"studies": [], "groups": [], "others": _in_json(others)}
        print_json({"storage": str(address), **none})
    elif others:
        _say_others(address, others)
    else:
        there = [] if flag is None or address.holds_secrets else ["--storage", flag]
        launch = command_line(["tuner", "launch", "--variant", "rmsnorm", *there])
        say(f"no studies yet in {address}; start one with: {launch}")
    return 0


def _watch(database: Database, study: str | None, *, leave_out: Container[str] = ()) -> int:
    """Until Ctrl-C, which is how one leaves: no error. Studies that begin meanwhile join in; those
    to `leave_out` cannot be read.
    """
    from tuner.report.terminal.live import live_view
    from tuner.report.terminal.tables import print_status
    from tuner.study.open import list_studies, open_study
    from tuner.study.snapshot import studies_meant

    known: dict[str, OpenStudy] = {}
    wanted = studies_meant(database, study) if study is not None else None

    def find() -> list[OpenStudy]:
        names = [name for name in list_studies(database) if name not in leave_out]
        for name in names if wanted is None else wanted:
            if name in names and not (name in known and known[name].is_there()):
                known[name] = open_study(database, name)
            elif wanted is not None and name not in names:
                raise StudyGoneError.of(name)
        return [each for name, each in known.items() if name in names]

    def say_where_it_stands() -> None:
        print_status(find())

    try:
        with live_view(
            find, stderr=False, footer="Ctrl-C leaves", stay=True, before_lines=say_where_it_stands
        ) as view:
            while True:
                view.refresh()
                time.sleep(WATCH_S)
    except KeyboardInterrupt as error:
        return exit_code_of(error)


# `tuner trial`: everything about one trial.


@command
def trial(
    number: int = argument("NUMBER", "The trial's number in its study.", min=0),
    study: str | None = option("NAME", "The study (default: the only one)."),
    storage: Storage = None,
    json: Json = False,
) -> int:
    """Show one trial: parameters, values, curve, attempts, device, versions, and why it ended."""
    from tuner.report.study_status import read_trial
    from tuner.report.terminal.trial_sections import print_trial
    from tuner.study.open import open_study
    from tuner.study.snapshot import study_meant

    with opened_database(storage_url(storage)) as database:
        name = study_meant(database, study) if study else _only_study(database)
        detail = read_trial(open_study(database, name), number)
    if json:
        print_json(detail.as_dict())
    else:
        print_trial(detail)
    return 0


def _only_study(database: Database) -> str:
    from tuner.study.open import list_studies

    names = list_studies(database)
    if len(names) != 1:
        there = ", ".join(names) if names else "none"
        raise UsageError(f"which study's trial? name it by --study; there are: {there}")
    return names[0]


# `tuner dashboard`: optuna-dashboard on our storage, read-only.


@command
def dashboard(
    port: int = option("N", "Port; 0 takes a free one.", default=8080, min=0, max=65535),
    host: str = option(
        "ADDRESS", "Address to listen on; loopback unless you say otherwise.", default="127.0.0.1"
    ),
    allow_host: list[str] | None = option(
        "NAME", "Another name that browsers may call it by; repeatable. Loopback always may."
    ),
    storage: Storage = None,
) -> int:
    """Show the studies in a browser, read-only, until Ctrl-C."""
    from tuner.report.dashboard.server import serve

    try:
        address = storage_address(storage)
        serve(address, host=host, port=port, allowed=allow_host or (), announce=note)
    except KeyboardInterrupt as error:  # how it ends, not a failure
        return exit_code_of(error)
    return 0
