"""What a launch says before it begins: how long its trials will take.

What is known is used: trials of these studies, and what was measured here before. Else a child
measures some sizes, for seconds, where many trials are to come; a small launch would be over by
then. Whatever goes wrong here, the launch goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path

from tuner.data.task import Task
from tuner.devices import CpuCores, Gpu, exclusive
from tuner.errors import first_line
from tuner.estimate.foretold import SearchForetold, search_foretold
from tuner.estimate.foretold_words import search_line, searches_line
from tuner.estimate.measuring.measured_costs import measured_costs
from tuner.estimate.measuring.measuring_process import MeasuringProcess, Subject
from tuner.estimate.size_costs import SizeCosts, keep, kept, key_of_search
from tuner.estimate.trials_so_far import costs_so_far, ended_trials, installed_torch
from tuner.study.open import OpenStudy

LEAST_TRIALS = 20
"""With fewer to come nothing is measured: that would take longer than it is worth."""
LEAST_TIMEOUT_S = 240.0
"""Of a launch that is stopped sooner, measuring would take too large a part."""
MEASURE_S, MEASURED_SIZES = 10.0, 8
"""Once the process is ready: the default, the corners, and what else there is time for."""
BUILDING_S = 20.0
"""More for kernels, on a device that has none yet: three sizes alone tell too little, and what is
built here the trials need, too."""
WAIT_S = 60.0
"""For the process to be ready, and for one size."""
TOLD_BY = 3
"""Trials that have ended tell what the sizes of a study cost."""
_log = logging.getLogger(__name__)


def worth_measuring(timeout_s: float | None) -> bool:
    """Whether a launch that is stopped after so long has time for it."""
    return timeout_s is None or timeout_s >= LEAST_TIMEOUT_S


def foretell(
    studies: Sequence[OpenStudy],
    *,
    task: Task,
    data_dir: Path | None,
    devices: Sequence[Gpu | CpuCores],
    workers: int,
    may_measure: bool,
    note: Callable[[str], None],
) -> list[SearchForetold]:
    """Say of each study with trials to come what they will take, as far as that is known."""
    found = []
    failed: set[str] = set()
    for opened in studies:
        key = key_of_search(opened.definition, "", "")
        try:
            may = may_measure and key not in failed
            told = _of_study(opened, studies, task, data_dir, devices, may)
        except Exception as error:  # noqa: BLE001 - whatever it is: no launch fails for it
            failed.add(key)
            note(f"what {opened.name} will take is not foretold: {first_line(error)}")
            continue
        if told is None:
            continue
        search, from_trials = told
        found.append(search)
        if len(studies) == 1:
            note(search_line(opened.name, search, devices=workers, from_trials=from_trials))
    if len(found) > 1:
        note(searches_line(found, devices=workers))
    return found


def _of_study(
    opened: OpenStudy,
    studies: Sequence[OpenStudy],
    task: Task,
    data_dir: Path | None,
    devices: Sequence[Gpu | CpuCores],
    may_measure: bool,
) -> tuple[SearchForetold, bool] | None:
    """What it will take, and whether trials say so."""
    counts, policy = opened.ledger.counts(), opened.policy()
    model = devices[0].model if devices else opened.device_model()
    if counts.left <= 0 or model is None or opened.definition.program is not None:
        return None
    costs = _known(opened, studies, model)
    if costs is None and may_measure and devices and counts.left >= LEAST_TRIALS:
        costs = _measured(opened, task, data_dir, devices[0])
    if costs is None:
        return None
    told = search_foretold(
        opened.definition,
        costs,
        trials=counts.budget,
        ended=ended_trials(opened),
        sampler=policy.sampler,
        prune=policy.prune,
        within_s=policy.search_s,
    )
    return None if told is None else (told, costs.from_trials)


def _known(opened: OpenStudy, studies: Sequence[OpenStudy], model: str) -> SizeCosts | None:
    """By trials, of this study or of another here with the same epochs, or by what was measured."""
    mine = costs_so_far([opened], model)
    if mine is not None and len(mine.sizes) >= TOLD_BY:
        return mine
    key = key_of_search(opened.definition, model, "")
    alike = [each for each in studies if key_of_search(each.definition, model, "") == key]
    known = costs_so_far(alike, model)
    if known is not None and len(known.sizes) >= TOLD_BY:
        return known
    return kept(key_of_search(opened.definition, model, installed_torch()))


def _measured(
    opened: OpenStudy, task: Task, data_dir: Path | None, device: Gpu | CpuCores
) -> SizeCosts | None:
    """Some sizes, alone on the device; None where somebody has that."""
    subject = Subject(definition=opened.definition, task=task, data_dir=data_dir, device=device)
    with (
        exclusive(device.lock_names, give_up=lambda: True) as alone,
        MeasuringProcess(subject) as process,
    ):
        if not alone:
            return None
        process.start(within_s=WAIT_S)
        costs = measured_costs(
            process,
            seconds=MEASURE_S,
            most=MEASURED_SIZES,
            least_for_one_s=WAIT_S,
            building_s=BUILDING_S,
        )
    keep(key_of_search(opened.definition, device.model, installed_torch()), costs)
    return costs
