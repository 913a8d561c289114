"""The data of a worker's studies, refused when it is not their own. Nothing here knows torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tuner.data.cache import file_in, url_of
from tuner.data.prepare import PreparedData, prepare
from tuner.data.source_kinds import OF_FILES, FileSource
from tuner.data.task import Task, load_task
from tuner.errors import DataError
from tuner.study.data_file import task_of_study
from tuner.study.open import OpenStudy


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
        if wanted in found:
            continue
        found[wanted] = _prepared(opened, data_dir, task)
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
