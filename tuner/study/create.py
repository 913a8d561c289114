"""Creating a study: first in Optuna's tables, then in ours.

One that was cut short in between is made again.
"""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.study import Study, StudyDirection
from optuna.trial import TrialState
from sqlalchemy import Connection, insert

from tuner.display.text import in_code, in_markdown, shown
from tuner.errors import UsageError
from tuner.spec.definition import StudyDefinition, changed_files, differences
from tuner.spec.membership import ATTRIBUTE, Membership
from tuner.spec.objectives import TIMES, TimeObjective
from tuner.spec.policy import SearchPolicy
from tuner.spec.space import SearchSpace, condition_in_words
from tuner.storage import schema
from tuner.storage.database import Database
from tuner.storage.dialects import database_now
from tuner.storage.optuna.private import storage_of, study_id_of
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
    if changed := changed_files(stored, asked):
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


CHUNK = 2045
"""Characters of a note that the dashboard keeps in one attribute."""


def save_note(study: Study, text: str) -> None:
    """Store `text` (Markdown) as the study's note.

    These are the attributes that `optuna_dashboard.save_note` writes for a study's first note.
    Importing that package for it would cost every new study more than a second (it brings
    scikit-learn); a test reads the note back with it.
    """
    storage, study_id = storage_of(study), study_id_of(study)
    for index, start in enumerate(range(0, len(text), CHUNK)):
        storage.set_study_system_attr(
            study_id, f"dashboard:note_str:{index}", text[start : start + CHUNK]
        )
    storage.set_study_system_attr(study_id, "dashboard:note_ver", 1)


def describe(definition: StudyDefinition) -> str:
    """What the study is, what its two values mean, and where its search may go. Markdown."""
    default = (
        "Trial 0 is the default configuration, unchanged: everything else is measured against it."
    )
    decay = definition.space.weight_decay
    zero = ""
    if decay is not None and decay.means_zero(0):
        zero = " A `weight_decay` of 0 means exactly none."
    return "\n".join(
        [
            f"## {in_markdown(definition.variant)} on {in_markdown(definition.task_name)}",
            (
                f"Architecture: {in_code(definition.architecture.model)} "
                f"({in_markdown(definition.core_change)})."
            ),
            *_program(definition),
            "### The two objectives, both minimised",
            _time_objective(definition),
            _error_objective(definition),
            "",
            (
                f"A trial that reached the limit of {definition.training.max_epochs} epochs has "
                "`converged` false: its time says when it was cut, not when it converged. tuner "
                "leaves it off the front; the dashboard's own plot draws it like the others."
            ),
            "### The search space",
            *_space_table(definition.space),
            "",
            default + zero,
        ]
    )


def _program(definition: StudyDefinition) -> list[str]:
    """What trains in place of tuner's loop, and whose clock it is then."""
    program = definition.program
    if program is None:
        return []
    words = (
        f"Each trial runs the program {in_code(shlex.join(program.command))}. Its times are by the "
        f"clock `{program.clock}` (docs/own-loop.md), and it stops by a rule of its own."
    )
    return ["", words, ""]


def _time_objective(definition: StudyDefinition) -> str:
    """What the seconds hold."""
    objective = TimeObjective(definition.objectives[0])
    counted = TIMES[objective].note.format(
        patience=definition.training.patience,
        min_delta=definition.training.min_delta,
        target=definition.target_val_loss or 0,
    )
    return f"- **{objective}**: {counted}"


def _error_objective(definition: StudyDefinition) -> str:
    """Which error it is, of what."""
    series = definition.task.get("objective_series")
    of = f"series {in_markdown(series)}" if series else "all series together"
    split = "validation" if definition.mql_split == "val" else "test"
    but = ", its last block left out" if definition.keeps_last_block else ""
    quality = (
        f"- **{definition.objectives[1]}**: mean quantile loss on the {split} split{but}, "
        f"in the units of the data, of {of}."
    )
    if definition.mql_split == "test":
        quality += (
            " Choosing by it is choosing on the test split: "
            "the attribute `val_mql` is recorded beside it."
        )
    if definition.keeps_last_block:
        quality += (
            " It is the mean over the blocks `test_block_mql/1` and so on; the last block is "
            "forecast by confirmations alone, and they are judged on it."
        )
    return quality


