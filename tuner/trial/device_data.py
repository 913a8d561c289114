"""A worker's data: each study's windows on the worker's device,
refused when they are not the study's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from tuner.data.prepare import prepare
from tuner.data.task import Task, load_task
from tuner.data.windows import DeviceData, to_device
from tuner.devices import CpuCores, Gpu
from tuner.errors import DataError, UsageError
from tuner.study.open import OpenStudy


def load_data(
    studies: Sequence[OpenStudy], device: Gpu | CpuCores, *, data_dir: Path | None, task: str | None
) -> dict[str, DeviceData]:
    """The data of `studies` on `device`, by data hash.
    `task` is the task file, where the data is a CSV.

    Raises:
        UsageError: a study on a CSV, and no task file.
        DataError: the data is missing, unfit, or not what the study was made with.
    """
    if isinstance(device, CpuCores):
        torch.set_num_threads(len(device.cores))
    target = "cpu" if isinstance(device, CpuCores) else "cuda:0"
    loaded: dict[str, DeviceData] = {}
    for opened in studies:
        wanted = opened.definition.data_hash
        if wanted in loaded:
            continue
        prepared = prepare(_task_of(opened, task), data_dir=data_dir)
        if prepared.data_hash != wanted:
            raise DataError(
                f"the data here is not what study {opened.name!r} was made with "
                f"(hash {prepared.data_hash[:12]}, expected {wanted[:12]}); use the same files, or "
                "another study"
            )
        loaded[wanted] = to_device(prepared, target)
    return loaded


def _task_of(opened: OpenStudy, task: str | None) -> Task:
    if opened.definition.task["source"]["kind"] != "csv":
        return Task.model_validate(opened.definition.task)
    if task is None:
        raise UsageError(
            f"study {opened.name!r} is on a CSV of your own; give its task file with --task FILE"
        )
    return load_task(task)
