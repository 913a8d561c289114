"""Creating a study: in Optuna's tables and in ours, in one transaction."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, insert, update

from tuner.display.text import filled, shown
from tuner.errors import UsageError
from tuner.spec.definition import StudyDefinition, changed_files, differences
from tuner.spec.membership import ATTRIBUTE, Membership
from tuner.spec.objectives import TIMES, TimeObjective
from tuner.spec.policy import SearchPolicy
from tuner.spec.space import condition_in_words
from tuner.storage import schema
from tuner.storage.database import Database
from tuner.storage.dialects import database_now
from tuner.storage.optuna import private as optuna_rows
from tuner.storage.optuna.private import ids_of
from tuner.storage.queue.claims import enqueue
from tuner.storage.schema import studies
from tuner.study.own_file import beside_all

# Refusing to go on with a study that means something else: another definition, or another network
# in the files that its class imports.


BESIDE = "tuner_imported_beside"
"""What a study's own files import from beside them: the SHA-256 of each, as it was when the study
was made. It is no part of the definition: a study of before would be another one by it."""


def refuse_if_different(
    name: str,
    stored: StudyDefinition,
    asked: StudyDefinition,
    attributes: Callable[[], Mapping[str, Any]],
) -> None:
    """Raises UsageError where the study `name`, with these `attributes`, is of another definition
    than asked for, or where a file that its class imports is no longer as it was.
    """
    if stored.identity() != asked.identity():
        raise UsageError(_other_definition(name, stored, asked))
    if here := beside_all(asked):
        refuse_changed_beside(name, attributes().get(BESIDE), here)


def refuse_changed_beside(name: str, stored: object, here: Mapping[str, Mapping[str, str]]) -> None:
    """Raises UsageError where a file that a class of the study `name` imports from beside it is not
    `here` what is `stored` of it.
    """
    if changed := _changed(stored, here):
        raise UsageError(
            f"study {name!r} was made when {' and '.join(changed)}, and its trials would not "
            "compare. Restore that, or start a new study with --study NAME"
        )


def _other_definition(name: str, stored: StudyDefinition, asked: StudyDefinition) -> str:
    what = differences(stored, asked)
    restore = "Ask for the old definition"
    if changed := changed_files(stored, asked).values():
        restore = (
            f"Restore {' and '.join(changed)} as {'it was' if len(changed) == 1 else 'they were'}"
        )
        if len(what) > len(changed):
            restore += " and ask for the old definition"
    return (
        f"study {name!r} was made with another definition and its trials would not compare: "
        f"{'; '.join(what) or 'its stored form'}. {restore}, or start a new study with --study NAME"
    )


def _changed(stored: object, here: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Which files were something else, each with who imports it. What is stored may be anything:
    nothing follows from what it is not.
    """
    if not isinstance(stored, dict):
        return []
    found = []
    for importing, files in here.items():
        before = stored.get(importing)
        if not isinstance(before, dict):
            continue
        for name, digest in files.items():
            if before.get(name, digest) != digest:
                found.append(f"{shown(name)}, which {importing} imports, was another file")
    return found


# The note that the dashboard shows beside a study: what it holds, in words, for someone who opens
# it months later.


_NOTE = Path(__file__).with_name("note.md")
CHUNK = 2045
"""Characters of a note that the dashboard keeps in one attribute."""


def _in_optuna(definition: StudyDefinition) -> dict[str, Any]:
    """The attributes by which Optuna and its dashboard name a study's values, and show its note.

    These are the ones that `Study.set_metric_names` and, for a study's first note,
    `optuna_dashboard.save_note` write. Importing that package for it would cost every new study
    more than a second (it brings scikit-learn); a test reads the note back with it.
    """
    note = describe(definition)
    found: dict[str, Any] = {_METRIC_NAMES: list(definition.objectives), "dashboard:note_ver": 1}
    for index, start in enumerate(range(0, len(note), CHUNK)):
        found[f"dashboard:note_str:{index}"] = note[start : start + CHUNK]
    return found


def describe(definition: StudyDefinition) -> str:
    """What the study is, what its two values mean, and where its search may go. Markdown."""
    program, decay = definition.program, definition.space.weight_decay
    counted = TIMES[TimeObjective(definition.objectives[0])].note.format(
        patience=definition.training.patience,
        min_delta=definition.training.min_delta,
        target=definition.target_val_loss or 0,
    )
    note = filled(
        _NOTE,
        study=definition,
        command=shlex.join(program.command) if program is not None else "",
        counted=counted,
        series=definition.task.get("objective_series"),
        reasoned=any(span.reason for span in definition.space.ranges.values()),
        condition_in_words=condition_in_words,
        zero=decay is not None and decay.means_zero(0),
    )
    return note.removesuffix("\n")


MEMBERSHIP = ATTRIBUTE
"""Where a study's membership is: with Optuna's own attributes."""
_METRIC_NAMES = "study:metric_names"


def create_study(
    database: Database,
    name: str,
    definition: StudyDefinition,
    membership: Membership,
    *,
    trials: int,
    policy: SearchPolicy | None = None,
) -> None:
    """Create the study with its default configuration waiting. To be called under the
    initialisation lock.

    Raises:
        UsageError: the name is taken by a study that tuner did not make.
    """
    default, beside = definition.defaults.as_dict(), beside_all(definition)
    held, policy = definition.space.held(default), policy or SearchPolicy()
    more = {BESIDE: beside} if beside else {}
    with database.engine.begin() as connection:
        study_id = begin_study(connection, name, definition, membership, policy, trials, **more)
        enqueue(connection, study_id, 0, default, held, {"default": True})


def begin_study(
    connection: Connection,
    name: str,
    definition: StudyDefinition,
    membership: Membership,
    policy: SearchPolicy,
    trials: int,
    **more: Any,
) -> int:
    """The number of a new study without trials, with `more` attributes. Once the transaction ends,
    Optuna and tuner know it, and it can be run.

    Raises:
        UsageError: as `create_study`.
    """
    refuse_foreign(connection, name)
    named = {"variant": definition.variant, "task": definition.task_name}
    user = {MEMBERSHIP: membership.model_dump(), **named, **more}
    study_id = optuna_rows.create_study(connection, name, user, _in_optuna(definition))
    # SQLite gives the number of a study that was deleted by other means to the next one.
    schema.forget_study(connection, study_id)
    connection.execute(
        insert(studies).values(
            study_id=study_id,
            definition=definition.to_json(),
            definition_hash=definition.identity(),
            budget=trials,
            policy=policy.to_json(),
            created_at=database_now(),
        )
    )
    return study_id


def redefine(database: Database, study_id: int, definition: StudyDefinition) -> None:
    """Let a study be `definition` from now on."""
    stored = {"definition": definition.to_json(), "definition_hash": definition.identity()}
    with database.engine.begin() as connection:
        connection.execute(update(studies).where(studies.c.study_id == study_id).values(stored))
        optuna_rows.set_of_study(connection, study_id, _in_optuna(definition))


def refuse_foreign(connection: Connection, name: str) -> None:
    """Raises UsageError where Optuna has a study of this name, which tuner does not know."""
    if ids_of(connection, [name]):
        raise UsageError(
            f"study {name!r} exists here but was not made by tuner; choose another name with "
            "--study NAME"
        )