def _space_table(space: SearchSpace) -> list[str]:
    reasoned = any(span.reason for span in space.ranges.values())
    rows = ["| hyperparameter | range |" + " why |" * reasoned, "|---|---|" + "---|" * reasoned]
    for name, span in space.ranges.items():
        how = in_markdown(span.in_words())
        if span.when:
            how += f", where {in_markdown(condition_in_words(span))}"
        rows.append(
            f"| {in_markdown(name)} | {how} |"
            + (f" {in_markdown(' '.join(span.reason.split()))} |" if reasoned else "")
        )
    return rows


_MARK = "tuner_definition_hash"
MEMBERSHIP = ATTRIBUTE
"""Where a study's membership is: with Optuna's own attributes, before the study is known to us."""
_DIRECTIONS = (StudyDirection.MINIMIZE, StudyDirection.MINIMIZE)


def create_study(
    database: Database,
    name: str,
    definition: StudyDefinition,
    membership: Membership,
    *,
    trials: int,
    policy: SearchPolicy | None = None,
) -> None:
    """Create the study with its default configuration waiting."""
    study = create_bare(database, name, definition, membership)
    if beside := beside_all(definition):
        study.set_user_attr(BESIDE, beside)
    default = definition.defaults.as_dict()
    held = definition.space.held(default)
    with database.engine.begin() as connection:
        register(connection, study, definition, trials=trials, policy=policy)
        enqueue(connection, study_id_of(study), 0, default, held, {"default": True})


def create_bare(
    database: Database, name: str, definition: StudyDefinition, membership: Membership
) -> Study:
    """A study without trials, unknown to tuner until it is registered: what was cut short before
    that starts over.

    To be called under the initialisation lock.

    Raises:
        UsageError: the name is taken by a study that tuner did not make.
    """
    found = leftover(database, name)
    if found is not None:
        database.optuna.delete_study(found)
    study = optuna.create_study(
        study_name=name, storage=database.optuna, directions=list(_DIRECTIONS)
    )
    study.set_user_attr(_MARK, definition.identity())
    study.set_user_attr(MEMBERSHIP, membership.model_dump())
    study.set_user_attr("variant", definition.variant)
    study.set_user_attr("task", definition.task_name)
    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", ExperimentalWarning
        )  # its interface may change: our tests would tell
        study.set_metric_names(list(definition.objectives))
    save_note(study, describe(definition))
    return study


def register(
    connection: Connection,
    study: Study,
    definition: StudyDefinition,
    *,
    trials: int,
    policy: SearchPolicy | None = None,
) -> None:
    """Make tuner know a study; once the transaction ends, it can be run."""
    study_id = study_id_of(study)
    # SQLite gives the number of a study that was deleted by other means to the next one.
    schema.forget_study(connection, study_id)
    connection.execute(
        insert(studies).values(
            study_id=study_id,
            definition=definition.to_json(),
            definition_hash=definition.identity(),
            budget=trials,
            policy=(policy or SearchPolicy()).to_json(),
            created_at=database_now(),
        )
    )


def leftover(database: Database, name: str) -> int | None:
    """The number of a study `name` whose creation was cut short; None when the name is free.

    Raises:
        UsageError: the name is taken by a study that tuner did not make, or that holds trials tuner
            knows nothing of.
    """
    found = next(
        (each for each in database.optuna.get_all_studies() if each.study_name == name), None
    )
    if found is None:
        return None
    study_id = study_id_of(found)
    states = {trial.state for trial in database.optuna.get_all_trials(study_id, deepcopy=False)}
    # Creation may end before the mark is set; such a study has nothing at all in it.
    bare = not states and not found.user_attrs and tuple(found.directions) == _DIRECTIONS
    ours = bare or _MARK in found.user_attrs
    if not ours or not states <= {TrialState.WAITING}:
        raise UsageError(
            f"study {name!r} exists here but was not made by tuner; choose another name with "
            "--study NAME"
        )
    return study_id
