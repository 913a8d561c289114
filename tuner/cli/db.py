"""`tuner db`: making a database ready, looking it over, and moving it to a newer tuner."""

from __future__ import annotations

import typer

from tuner.cli.options import Json, Storage, storage_url
from tuner.cli.output import print_json

app = typer.Typer(help="Make the database ready, look it over, upgrade it.", no_args_is_help=True)


@app.callback()
def _root() -> None:
    """Make the database ready, look it over, upgrade it."""


@app.command()
def init(storage: Storage = None) -> int:
    """Create the tables. A launch does it too, but then its role must be allowed to."""
    from tuner.storage import absolute, parse_url
    from tuner.storage.schema import SCHEMA_VERSION
    from tuner.storage.upgrade import initialise

    address = absolute(parse_url(storage_url(storage)))
    made = initialise(address)
    typer.echo(f"{address} {'is ready' if made else 'was ready already'}: version {SCHEMA_VERSION}")
    return 0


@app.command(short_help="Look the database over; exit 1 when something is wrong.")
def check(storage: Storage = None, json: Json = False) -> int:
    """Look at versions, counts and whether all agrees; exit 1 when something is wrong. Changes nothing."""
    from tuner.storage import absolute, parse_url
    from tuner.storage.check import check_database

    report = check_database(absolute(parse_url(storage_url(storage))))
    if json:
        print_json(report.as_dict())
        return 0 if report.healthy else 1
    typer.echo(f"{report.storage}\n{report.server}")
    typer.echo(f"tables: version {report.version or 'none'} (this tuner: {report.expected_version})")
    typer.echo(f"Optuna's tables: {report.optuna_version or 'none'} (this Optuna: {report.expected_optuna_version})")
    if report.counts:
        typer.echo(", ".join(f"{name.replace('_', ' ')} {number}" for name, number in report.counts.items()))
    for finding in report.findings:
        typer.echo(f"{finding.level}: {finding.what}")
    if not report.findings:
        typer.echo("everything agrees")
    return 0 if report.healthy else 1


@app.command()
def upgrade(storage: Storage = None) -> int:
    """Move the tables of an older tuner to this one's version. Stop all workers and make a backup first."""
    from tuner.storage import absolute, parse_url
    from tuner.storage.schema import SCHEMA_VERSION
    from tuner.storage.upgrade import upgrade as upgrade_database

    address = absolute(parse_url(storage_url(storage)))
    found = upgrade_database(address)
    if found == SCHEMA_VERSION:
        typer.echo(f"nothing to do: {address} has version {found} already")
    else:
        typer.echo(f"{address} moved from version {found} to {SCHEMA_VERSION}")
    return 0
