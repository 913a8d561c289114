"""The name of a study's own data file, and how it is written: for workers on hosts that have no
task file.

It is no part of what the study is: the data is known by the hash of its content.
"""

from __future__ import annotations

import json
from pathlib import Path

from optuna.study import Study
from pydantic import TypeAdapter

from tuner.data.cache import file_in
from tuner.data.source_kinds import CsvSource, FileSource, OwnFile, ParquetSource
from tuner.data.task import Task
from tuner.errors import DataError, UsageError
from tuner.files.plain import explained
from tuner.study.open import OpenStudy

_MARK = "tuner_data_file"
_OWN_FILE: TypeAdapter[CsvSource | ParquetSource] = TypeAdapter(OwnFile)


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
    told = {
        **opened.definition.task,
        "source": source.noted() | {"path": str(path)},
    }
    return Task.model_validate_json(json.dumps(told), strict=True)


def _source(opened: OpenStudy) -> CsvSource | ParquetSource | None:
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
