"""`load_best`: from a study's name, wherever it is kept, to one configuration."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

from tuner.data.task import load_task
from tuner.errors import TunerError, UsageError
from tuner.export.best_config import BestConfig
from tuner.export.pick import (
    SAME_QUALITY,
    Asked,
    Picked,
    of_split,
    pick_of_group,
    recommendation_of,
)
from tuner.files.arguments import NUMBER, PATH, TEXT, TRUTH, WHOLE, takes_kinds
from tuner.files.kinds import In
from tuner.files.plain import in_json
from tuner.spec.definition import StudyDefinition
from tuner.spec.membership import Membership, seeds_of
from tuner.spec.study_file import builtin_variants, load_study_file
from tuner.storage.database import Database, open_database
from tuner.storage.url import DEFAULT_URL, absolute, parse_url
from tuner.study.archive import is_archive_name, read_archive
from tuner.study.code import untrusted_origin, with_code
from tuner.study.open import open_study
from tuner.study.results import TrialRecord
from tuner.study.snapshot import Group, StudySnapshot, grouped, searches_of, snapshot, studies_meant
from tuner.verdict.compare.studies import read_studies
from tuner.verdict.confirmation import confirmation_of
from tuner.verdict.reasons import confirmed_sentence
from tuner.verdict.retune_cost import gain_in_words
from tuner.verdict.verified import verified_in
from tuner.version import __version__

DEFAULT_TASK = "etth"
_FLAG = re.compile(
    r"--(pick|values|margin|against|max-time|max-mql|trial|study)"
    r"(?: (same-quality|mql|time|knee|single|expected|verified)\b)?"
)


@takes_kinds(
    variant=PATH, pick=TEXT, values=TEXT, margin=NUMBER, against=PATH, task=PATH, study=TEXT,
    storage=PATH, max_time=NUMBER, max_mql=NUMBER, trial=WHOLE, trust=TRUTH,
)  # fmt: skip
def load_best(
    variant: str | Path | None = None,
    *,
    pick: str = SAME_QUALITY,
    values: str | None = None,
    margin: float | None = None,
    against: str | Path | None = None,
    task: str | Path = DEFAULT_TASK,
    study: str | None = None,
    storage: str | Path | None = None,
    max_time: float | None = None,
    max_mql: float | None = None,
    trial: int | None = None,
    trust: bool = False,
) -> BestConfig:
    """The configuration that is recommended of a variant's study, or a point of its front.

    Args:
        variant: built-in name, or a study file; not needed where `study` is given.
        pick: `same-quality`, what saves most time of all that is surely enough as good as the
            default, the default itself where nothing faster is; or of the front `mql` (lowest MQL),
            `time` (fewest seconds) or `knee` (nearest to both).
        values: which front: `single` (of single runs), `expected` (of what all runs together
            expect; what `tuner verify --choose expected` chose, where it did and there are no
            bounds) or `verified` (medians over fresh seeds). Without it the expected one, while
            trials are too few for that the one of single runs.
        margin: how much above the default's an MQL is as good, such as 0.01; the study's if None.
        against: another study whose default is to be matched: a variant, `study:NAME`, or a file.
        task: the study's task, to find its default name; as a file, also where the data lies. The
            file of an exported study says itself which it is.
        study: the study's name, or `group:NAME`; without it all searches of `<task>-<variant>`, and
            the configuration says of which one it is.
        storage: database URL (`sqlite:///storage/tuner.db`), or the file of an exported study.
        max_time: at most this many seconds, by the values that are chosen on.
        max_mql: at most this MQL, likewise.
        trial: this complete trial, on the front or not, whatever else is said; of one of several
            searches where `study` names it.
        trust: let the code that an exported study names run, also of one that was imported, where
            the configuration is built or trained. To read, print or write it runs nothing.

    Raises:
        UsageError: an unknown name, a value of another type, or words that exclude each other.
        TunerError: too few trials yet, nothing within the bounds, or a trial without a result.
        StorageError: the database cannot be read.

    >>> best = load_best(study="quick", pick="knee", storage="sqlite:///quick.db")
    >>> sorted(best.params)
    ['batch_size', 'dropout', 'hidden_size', 'learning_rate', 'weight_decay']
    """
    variant, task = None if variant is None else str(variant), str(task)
    storage, against = (None if each is None else str(each) for each in (storage, against))
    try:
        wanted = Asked(
            pick=pick,
            values=values,
            margin=margin,
            against=against,
            bounds=(max_time, max_mql),
            trial=trial,
        )
        return best_of(wanted, variant, task=task, study=study, storage=storage, trust=trust)
    except TunerError as error:
        error.args = (_FLAG.sub(_as_argument, str(error)),)
        raise


def best_of(
    wanted: Asked,
    variant: str | None,
    *,
    task: str,
    study: str | None,
    storage: str | None,
    trust: bool = False,
) -> BestConfig:
    """The same for a command: what it raises names flags."""
    described = load_task(task)
    found = _found(variant, study, storage, described.name, named=task != DEFAULT_TASK)
    search, picked = pick_of_group(found, wanted, lambda n: _reference(n, task, storage))
    config = config_of(search, picked, searches=found.size)
    if described.definition() == found.definition.task:  # it says where the study's data lies
        config = dataclasses.replace(config, source=described.source.model_dump(mode="json"))
    if not config.definition.own_code:
        return config
    if storage is not None and is_archive(storage):
        return config if trust else dataclasses.replace(config, untrusted=storage)
    return _with_code(config, storage, trust=trust)


def _as_argument(flag: re.Match[str]) -> str:
    """As `load_best` takes it."""
    return f"{flag[1].replace('-', '_')}={'' if flag[2] is None else repr(flag[2])}"


def _with_code(config: BestConfig, storage: str | None, *, trust: bool) -> BestConfig:
    """With code of somebody's own as this host has it, or may have it from the database; else with
    why it may not or cannot run here, which only matters to who builds or trains it.
    """
    with closing(_opened(storage)) as database:
        opened = open_study(database, config.study)
        if (origin := untrusted_origin(opened)) and not trust:
            stranger = f"study {opened.name!r}, which came from {origin},"
            config = dataclasses.replace(config, untrusted=stranger)
        try:
            definition = with_code(opened, trust=trust).definition
        except UsageError as error:
            return dataclasses.replace(config, no_code=str(error))
    return dataclasses.replace(config, definition=definition)


def config_of(study: StudySnapshot, picked: Picked, *, searches: int = 1) -> BestConfig:
    """What was picked of one of the searches, with what its study says of it."""
    definition, record, expected = study.definition, picked.record, picked.expected
    assert record.values is not None, "a configuration is that of a complete trial"
    number = study.configuration(record.number).number
    fresh = verified_in(study).get(number)
    clock, error = definition.objectives
    return BestConfig(
        variant=definition.variant,
        task=definition.task_name,
        study=study.name,
        trial=record.number,
        pick=picked.pick,
        chosen_on=None if picked.chosen_on is None else picked.chosen_on.value,
        why=of_split(picked.why, error),
        notes=tuple(of_split(each, error) for each in picked.notes),
        expected=None
        if expected is None
        else {clock: expected.seconds, error: expected.mql, "runs": expected.runs},
        recommendation=recommendation_of(picked, definition.objectives),
        params=dict(record.params),
        values=record.named_values or {},
        verified=None if fresh is None else fresh.as_dict(),
        unverified="" if fresh is None else fresh.without_figures,
        confirmed=_confirmed(study, number),
        baselines=study.results.baselines,
        runs=tuple(record.recorded.mql_runs or ()),
        provenance=_provenance(definition, record, study.membership, searches),
        definition=definition,
    )


def _provenance(
    definition: StudyDefinition, record: TrialRecord, place: Membership, searches: int
) -> dict[str, Any]:
    """How, where and on what it was trained."""
    seeds: list[int] = []
    for trial in record.each_trial:
        seeds += seeds_of(
            trial.recorded, trial.number, repeats=definition.seeds_per_trial, root=place.seed_root
        )
    found = record.recorded.kept_in(In.PROVENANCE) | {
        "seeds": seeds,
        "training_windows": record.recorded.epoch_windows,
        **in_json(place, "group", "search", "draw"),
        "searches": searches,
        "data_hash": definition.data_hash,
        "definition_hash": definition.identity(),
        "mql_split": definition.mql_split,
        "ended": record.ended,
        "exported_by": f"tuner {__version__}",
    }
    if definition.objectives[1] != "test_mql" and record.recorded.test_mql is not None:
        found["test_mql"] = record.recorded.test_mql  # as are figures of fresh seeds
    if record.recorded.column_test_mql:
        found["test_mql_of"] = dict(record.recorded.column_test_mql)
    if record.runs > 1:
        found |= {"runs": record.runs, "trials": list(record.numbers)}
    return found


def _reference(name: str, task: str, storage: str | None) -> StudySnapshot:
    """The study whose default another one is held against."""
    if storage is not None and is_archive(storage) and not is_archive(name):
        raise UsageError(
            f"--against {name}: where the study is a file, name the file of the other exported "
            "study"
        )
    found = read_studies([name], task=task, storage=storage or DEFAULT_URL)
    if len(found) > 1:
        raise UsageError(f"--against {name} names several studies; name one")
    return found[0]


def _found(
    variant: str | None, study: str | None, storage: str | None, task: str, *, named: bool
) -> Group[StudySnapshot]:
    """The study, or the searches, that were asked for. `named`: somebody named the task: it has to
    be the file's.
    """
    same_task = task if named else None
    if storage is not None and is_archive(storage):
        held_by = snapshot(read_archive(Path(storage)))
        if study not in (None, held_by.name):
            raise UsageError(
                f"{storage} holds the study {held_by.name!r}, not {study!r}; name that one, or "
                "another file"
            )
        _refuse_other(held_by, variant=variant, task=same_task, file=storage)
        return grouped([held_by])[0]
    if study is not None:
        found = _in_database(studies_meant, study, storage)
        for each in found.members:
            _refuse_other(each, variant=variant, task=same_task)
        return found
    if variant is None:
        raise UsageError(
            "name the variant, e.g. load_best('rmsnorm') or --variant rmsnorm, or the study"
        )
    unknown: UsageError | None = None
    try:
        name = _variant_name(variant)
    except UsageError as error:
        name, unknown = variant, error  # one of the user's own may be known by its name alone
    try:
        return _in_database(searches_of, f"{task}-{name}", storage)
    except TunerError as error:
        told = unknown or error
        if not isinstance(told, UsageError):
            raise
        more = "" if named else f"; the task is {task!r} where none is named"
        raise UsageError(f"{told}{more}") from None


def is_archive(storage: str) -> bool:
    """Whether a storage is the file of an exported study, not a database's URL."""
    return "://" not in storage and is_archive_name(storage)


