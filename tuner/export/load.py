"""`load_best`: from a study's name, wherever it is kept, to one configuration."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.data.task import Task, load_task
from tuner.errors import UsageError, unknown_name
from tuner.export.choice import PICKS, choose, trial_by_number
from tuner.export.record import BestConfig, to_config
from tuner.storage import absolute, open_database, parse_url
from tuner.storage.url import DEFAULT_URL
from tuner.study import StudyDefinition, builtin_variants, load_study_file, open_study
from tuner.study.archive import is_archive_name, read_archive
from tuner.study.picks import picks_expected
from tuner.study.results import StudyResults, read_results
from tuner.study.verification import verifications_of
from tuner.study.verified import Verified, group_runs, read_verified

DEFAULT_TASK = "etth"


def load_best(
    variant: str | None = None,
    *,
    pick: str = "knee",
    task: str = DEFAULT_TASK,
    study: str | None = None,
    storage: str | None = None,
    max_time: float | None = None,
    max_mql: float | None = None,
    trial: int | None = None,
) -> BestConfig:
    """The configuration that `pick` names on the front of a variant's study.

    Args:
        variant: built-in name, or a study file; not needed where `study` is given.
        pick: `mql` (lowest test MQL), `time` (fewest seconds) or `knee` (nearest to both). Where `tuner verify --choose
            expected` chose the study's configurations and there are no bounds, the one that it chose.
        task: the study's task, to find its default name; as a file, also where the data lies. The file of an exported
            study says itself which it is.
        study: the study's name; without it `<task>-<variant>`.
        storage: database URL (`sqlite:///storage/tuner.db`), or a file that `tuner study export` wrote.
        max_time: only configurations of at most this many seconds.
        max_mql: only configurations of at most this test MQL.
        trial: this complete trial, on the front or not, whatever `pick` and the bounds say.

    Raises:
        UsageError: unknown variant, pick, study or trial.
        TunerError: no finished trial yet, none within the bounds, or a trial without a result.
        StorageError: the database cannot be read.
    """
    if pick not in PICKS:
        raise unknown_name("pick", pick, PICKS)
    if any(bound is not None and math.isnan(bound) for bound in (max_time, max_mql)):
        raise UsageError("--max-time and --max-mql take a number; nan is none")
    described = load_task(task)
    if storage is not None and is_archive(storage):
        found = _in_archive(Path(storage), variant, study, described.name if task != DEFAULT_TASK else None)
    elif study is None and variant is None:
        raise UsageError("name the variant, e.g. load_best('rmsnorm') or --variant rmsnorm, or the study")
    else:
        name = study or f"{described.name}-{_variant_name(variant or '')}"
        found = _in_database(name, storage or DEFAULT_URL)
    if trial is None:
        record = choose(found.results, found.name, pick=pick, bounds=(max_time, max_mql))
        if pick in found.expected and max_time is None and max_mql is None:
            record = trial_by_number(found.results, found.name, found.expected[pick])
    else:
        record, pick = trial_by_number(found.results, found.name, trial), "trial"
    return to_config(
        found.definition,
        record,
        study=found.name,
        pick=pick,
        verified=found.verified.get(record.number),
        source=_source(described, found.definition),
    )


def is_archive(storage: str) -> bool:
    """Whether a storage is the file of an exported study, not a database's URL."""
    return "://" not in storage and is_archive_name(storage)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """A study wherever it was kept.

    `verified` holds fresh-seed figures by trial number, `expected` what its verification chose from the expected front.
    """

    name: str
    definition: StudyDefinition
    results: StudyResults
    verified: Mapping[int, dict[str, Any] | None]
    expected: Mapping[str, int]


def _in_database(name: str, storage: str) -> _Found:
    database = open_database(absolute(parse_url(storage)), create=False)
    try:
        opened = open_study(database, name)
        results = read_results(opened)
        return _Found(
            name=name,
            definition=opened.definition,
            results=results,
            verified=_figures(read_verified(opened)),
            expected=picks_expected(results, verifications_of([opened]).runs(), name),
        )
    finally:
        database.close()


def _in_archive(path: Path, variant: str | None, study: str | None, task: str | None) -> _Found:
    archive = read_archive(path)
    held_too = archive.definition
    asked = (("study", study, archive.name), ("variant", variant, held_too.variant), ("task", task, held_too.task_name))
    for kind, name, held in asked:
        wanted = _variant_name(name) if kind == "variant" and name is not None else name
        if wanted not in (None, held):
            raise UsageError(f"{path} holds the {kind} {held!r}, not {wanted!r}; name that one, or another file")
    runs = group_runs(archive.name, archive.verifications, device_model=archive.device_model)
    return _Found(
        name=archive.name,
        definition=archive.definition,
        results=archive.results,
        verified=_figures(runs),
        expected=picks_expected(archive.results, archive.verifications, archive.name),
    )


def _figures(verified: Iterable[Verified]) -> dict[int, dict[str, Any] | None]:
    return {each.trial_number: each.as_dict() for each in verified}


def _source(described: Task, definition: StudyDefinition) -> dict[str, Any]:
    """Where the data lies, if the task that was named is the study's."""
    return described.source.model_dump(mode="json") if described.definition() == definition.task else {}


def _variant_name(variant: str) -> str:
    if variant in builtin_variants():
        return variant
    return load_study_file(variant).name
