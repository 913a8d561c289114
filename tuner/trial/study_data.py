"""The data of a worker's studies, refused when it is not their own. Nothing here knows torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tuner.data.prepare import PreparedData, prepare
from tuner.data.task import Task, load_task
from tuner.errors import DataError, UsageError
from tuner.study.open import OpenStudy


def data_of(
    studies: Sequence[OpenStudy], *, data_dir: Path | None, task: str | None
) -> dict[str, PreparedData]:
    """The data of `studies` by data hash. `task` is the task file, where the data is a CSV.

    Raises:
        UsageError: a study on a CSV, and no task file.
        DataError: the data is missing, unfit, or not what the study was made with.
    """
    found: dict[str, PreparedData] = {}
    for opened in studies:
        wanted = opened.definition.data_hash
        if wanted in found:
            continue
        prepared = prepare(_task_of(opened, task), data_dir=data_dir)
        if prepared.data_hash != wanted:
            raise DataError(
                f"the data here is not what study {opened.name!r} was made with "
                f"(hash {prepared.data_hash[:12]}, expected {wanted[:12]}); use the same files, or "
                "another study"
            )
        found[wanted] = prepared
    return found


def _task_of(opened: OpenStudy, task: str | None) -> Task:
    if opened.definition.task["source"]["kind"] != "csv":
        return Task.model_validate(opened.definition.task)
    if task is None:
        raise UsageError(
            f"study {opened.name!r} is on a CSV of your own; give its task file with --task FILE"
        )
    return load_task(task)
