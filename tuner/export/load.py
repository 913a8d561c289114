"""`load_best`: from a study's name, wherever it is kept, to one configuration."""

from __future__ import annotations

import dataclasses
import re
from contextlib import closing
from pathlib import Path
from typing import Any

from tuner.data.task import Task, load_task
from tuner.errors import TunerError, UsageError
from tuner.export.best_config import BestConfig, to_config
from tuner.export.pick import SAME_QUALITY, Asked, Picked, how_chosen, pick_of_group
from tuner.files.arguments import NUMBER, PATH, TEXT, TRUTH, WHOLE, takes_kinds
from tuner.spec.definition import StudyDefinition
from tuner.spec.study_file import builtin_variants, load_study_file
from tuner.storage.database import open_database
from tuner.storage.url import DEFAULT_URL, absolute, parse_url
from tuner.study.archive import is_archive_name, read_archive
from tuner.study.code import untrusted_origin, with_code
from tuner.study.group import Group, grouped, searches_of, studies_meant
from tuner.study.open import open_study
from tuner.study.results import baselines_of
from tuner.study.snapshot import StudySnapshot, snapshot
from tuner.verdict.compare.studies import read_studies
from tuner.verdict.confirmation import confirmation_of
from tuner.verdict.confirmed_words import confirmed_sentence
from tuner.verdict.verified import verified_in

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
    config = _config(found, pick_of_group(found, wanted, lambda n: _reference(n, task, storage)))
    config = dataclasses.replace(config, source=_source(described, found.definition))
    if not config.definition.own_code:
        return config
    if storage is not None and is_archive(storage):
        return config if trust else dataclasses.replace(config, untrusted=storage)
    return _with_code(config, storage or DEFAULT_URL, trust=trust)


def _as_argument(flag: re.Match[str]) -> str:
    """As `load_best` takes it."""
    return f"{flag[1].replace('-', '_')}={'' if flag[2] is None else repr(flag[2])}"


def _with_code(config: BestConfig, storage: str, *, trust: bool) -> BestConfig:
    """With code of somebody's own as this host has it, or may have it from the database; else with
    why it may not or cannot run here, which only matters to who builds or trains it.
    """
    with closing(open_database(absolute(parse_url(storage)), create=False)) as database:
        opened = open_study(database, config.study)
        if (origin := untrusted_origin(opened)) and not trust:
            stranger = f"study {opened.name!r}, which came from {origin},"
            config = dataclasses.replace(config, untrusted=stranger)
        try:
            definition = with_code(opened, trust=trust).definition
        except UsageError as error:
            return dataclasses.replace(config, no_code=str(error))
    return dataclasses.replace(config, definition=definition)


def _config(found: Group[StudySnapshot], of: tuple[StudySnapshot, Picked]) -> BestConfig:
    """What was picked of one of the searches, with what its study says of it."""
    study, picked = of
    number = study.configuration(picked.record.number).number
    fresh = verified_in(study).get(number)
    records, error = study.results.records, study.definition.objectives[1]
    config = to_config(
        study.definition,
        picked.record,
        study=study.name,
        membership=study.membership,
        searches=found.size,
        pick=picked.pick,
        chosen=how_chosen(picked, study.definition.objectives),
        verified=None if fresh is None else fresh.as_dict(),
        unverified="" if fresh is None else fresh.without_figures,
        confirmed=_confirmed(study, number),
        baselines=baselines_of(records, error),
    )
    of_test = {} if error == "test_mql" else baselines_of(records, "test_mql")
    return dataclasses.replace(config, test_baselines=of_test)


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
    if storage is not None and is_archive(storage):
        return grouped([_in_archive(Path(storage), variant, study, task if named else None)])[0]
    if study is None and variant is None:
        raise UsageError(
            "name the variant, e.g. load_best('rmsnorm') or --variant rmsnorm, or the study"
        )
    if study is not None:
        found = _in_database(study, "", storage or DEFAULT_URL)
        for each in found.members:
            _refuse_other(each, variant=variant, task=task if named else None)
        return found
    try:
        return _of_variant(variant or "", task, storage or DEFAULT_URL)
    except UsageError as error:
        more = "" if named else f"; the task is {task!r} where none is named"
        raise UsageError(f"{error}{more}") from None


def is_archive(storage: str) -> bool:
    """Whether a storage is the file of an exported study, not a database's URL."""
    return "://" not in storage and is_archive_name(storage)


def _of_variant(variant: str, task: str, storage: str) -> Group[StudySnapshot]:
    """The searches of a variant: of one of the user's own by its file, or by its name alone, which
    its studies know.
    """
    try:
        name = _variant_name(variant)
    except UsageError as unknown:
        try:
            return _in_database(None, f"{task}-{variant}", storage)
        except TunerError:  # nobody has it there, or nothing is there
            raise unknown from None
    return _in_database(None, f"{task}-{name}", storage)


def _in_database(study: str | None, group: str, storage: str) -> Group[StudySnapshot]:
    """The `study` that was named, alone, or with others as `group:NAME`; else the searches of
    `group`.
    """
    database = open_database(absolute(parse_url(storage)), create=False)
    try:
        names = searches_of(database, group) if study is None else studies_meant(database, study)
        found = [snapshot(open_study(database, name)).with_runs_read() for name in names]
        return grouped(found)[0]
    finally:
        database.close()


def _in_archive(
    path: Path, variant: str | None, study: str | None, task: str | None
) -> StudySnapshot:
    """The study in the file, refused where it is none that was asked for."""
    held_by = snapshot(read_archive(path))
    if study not in (None, held_by.name):
        raise UsageError(
            f"{path} holds the study {held_by.name!r}, not {study!r}; name that one, or another "
            "file"
        )
    _refuse_other(held_by, variant=variant, task=task, file=path)
    return held_by


def _refuse_other(
    study: StudySnapshot, *, variant: str | None, task: str | None, file: Path | None = None
) -> None:
    """Refuse a study that was named and is of another variant or task than was named beside it."""
    asked = (
        ("variant", None if variant is None else _wanted(variant, study.variant), study.variant),
        ("task", task, study.definition.task_name),
    )
    for kind, wanted, held in asked:
        if wanted not in (None, held):
            holds = f"study {study.name!r} is of" if file is None else f"{file} holds"
            other = "study" if file is None else "file"
            raise UsageError(
                f"{holds} the {kind} {held!r}, not {wanted!r}; name that one, or another {other}"
            )


def _confirmed(found: StudySnapshot, trial: int) -> dict[str, Any] | None:
    """What the study's last confirmation found, where it was of this trial."""
    there = confirmation_of(found)
    if there is None or trial not in there.frozen.trials():
        return None
    return there.as_dict() | {"sentence": confirmed_sentence(there, name=found.name)}


def _source(described: Task, definition: StudyDefinition) -> dict[str, Any]:
    """Where the data lies, if the task that was named is the study's."""
    return (
        described.source.model_dump(mode="json")
        if described.definition() == definition.task
        else {}
    )


def _wanted(variant: str, held: str) -> str:
    """The name of a variant; one of the user's own may be called as a study has it."""
    return held if variant == held else _variant_name(variant)


def _variant_name(variant: str) -> str:
    if variant in builtin_variants():
        return variant
    return load_study_file(variant).name
