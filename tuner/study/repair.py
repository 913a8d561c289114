"""Putting right what other programs did to our studies; it says what it does, and nothing computed
is lost by it.
"""

from __future__ import annotations

from pathlib import Path

from tuner.errors import TunerError
from tuner.storage.changed import changed_trials, restore
from tuner.storage.check import orphaned, remove, save
from tuner.storage.database import Database, open_database
from tuner.storage.optuna.private import names_by_id
from tuner.storage.records import damage_named
from tuner.storage.url import DatabaseUrl
from tuner.study.open import list_studies, open_study


def repair(address: DatabaseUrl, folder: Path) -> tuple[str, ...]:
    """Restore Optuna's record of our trials from our own,
    and clear away what is left of deleted studies.

    What is left of a deleted study is first written to a file in `folder`. Trials of other programs
    stay as they are.

    Returns:
        What was done, a sentence each; empty when there was nothing to do.

    Raises:
        StorageError: the database cannot be reached or changed, or the file not be written.
    """
    database = open_database(address, create=False)
    try:
        done = []
        for name in list_studies(database):
            done += _tell_and_put_back(database, name)
        with database.engine.begin() as connection:
            names = names_by_id(connection)
            for changed in list(changed_trials(connection)):
                trial = f"{names.get(changed.study_id)} trial {changed.number}"
                if restore(connection, changed):
                    done.append(f"restored {trial}: {changed.what}")
                else:
                    done.append(
                        f"left {trial} without a row of Optuna's: another trial has its number; "
                        "its result stays in tuner's record"
                    )
        return (*done, *_clear_away(database, folder))
    finally:
        database.close()


def _tell_and_put_back(database: Database, name: str) -> list[str]:
    """What any launch does first; nothing where the study is damaged."""
    try:
        opened = open_study(database, name)
        with damage_named(database.engine, opened.study_id):
            opened.ledger.settle()
            strays = opened.ledger.return_strays()
    except TunerError as error:
        return [f"left {name} as it is: {error}"]
    return [f"put back {strays} trials of {name} that ran for nobody"] if strays else []


def _clear_away(database: Database, folder: Path) -> list[str]:
    """Save and remove what is left of deleted studies."""
    done = []
    with database.engine.connect() as connection:
        found = orphaned(connection)
    for orphan in found:
        if orphan.running:
            done.append(
                f"left {orphan.described}: {orphan.running} runs are still at work; repair again "
                "after them"
            )
            continue
        with database.engine.begin() as connection:
            path = save(connection, orphan, folder)
            remove(connection, orphan)
        done.append(f"removed what was left of {orphan.described}, all of it saved to {path}")
    return done
