"""Beginning a study with what others found: the configurations of their fronts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.config import MqlSplit
from tuner.errors import TunerError, UsageError
from tuner.record import Recorded
from tuner.search.history import configuration, known_params
from tuner.spec.definition import StudyDefinition
from tuner.storage.database import Database
from tuner.study.named import snapshot_named
from tuner.study.open import OpenStudy
from tuner.study.results import TrialRecord


@dataclass(frozen=True, slots=True)
class Front:
    """The front of a study, to begin another one with."""

    study: str
    definition: StudyDefinition
    records: tuple[TrialRecord, ...]


def fronts_of(database: Database, names: str) -> tuple[Front, ...]:
    """The fronts of studies `NAME[,NAME]`, as `snapshot_named` understands each name.

    Raises:
        UsageError: no such study or file.
        TunerError: a study without a finished trial.
    """
    fronts = []
    for name in (part.strip() for part in names.split(",")):
        if not name:
            raise UsageError(
                f"--warm-start: {names!r} holds an empty name; expected e.g. "
                "etth-original,etth-simple"
            )
        found = snapshot_named(name, lambda: database)
        results = found.results
        if not results.front:
            raise TunerError(
                f"--warm-start: study {name!r} has no finished trial to begin with yet"
            )
        fronts.append(Front(name, found.definition, results.front))
    return tuple(fronts)


def refuse_what_saw_last_block(definition: StudyDefinition, fronts: Sequence[Front]) -> None:
    """Raises UsageError where a study keeps its last block of the test split, and a front was
    chosen by that block of the same data.
    """
    for front in fronts:
        theirs = front.definition
        saw = theirs.mql_split == MqlSplit.TEST and theirs.data_hash == definition.data_hash
        if definition.keeps_last_block and saw:
            raise UsageError(
                f"--warm-start: study {front.study!r} chose by the whole test split, of which "
                f"--mql-split {MqlSplit.ORIGINS} keeps the last block unseen; expected a study "
                "searched with --mql-split origins or val"
            )


def warm_start_with(opened: OpenStudy, fronts: Sequence[Front]) -> str:
    """Enqueue the configurations of `fronts` that the study has not had, moved into its space; says
    what it did.

    Doing it again adds nothing.
    """
    space, default = opened.definition.space, opened.definition.defaults.as_dict()
    had = {
        configuration(params)
        for trial in opened.optuna.get_trials(deepcopy=False)
        if (params := known_params(trial))
    }
    added = moved = 0
    for front in fronts:
        for record in front.records:
            params = space.nearest(record.params, default)
            if configuration(params) in had:
                continue
            had.add(configuration(params))
            changed = configuration(params) != configuration(record.params)
            origin = f"{front.study}, trial {record.number}" + (
                ", moved into the space" if changed else ""
            )
            opened.optuna.enqueue_trial(params, user_attrs=Recorded(warm_start=origin).to_flat())
            added, moved = added + 1, moved + changed
    total = sum(len(front.records) for front in fronts)
    names = ", ".join(front.study for front in fronts)
    return (
        f"{opened.name} tries {added} of the {total} front configurations of {names} first"
        + (f" ({moved} moved into its space)" if moved else "")
        + ("" if added == total else "; it has had the others")
    )
