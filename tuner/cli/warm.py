"""`tuner warm`: compile what searches will need before anybody waits for it."""

from __future__ import annotations

import os
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tuner.cli.command import Only, option, takes
from tuner.cli.options import DataDir, Json, TaskName, data_folder
from tuner.cli.output import note, print_json, say
from tuner.config import MANY
from tuner.errors import TunerError, UsageError
from tuner.spec.policy import StudySettings

if TYPE_CHECKING:
    from tuner.trial.ahead.compile_order import Capability, Order, Progress, Search

LOOK_S, SAY_S = 0.05, 2.0
NOBODY_TOLD = "no GPU is visible here; name what to compile for, e.g. --capability 9.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmOptions:
    """The options of `tuner warm`."""

    variant: str = option("NAME[,NAME]", "Variants or study files (.toml).", default=...)
    task: TaskName = "etth"
    data_dir: DataDir = None
    settings: Annotated[StudySettings, Only(("backend", "precision"))] = field(
        default_factory=StudySettings
    )
    """As of the launch to come."""
    capability: str | None = option("9.0", "GPUs to compile for (the one that is here).")
    jobs: int | None = option(
        "N", "Kernels at the same time (a core each, up to 32).", min=1, max=MANY
    )
    json: Json = False


@takes(WarmOptions)
def warm(options: WarmOptions) -> int:
    """Compile the kernels that a search of these variants will need, without a GPU.

    A launch does so by itself, in the background. This is for images and clusters: what is compiled
    lies in Triton's cache (TRITON_CACHE_DIR, else ~/.triton/cache), where workers find it. The
    cache serves where the same versions of tuner and torch see it under the same path.
    """
    from tuner.devices.common_files import who_may_change
    from tuner.devices.cpu import available_cores
    from tuner.launch.background import MOST_JOBS, missing_of
    from tuner.trial.ahead.compile_order import (
        Order,
        Progress,
        cache_folder,
        read_stamp,
        stamp_path,
    )

    capability = _capability(options.capability)
    cache = cache_folder(os.environ)
    searches, reasons = _searches(options)
    if (caution := who_may_change(cache)) is not None:
        note(caution)
    missing = missing_of(searches, capability, cache)
    done, took_s = Progress(), 0.0
    if missing:
        order = Order(
            capability=capability,
            searches=missing,
            data_dir=data_folder(options.data_dir),
            jobs=options.jobs or min(len(available_cores()), MOST_JOBS),
        )
        done, took_s = _compile(order, cache)
    stamps = [read_stamp(stamp_path(cache, each, capability)) for each in searches]
    there = {name for stamp in stamps if stamp is not None for name in stamp.kernels}
    ready = max(len(there), done.ready)  # no stamps where the cache cannot be written
    reasons += [stamp.reason for stamp in stamps if stamp is not None and not stamp.kernels]
    reasons = list(dict.fromkeys([*reasons, *done.reasons]))
    if options.json:
        print_json(
            {
                "capability": f"{capability[0]}.{capability[1]}",
                "cache": str(cache),
                "kernels": ready,
                "compiled": done.compiled,
                "were_there": ready - done.compiled,
                "seconds": round(took_s, 1),
                "nothing_because": reasons,
            }
        )
        return 0
    for reason in reasons:
        say(f"nothing to compile: {reason}")
    if ready:
        took = f" in {took_s:.0f} s" if done.compiled else ""
        say(
            f"{ready} kernels for compute capability {capability[0]}.{capability[1]} are "
            f"ready: {done.compiled} compiled{took}, {ready - done.compiled} were there; in {cache}"
        )
    return 0


def _capability(text: str | None) -> Capability:
    """Raises UsageError where none is named and no GPU says it, or where it is none."""
    from tuner.devices.gpu import compute_capability, list_gpus

    if text is None:
        gpus = list_gpus(os.environ)
        found = compute_capability(gpus[0]) if gpus else None
        if found is None:
            raise UsageError(NOBODY_TOLD)
        return found
    major, _, minor = text.partition(".")
    if not all(part.isascii() and part.isdigit() and len(part) <= 2 for part in (major, minor)):  # noqa: PLR2004
        raise UsageError(f"--capability: {text!r} is none; expected e.g. 9.0")
    return int(major), int(minor)


def _searches(options: WarmOptions) -> tuple[list[Search], list[str]]:
    """What a launch would search, and why some of it has no kernels."""
    from tuner.data.prepare import prepare
    from tuner.data.task import load_task
    from tuner.launch.plan import definition_of, study_files
    from tuner.trial.ahead.compile_order import Search, why_none

    files = study_files(options.variant)
    task = load_task(options.task)
    digest = prepare(task, data_dir=data_folder(options.data_dir)).data_hash
    searches, reasons = [], []
    for name, file in files.items():
        definition = definition_of(file, task, digest, options.settings)
        if (reason := why_none(definition)) is None:
            searches.append(Search(definition=definition, task=task))
        else:
            reasons.append(f"{name}: {reason}" if len(files) > 1 else reason)
    return searches, reasons


def _compile(order: Order, cache: Path) -> tuple[Progress, float]:
    """What became of it, and in how many seconds. Raises TunerError where a kernel does not
    compile, with the compiler's last line.
    """
    from tuner.files.child import last_line
    from tuner.launch.background import CompilingProcess

    began = time.monotonic()
    note(f"finding out what to compile; Triton's cache is {cache}")
    with tempfile.TemporaryDirectory(prefix="tuner-warm-") as folder:
        process = CompilingProcess.start(order, os.environ, Path(folder) / "kernels.log")
        try:
            code = None
            while code is None:
                time.sleep(LOOK_S)
                code, seen = process.look(), process.progress
                if seen.found and process.has_news(SAY_S):
                    note(f"{seen.ready} of {seen.found} kernels")
            if code or not process.progress.over:
                done, words = process.progress, last_line(process.log)
                if not done.over:
                    raise TunerError(f"compiling ended early: {words}")
                raise TunerError(f"{done.failed} of {done.found} kernels do not compile: {words}")
        finally:
            process.child.end()
    return process.progress, time.monotonic() - began
