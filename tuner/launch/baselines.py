"""Forecasts without a network, scored once a search has ended: in a process of their own, on the
devices that the search has left, within a tenth of what its trials took. The plain ones take some
seconds: they are scored in any case, and have a minute at least.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tuner.data.task import Task
from tuner.devices import CpuCores, Gpu, exclusive
from tuner.errors import UsageError, first_line
from tuner.files.child import ChildError, ChildProcess, SilentError
from tuner.files.environment import without_secrets
from tuner.launch.request import Notes, StopRequests
from tuner.study.baselines import ATTRIBUTE, PLAIN, Scored
from tuner.study.open import OpenStudy
from tuner.study.results import StudyResults, read_results
from tuner.verdict.retune_cost import duration

MODULE = "tuner.training.baselines.serve"
SHARE = 0.1
"""Of the seconds that a search's trials took: more is not spent on what it is held against."""
LEAST_S = 5.0
"""The libraries take so long to import: with less none of them is begun."""
PLAIN_S = 60.0
TOO_SHORT = "a tenth of what the trials took, or what is left, is less than these take to load"
LOOK_S = 0.5


def check_foundation(folder: Path | None) -> None:
    """Raises UsageError where a model of Chronos cannot be had from there."""
    if folder is None:
        return
    if find_spec("chronos") is None:
        raise UsageError("--foundation needs Chronos: pip install 'tuner[foundation]'")
    if not (folder / "config.json").is_file():
        raise UsageError(
            f"--foundation {folder}: holds no config.json; name the folder of a Chronos model, "
            "which nobody fetches for you"
        )


def keep_baselines(
    studies: Sequence[OpenStudy],
    task: Task,
    data_dir: Path | None,
    foundation: Path | None,
    devices: Sequence[Gpu | CpuCores],
    notes: Notes,
    stop: StopRequests,
    until: float | None = None,
) -> None:
    """Have what needs no network scored and kept with each study that lacks it, and what libraries
    forecast that are installed, the latter not after `until`, a time of `time.monotonic()`. Studies
    of the same windows share it.
    """
    scored: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for study in studies:
        results, definition = read_results(study), study.definition
        if definition.program is not None or not results.complete:
            continue
        had = {each.name: each for each in results.baselines if not each.would_take_s}
        within_s = SHARE * sum(each.recorded.total_s or 0.0 for each in results.complete)
        within_s -= sum(each.took_s for each in had.values())
        if until is not None:
            within_s = min(within_s, until - time.monotonic())
        libraries = _lacks(results, foundation, within_s)
        if libraries and within_s < LEAST_S:
            notes.note(f"forecasts by libraries not run: {TOO_SHORT}")
            libraries = False
        if PLAIN in had and not libraries:
            continue
        limit_s = within_s if PLAIN in had else max(within_s, PLAIN_S)
        windows = "searched" if definition.keeps_last_block else "all"
        asked = {
            "task": task.model_dump(mode="json"),
            "data_dir": None if data_dir is None else str(data_dir),
            "model": None if foundation is None else str(foundation.absolute()),
            "windows": windows,
            "error": definition.objectives[1],
            "within_s": within_s,
            "libraries": libraries,
            "had": list(had),
        }
        key = (definition.data_hash, windows, asked["error"], libraries, *had)
        if key not in scored and stop.first is None:
            said = f"forecasts without a network are scored, for {duration(limit_s)} at most"
            notes.progress.note(said)  # of what is done, and not of what came of it
            scored[key] = _scored(asked, limit_s, devices, notes, stop)
        if new := scored.get(key):
            names = [each["name"] for each in new]
            before = [each.stored() for each in results.baselines if each.name not in names]
            study.optuna.set_user_attr(ATTRIBUTE, before + new)


def _lacks(results: StudyResults, foundation: Path | None, within_s: float) -> bool:
    """Whether there is anything of libraries that was not scored, and the time for it."""
    known = {each.name: each for each in results.baselines}
    wanted = ["chronos"] * (foundation is not None)
    if find_spec("statsforecast") is not None:
        wanted.append("auto_ets")
    late = [each.would_take_s for each in known.values() if each.would_take_s is not None]
    new = any(name not in known for name in wanted)
    return new or any(each <= within_s - LEAST_S for each in late)


def _scored(
    asked: Mapping[str, Any],
    limit_s: float,
    devices: Sequence[Gpu | CpuCores],
    notes: Notes,
    stop: StopRequests,
) -> list[dict[str, Any]]:
    """As a study keeps them; nothing where the process did not come so far, or was stopped."""
    found: dict[str, dict[str, Any]] = {}
    environment = without_secrets(os.environ) | {"CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", MODULE, str(os.getpid())]
    with ExitStack() as held:
        for device in devices[:1]:  # no other launch's training is to lose its cores
            held.enter_context(exclusive(device.lock_names, give_up=lambda: stop.first is not None))
        log = held.enter_context(tempfile.TemporaryFile())
        child = held.enter_context(
            ChildProcess(
                "the process that scores forecasts without a network",
                command,
                environment=environment,
                log=log,
                told=True,
                asked=True,
            )
        )
        try:
            child.say(asked)
            for told in _answers(child, time.monotonic() + limit_s, stop):
                for name in told.pop("names", []):
                    found[name] = {"name": name}
                if "name" in told:
                    found[told["name"]] |= told
        except ChildError as error:
            notes.note(f"forecasts without a network ended early: {first_line(error)}")
    return [_kept(each, limit_s) for each in found.values()] if stop.first is None else []


def _answers(child: ChildProcess, until: float, stop: StopRequests) -> Any:
    """Until it is done, the time is over, or somebody wants to stop."""
    while stop.first is None and (left := until - time.monotonic()) > 0:
        try:
            told = child.hear(min(left, LOOK_S))
        except SilentError:
            continue
        if "done" in told:
            return
        yield told


def _kept(told: Mapping[str, Any], limit_s: float) -> dict[str, Any]:
    """One that has no score has the reason in its place."""
    found = {name: each for name, each in told.items() if name in Scored.model_fields}
    if "test_mql" in found or "not_run" in found:
        return {name: each for name, each in found.items() if name != "would_take_s"}
    takes = found.get("would_take_s")
    why = f"was not done after {duration(limit_s)}"
    if takes is not None:
        why = f"would take {duration(takes)}"
    return {**found, "not_run": why}
