"""Somebody else's training: profiled from outside, in processes of its own."""

from __future__ import annotations

import json
import signal
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tuner.display.signals import signal_name
from tuner.errors import TunerError
from tuner.profile.profile_records import (
    Pace,
    Stages,
)
from tuner.profile.recorders import Span
from tuner.profile.script_changes import Changes
from tuner.profile.script_host import ScriptHost
from tuner.training.stage_marks import Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """What is run."""

    path: Path
    arguments: tuple[str, ...]
    steps: int
    trace: Path | None = None
    within_s: float | None = None
    """Seconds that a run of it may take, its process's start included; None: all that it needs."""


class ScriptError(TunerError):
    """A run of the script that came to nothing, in one line."""


class TooLongError(ScriptError):
    """It was ended: it took longer than it may."""


def run_script(
    script: Script,
    host: ScriptHost,
    changes: Changes | None = None,
    *,
    steps: int | None = None,
    look: bool = False,
) -> dict[str, Any]:
    """What a run of it came to.

    Raises:
        ScriptError: it failed, or took no step that could be timed.
        TooLongError: it was not done within the seconds that it may take.
    """
    with tempfile.TemporaryDirectory(prefix="tuner-profile-") as folder:
        answer, order = Path(folder) / "answer.json", Path(folder) / "order.json"
        plain = {
            "script": str(script.path),
            "arguments": script.arguments,
            "steps": steps or script.steps,
            "changes": asdict(changes or Changes()),
            "answer": str(answer),
            "look": look,
            "trace": str(script.trace.absolute()) if look and script.trace is not None else None,
        }
        order.write_text(json.dumps(plain), encoding="utf-8")
        code = host.run(order, within_s=script.within_s)
        if code is None:
            raise TooLongError(
                f"{script.path}: it took longer than {script.within_s:.3g} s, and was ended"
            )
        if not answer.exists():
            raise ScriptError(f"{script.path}: its process {_died(code)}")
        found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    if found["failure"]:
        raise ScriptError(f"{script.path}: {found['failure']}")
    if not found["steps"]:
        raise ScriptError(
            f"{script.path}: it took too few optimiser steps to be timed; let it take some dozens"
        )
    return found


def _died(code: int) -> str:
    if code == -signal.SIGKILL:
        return "was ended from outside: most likely the host's memory ran out"
    if code < 0:
        return f"was ended by {signal_name(-code)}"
    return f"ended with code {code} and no answer"


def pace_of(found: dict[str, Any]) -> Pace:
    """Of a run; an epoch is as long as its DataLoader."""
    step_s = usual(found["steps"])
    loader = found["loader"]
    a_step = found["samples_a_step"] or loader["batch_size"] or 1
    windows = _windows(loader)
    validation_s = statistics.median(found["validations"]) if found["validations"] else 0.0
    return Pace(
        batch_size=_batch(a_step, loader["batch_size"]),
        windows=windows,
        step_s=step_s,
        epoch_s=step_s * windows / a_step + validation_s if windows else step_s,
        validation_s=validation_s,
        setup_s=found["setup_s"],
    )


def usual(steps: Sequence[float], parts: int = 5) -> float:
    """Seconds of a step: the median of the means of some stretches.

    A mean, since loaders with workers are fast and slow in turns; a median, since whatever else a
    machine does comes in stretches.
    """
    each = max(1, len(steps) // parts)
    means = [
        statistics.fmean(steps[first : first + each])
        for first in range(0, len(steps) - each + 1, each)
    ]
    return statistics.median(means)


def _batch(a_step: float, loaded: int | None) -> int:
    """Windows of a usual step: of the loader's batch, or of as many as add up to one update.

    The mean is a little less where an epoch's last batch is short.
    """
    if loaded is None or a_step < loaded / 2:
        return max(1, round(a_step))
    return loaded * max(1, round(a_step / loaded))


def _windows(loader: dict[str, Any]) -> int:
    """Of an epoch; 0 where its length is unknown."""
    if loader["batches"] and loader["batch_size"]:
        whole = int(loader["batches"]) * int(loader["batch_size"])
        return min(whole, loader["samples"] or whole)
    return loader["samples"] or 0


def stages_of(found: dict[str, Any]) -> Stages:
    """Of an epoch, or of a step where nobody knows how long an epoch is."""
    pace = pace_of(found)
    recorded = {Stage(name): took for name, took in found["recorded"].items()}
    recorded.pop(Stage.VALIDATION, None)  # as often as it came just then
    whole, training_s = sum(recorded.values()), pace.epoch_s - pace.validation_s
    if not whole or not found["recorded_steps"]:
        return Stages(seconds={Stage.OTHER: training_s}, how=found["how"], difference=0.0)
    seconds = {stage: took / whole * training_s for stage, took in recorded.items()}
    seconds[Stage.VALIDATION] = pace.validation_s
    return Stages(
        seconds={stage: seconds[stage] for stage in Stage if stage in seconds},
        how=found["how"],
        difference=whole / found["recorded_steps"] / pace.step_s - 1,
        spans=tuple(
            Span(Stage(each["stage"]), each["start_s"], each["end_s"]) for each in found["spans"]
        ),
    )
