"""Putting right what other programs did to our studies; it says what it does, and nothing computed
is lost by it.
"""

from __future__ import annotations

from pathlib import Path

from optuna.trial import TrialState
from sqlalchemy import Connection, insert, select

from tuner.errors import TunerError
from tuner.storage.check import orphaned, remove, save
from tuner.storage.database import Database, open_database
from tuner.storage.optuna import rows as optuna_rows
from tuner.storage.optuna.changed import changed_trials, restore
from tuner.storage.optuna.private import TRIALS, names_by_id
from tuner.storage.records import TrialResult, cell, damage_named
from tuner.storage.schema import claims
from tuner.storage.url import DatabaseUrl
from tuner.study.open import OpenStudy, list_studies, open_study


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
                restore(connection, changed)
                done.append(
                    f"restored {names.get(changed.study_id)} trial {changed.number}: {changed.what}"
                )
        return (*done, *_clear_away(database, folder))
    finally:
        database.close()


def _tell_and_put_back(database: Database, name: str) -> list[str]:
    """What any launch does first, and trials with a result whose rows were deleted; nothing where
    the study is damaged.
    """
    try:
        opened = open_study(database, name)
        with damage_named(database.engine, opened.study_id):
            return _put_back(database, opened)
    except TunerError as error:
        return [f"left {name} as it is: {error}"]


def _put_back(database: Database, opened: OpenStudy) -> list[str]:
    opened.ledger.settle()
    strays = opened.ledger.return_strays()
    done = [f"put back {strays} trials of {opened.name} that ran for nobody"] if strays else []
    with database.engine.begin() as connection:
        c = claims.c
        row = select(TRIALS.c.trial_id).where(TRIALS.c.trial_id == c.trial_id).exists()
        mine = (c.study_id == opened.study_id) & (c.state == "finished") & ~row
        query = select(c.trial_id, c.trial_number, c.result).where(mine).order_by(c.trial_number)
        for trial_id, number, text in connection.execute(query).all():
            with cell("tuner_claims.result", number):
                result = TrialResult.from_json(text)
            done.append(_made_again(connection, opened, trial_id, number, result))
    return done


def _made_again(
    connection: Connection, opened: OpenStudy, trial_id: int, number: int, result: TrialResult
) -> str:
    """A trial with a result gets a row of Optuna's again."""
    taken = (TRIALS.c.study_id == opened.study_id) & (TRIALS.c.number == number)
    if connection.execute(select(TRIALS.c.trial_id).where(taken)).first() is not None:
        return (
            f"left {opened.name} trial {number} without a row of Optuna's: another trial has its "
            "number; "
            "its result stays in tuner's record"
        )
    row = {"trial_id": trial_id, "study_id": opened.study_id, "number": number}
    connection.execute(insert(TRIALS).values(state=TrialState.RUNNING, **row))
    space = opened.definition.space
    if parameters := space.complete(result.params or {}):
        optuna_rows.write_parameters(connection, trial_id, parameters, space.stored())
    optuna_rows.write_result(connection, trial_id, result, found=TrialState.RUNNING)
    return f"put {opened.name} trial {number} back, whose row was deleted"


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
