"""`tuner status`: where the studies stand."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import Json, Storage, is_named, storage_url
from tuner.cli.output import print_json, say
from tuner.display.text import command_line
from tuner.errors import INTERRUPTED, EmptyDatabaseError, StudyGoneError, UsageError, unknown_name

if TYPE_CHECKING:
    from tuner.storage.database import Database
    from tuner.storage.url import DatabaseUrl
    from tuner.study.open import OpenStudy

WATCH_S = 2.0


def status(
    study: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="This study alone, or group:NAME (default: all)."),
    ] = None,
    storage: Storage = None,
    watch: Annotated[
        bool, typer.Option("--watch", help="Stay and refresh; end with Ctrl-C.")
    ] = False,
    json: Json = False,
) -> int:
    """Show studies: trials, front, hypervolume, workers."""
    from tuner.report.study_status import groups_of, status_of
    from tuner.storage.database import open_database
    from tuner.storage.url import absolute, parse_url
    from tuner.study.group import studies_meant
    from tuner.study.open import list_studies, open_study

    if watch and json:
        raise UsageError("--watch and --json exclude each other; choose one")
    address = absolute(parse_url(storage_url(storage)))
    if address.is_sqlite and not address.sqlite_path.exists() and not is_named(storage):
        return _nothing_yet(address, study, storage, json=json)
    try:
        database = open_database(address, create=False)
    except EmptyDatabaseError:
        return _nothing_yet(address, study, storage, json=json)
    try:
        names = list_studies(database) if study is None else studies_meant(database, study)
        opened = [open_study(database, name) for name in names]
        if json:
            found = {"studies": [status_of(each) for each in opened], "groups": groups_of(opened)}
            print_json({"storage": str(address), **found})
        elif not opened:
            return _nothing_yet(address, study, storage, json=False)
        elif watch:
            return _watch(database, study)
        else:
            from tuner.report.terminal.tables import print_status

            print_status(opened)
    finally:
        database.close()
    return 0


def _nothing_yet(address: DatabaseUrl, study: str | None, flag: str | None, *, json: bool) -> int:
    """A database that nobody has launched into is a beginning, no failure; that a study is not
    there is one.

    Raises:
        UsageError: a study was named.
    """
    if study is not None:
        raise unknown_name("study", study, [], more=f" in {address}; 'tuner launch' creates one")
    if json:
        print_json({"storage": str(address), "studies": [], "groups": []})
    else:
        there = [] if flag is None or address.holds_secrets else ["--storage", flag]
        launch = command_line(["tuner", "launch", "--variant", "rmsnorm", *there])
        say(f"no studies yet in {address}; start one with: {launch}")
    return 0


def _watch(database: Database, study: str | None) -> int:
    """Until Ctrl-C, which is how one leaves: no error. Studies that begin meanwhile join in."""
    from tuner.report.terminal.live import live_view
    from tuner.report.terminal.tables import print_status
    from tuner.study.group import studies_meant
    from tuner.study.open import list_studies, open_study

    known: dict[str, OpenStudy] = {}
    wanted = studies_meant(database, study) if study is not None else None

    def find() -> list[OpenStudy]:
        names = list_studies(database)
        for name in names if wanted is None else wanted:
            if name not in known:
                known[name] = open_study(database, name)
            elif wanted is not None and name not in names:
                raise StudyGoneError.of(name)
        return [each for name, each in known.items() if name in names]

    def say_where_it_stands() -> None:
        print_status(find())

    try:
        with live_view(
            find,
            stderr=False,
            footer="Ctrl-C leaves",
            stay=True,
            before_lines=say_where_it_stands,
        ) as view:
            while True:
                view.refresh()
                time.sleep(WATCH_S)
    except KeyboardInterrupt:
        return INTERRUPTED