def _in_database(
    meant: Callable[[Database, str], list[str]], name: str, storage: str | None
) -> Group[StudySnapshot]:
    """The studies that a name means, as one group."""
    with closing(_opened(storage)) as database:
        names = meant(database, name)
        opened = [open_study(database, each) for each in names]
        if len({each.membership.group for each in opened}) > 1:
            raise UsageError(f"{name} means studies of several groups; name one, or group:NAME")
        return grouped([snapshot(each).with_runs_read() for each in opened])[0]


def _opened(storage: str | None) -> Database:
    return open_database(absolute(parse_url(storage or DEFAULT_URL)), create=False)


def _refuse_other(
    study: StudySnapshot, *, variant: str | None, task: str | None, file: str = ""
) -> None:
    """Refuse a study that was named and is of another variant or task than was named beside it."""
    # A variant of the user's own may be called as a study has it.
    name = variant if variant in (None, study.variant) else _variant_name(variant)
    asked = (("variant", name, study.variant), ("task", task, study.definition.task_name))
    for kind, wanted, held in asked:
        if wanted not in (None, held):
            holds = f"study {study.name!r} is of" if not file else f"{file} holds"
            other = "file" if file else "study"
            raise UsageError(
                f"{holds} the {kind} {held!r}, not {wanted!r}; name that one, or another {other}"
            )


def _confirmed(found: StudySnapshot, trial: int) -> dict[str, Any] | None:
    """What the study's last confirmation found, where it was of this trial."""
    there = confirmation_of(found)
    if there is None or trial not in there.frozen.trials():
        return None
    gain = gain_in_words(there) if there.holds and trial == there.trial else None
    return there.as_dict() | {"gain": gain, "sentence": confirmed_sentence(there, name=found.name)}


def _variant_name(variant: str) -> str:
    if variant in builtin_variants():
        return variant
    return load_study_file(variant).name
