"""`tuner db`: making a database ready, looking it over, copying it."""

from __future__ import annotations

from pathlib import Path

import typer

from tuner.cli.command import argument, command, switch
from tuner.cli.options import Json, Storage, storage_address
from tuner.cli.output import print_json, say

app = typer.Typer(help="Make the database ready, look it over, back it up.", no_args_is_help=True)


@app.command()
def init(storage: Storage = None) -> int:
    """Create the tables. A launch does it too, but then its role must be allowed to."""
    from tuner.storage.database import initialise
    from tuner.storage.schema import SCHEMA_VERSION

    address = storage_address(storage)
    made = initialise(address)
    say(f"{address} {'is ready' if made else 'was ready already'}: version {SCHEMA_VERSION}")
    return 0


@app.command(short_help="Look the database over; exit 1 when something is wrong.")
@command
def check(
    storage: Storage = None,
    repair: bool = switch(
        "First put right what other programs changed or deleted; say what was done."
    ),
    json: Json = False,
) -> int:
    """Look at versions, counts and whether all agrees; exit 1 when something is wrong. Changes
    nothing by itself.

    With --repair, what tuner recorded is restored in Optuna's tables, and what is left of studies
    that were deleted by other means is written to a file each, then removed. Trials of other
    programs stay as they are.
    """
    from tuner.storage.check import check_database

    address = storage_address(storage)
    done: tuple[str, ...] = ()
    if repair:
        from tuner.study.housekeeping import repair as repair_database
        from tuner.worker.paths import working_folder

        done = repair_database(address, working_folder(address))
    report = check_database(address)
    if json:
        print_json(report.as_dict() | ({"repaired": list(done)} if repair else {}))
        return 0 if report.healthy else 1
    for line in done or (("nothing to repair",) if repair else ()):
        say(line)
    say(report.storage)
    say(report.server)
    say(f"tables: version {report.version or 'none'} (this tuner: {report.expected_version})")
    say(
        f"Optuna's tables: {report.optuna_version or 'none'} (this Optuna: "
        f"{report.expected_optuna_version})"
    )
    if report.counts:
        say(
            ", ".join(
                f"{name.replace('_', ' ')} {number}" for name, number in report.counts.items()
            )
        )
    for finding in report.findings:
        say(f"{finding.level}: {finding.what}")
    if not report.findings:
        say("everything agrees")
    return 0 if report.healthy else 1


@app.command()
@command
def backup(
    file: Path = argument(None, "Where the copy goes."),
    storage: Storage = None,
    force: bool = switch("Write over FILE if it is there."),
) -> int:
    """Copy the whole database to FILE while workers go on: an SQLite file, or, of PostgreSQL, what
    pg_dump writes for pg_restore.
    """
    from tuner.storage.database import back_up

    address = storage_address(storage)
    back_up(address, file, overwrite=force)
    size = file.stat().st_size
    say(f"{file} holds {address} as it was when this began ({size / 1e6:.1f} MB)")
    return 0
