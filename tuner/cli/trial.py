"""`tuner trial`: everything about one trial."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tuner.cli.command import argument, command, option
from tuner.cli.options import Json, Storage, storage_url
from tuner.cli.output import print_json
from tuner.errors import UsageError

if TYPE_CHECKING:
    from tuner.storage.database import Database


@command
def trial(
    number: int = argument("NUMBER", "The trial's number in its study.", min=0),
    study: str | None = option(
        "NAME", "Its study; may be left out where the database has one only."
    ),
    storage: Storage = None,
    json: Json = False,
) -> int:
    """Show one trial: parameters, values, curve, attempts, device, versions, and why it ended."""
    from tuner.report.terminal.trial_sections import print_trial
    from tuner.report.trial_detail import read_trial
    from tuner.storage.database import open_database
    from tuner.storage.url import absolute, parse_url
    from tuner.study.open import open_study

    database = open_database(absolute(parse_url(storage_url(storage))), create=False)
    try:
        detail = read_trial(open_study(database, study or _only_study(database)), number)
    finally:
        database.close()
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
