"""The name of a study's own data file, and how it is written: for workers on hosts that have no
task file.

It is no part of what the study is: the data is known by the hash of its content.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from optuna.study import Study
from pydantic import TypeAdapter

from tuner.data.prepare import PreparedData, prepare
from tuner.data.source_kinds import (
    OF_FILES,
    CsvSource,
    FileSource,
    Hdf5Source,
    OwnFile,
    ParquetSource,
    TypedSource,
)
from tuner.data.sources import file_in, url_of
from tuner.data.task import Task, load_task
from tuner.errors import DataError, UsageError
from tuner.files.plain import explained
from tuner.study.open import OpenStudy

_MARK = "tuner_data_file"
_OWN_FILE: TypeAdapter[CsvSource | ParquetSource | Hdf5Source] = TypeAdapter(OwnFile)


def keep_data_file(study: Study, task: Task) -> None:
    """Note how the file of a task is called, and how it is written; of many files nothing: a worker
    elsewhere needs the task file.
    """
    if not isinstance(task.source, FileSource) or task.source.runs is not None:
        return
    written = task.source.noted()
    if study.user_attrs.get(_MARK) != written:
        study.set_user_attr(_MARK, written)


def task_of_study(opened: OpenStudy, data_dir: Path | None, *, reuse: bool) -> Task:
    """The task of a study on a file of the user's, by what its database holds, with the file as it
    lies in `data_dir`. With `reuse`, what was fetched from there before does.

    Raises:
        UsageError: the database does not hold enough, or there is no `data_dir`.
        DataError: the file could not be fetched.
    """
    source = _source(opened)
    if source is None:
        raise UsageError(
            f"study {opened.name!r} is on a file of your own; give its task file with --task FILE"
        )
    if data_dir is None:
        raise UsageError(
            f"study {opened.name!r} is on the file {source.path.name!r}; name the folder or URL "
            "that holds it with --data-dir, or give the task file with --task FILE"
        )
    path = file_in(data_dir, source.path.name, reuse=reuse)
    told = {**opened.definition.task, "source": source.noted() | {"path": str(path)}}
    return Task.model_validate_json(json.dumps(told), strict=True)


def _source(opened: OpenStudy) -> CsvSource | TypedSource | None:
    """What was noted; None where nothing was.

    Raises:
        DataError: it is no name of a file with how it is written: who shares a database may have
            written it.
    """
    stored = opened.optuna.user_attrs.get(_MARK)
    if stored is None:
        return None
    try:
        source = _OWN_FILE.validate_json(json.dumps(stored), strict=True)
        name = str(source.path)
        if name in ("", ".", "..") or "/" in name or not name.isprintable():
            raise ValueError(f"{name!r} is no name of a file")  # noqa: TRY301 - told as the rest is
    except ValueError as error:
        raise DataError(
            f"what study {opened.name!r} says of its file is damaged ({explained(error)}); give "
            "its task file with --task FILE"
        ) from None
    return source


# The data of a worker's studies, refused when it is not their own. Nothing here knows torch.


def data_of(
    studies: Sequence[OpenStudy], *, data_dir: Path | None, task: str | None
) -> dict[str, PreparedData]:
    """The data of `studies` by data hash. `data_dir` is a folder or a URL; `task` is the task file,
    where the data is a file of the user's and its study does not say enough.

    Raises:
        UsageError: a study on such a file, and neither a task file nor a place where it lies.
        DataError: the data is missing, unfit, or not what the study was made with.
    """
    found: dict[str, PreparedData] = {}
    for opened in studies:
        wanted = opened.definition.data_hash
        if wanted not in found:
            found[wanted] = _prepared(opened, data_dir, task)
        # Studies on the same data share it: the least memory that one of them allows holds for all.
        if (allowed := opened.definition.training.data_memory) is not None:
            found[wanted] = found[wanted].within(allowed)
    return found


def _prepared(opened: OpenStudy, data_dir: Path | None, task: str | None) -> PreparedData:
    """What was fetched before is fetched anew where it is not the study's."""
    wanted = opened.definition.data_hash
    for reuse in (True, False):
        prepared = prepare(_task_of(opened, data_dir, task, reuse=reuse), data_dir=data_dir)
        if prepared.data_hash == wanted:
            return prepared
        if url_of(data_dir) is None:
            break
    raise DataError(
        f"the data here is not what study {opened.name!r} was made with "
        f"(hash {prepared.data_hash[:12]}, expected {wanted[:12]}); use the same files, or "
        "another study"
    )


def _task_of(opened: OpenStudy, data_dir: Path | None, task: str | None, *, reuse: bool) -> Task:
    if opened.definition.task["source"]["kind"] not in OF_FILES:
        return Task.model_validate(opened.definition.task)
    if task is None:
        return task_of_study(opened, data_dir, reuse=reuse)
    told = load_task(task)
    source = told.source
    if data_dir is None or not isinstance(source, FileSource):
        return told
    if source.runs is not None or source.path.exists():  # of many files, preparing looks for them
        return told
    path = file_in(data_dir, source.path.name, reuse=reuse)
    return told.model_copy(update={"source": source.model_copy(update={"path": path})})
