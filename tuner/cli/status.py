"""`tuner status`: where the studies stand."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.options import Json, Storage, storage_url
from tuner.cli.output import print_json
from tuner.errors import INTERRUPTED, EmptyDatabaseError, UsageError

if TYPE_CHECKING:
    from tuner.storage import Database
    from tuner.study import OpenStudy

WATCH_S = 2.0


def status(
    study: Annotated[str | None, typer.Option(metavar="NAME", help="This study alone (default: all).")] = None,
    storage: Storage = None,
    watch: Annotated[bool, typer.Option("--watch", help="Stay and refresh; end with Ctrl-C.")] = False,
    json: Json = False,
) -> int:
    """Show studies: trials, front, hypervolume, workers."""
    from tuner.storage import absolute, open_database, parse_url
    from tuner.study import list_studies, open_study
    from tuner.study.status import status_of

    if watch and json:
        raise UsageError("--watch and --json exclude each other; choose one")
    address = absolute(parse_url(storage_url(storage)))
    if address.is_sqlite and not address.sqlite_path.exists():
        return _nothing_yet(str(address), json=json)
    try:
        database = open_database(address, create=False)
    except EmptyDatabaseError:
        return _nothing_yet(str(address), json=json)
    try:
        names = list_studies(database) if study is None else [study]
        opened = [open_study(database, name) for name in names]
        if json:
            print_json({"storage": str(address), "studies": [status_of(each) for each in opened]})
        elif not opened:
            return _nothing_yet(str(address), json=False)
        elif watch:
            return _watch(database, study)
        else:
            from tuner.view import print_status

            print_status(opened)
    finally:
        database.close()
    return 0


def _nothing_yet(address: str, *, json: bool) -> int:
    if json:
        print_json({"storage": address, "studies": []})
    else:
        typer.echo(f"no studies yet in {address}; start one with: tuner launch --variant rmsnorm")
    return 0


def _watch(database: Database, study: str | None) -> int:
    """Until Ctrl-C, which is how one leaves: no error. Studies that begin meanwhile join in."""
    from tuner.study import list_studies, open_study
    from tuner.view import live_view

    known: dict[str, OpenStudy] = {}

    def find() -> list[OpenStudy]:
        for name in [study] if study else list_studies(database):
            if name not in known:
                known[name] = open_study(database, name)
        return list(known.values())

    try:
        with live_view(find, stderr=False, footer="Ctrl-C leaves", stay=True) as view:
            while True:
                view.refresh()
                time.sleep(WATCH_S)
    except KeyboardInterrupt:
        return INTERRUPTED
