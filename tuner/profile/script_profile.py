"""The profile of somebody else's training script."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tuner.devices import CpuCores, Gpu, Watch
from tuner.profile.advice_order import Tell, of_falling, silent, told
from tuner.profile.falling_pace import trend_of
from tuner.profile.profile_records import ADVICE, MEMORY, Busy, Operation, Operations, Profile
from tuner.profile.script_advice import advice_on, memory_of_batches
from tuner.profile.script_host import ScriptHost
from tuner.profile.script_runs import Script, pace_of, run_script, stages_of

TICKS = 60
"""Stretches that the throughput is looked at in."""
TIMES, LEAST_S = 5.0, 120.0
"""A run with something changed may take so many times as long as the present one, and in any case
so many seconds: `torch.compile` takes minutes where the run itself takes seconds."""


RUNS = 7
"""Usually: of advice and of batch sizes."""


def profile_script(
    script: Script,
    device: Gpu | CpuCores,
    *,
    advice: bool,
    announce: Callable[[str], None] = lambda _line: None,
    tell: Tell = silent,
) -> Profile:
    """Where the time of this script's training goes, and what would help; `tell` is told what there
    is, each time that more of it is measured.

    Raises:
        ScriptError: the script fails, or trains nothing.
    """
    with ScriptHost() as host:
        return _profiled(script, host, device, advice=advice, announce=announce, tell=tell)


def _profiled(
    script: Script,
    host: ScriptHost,
    device: Gpu | CpuCores,
    *,
    advice: bool,
    announce: Callable[[str], None],
    tell: Tell,
) -> Profile:
    watch = Watch(device)
    announce(f"running {script.path.name} for {script.steps} steps")
    began = time.monotonic()
    found = run_script(script, host, look=True)
    took_s = time.monotonic() - began
    changed = replace(script, within_s=max(LEAST_S, TIMES * took_s))
    pace, stages = pace_of(found), stages_of(found)
    trend = trend_of(ticks_of(found["steps"]), found["all_steps"])
    a_step = pace.windows / pace.batch_size if pace.windows else 0
    falling = of_falling(trend, round(a_step))
    now = Profile(
        subject=script.path.name,
        device=device.model,
        settings={
            "network": found["network"],
            "batch": pace.batch_size,
            "workers": found["loader"]["workers"],
        },
        pace=pace,
        stages=stages,
        trend=trend,
        operations=operations_of(found),
        busy=Busy(**found["busy"] | {"cores": tuple(found["busy"]["cores"])}),
        advice=() if falling is None else (falling,),
        left=(ADVICE, MEMORY) if advice else (),
    )
    now = told(now, watch, tell)
    if not advice:
        return now
    announce(f"that took {took_s:.0f} s; it is run about {RUNS} times more, with changes")
    for piece in advice_on(changed, host, found, pace, stages, announce):
        now = told(replace(now, advice=(*now.advice, piece)), watch, tell)
    now = told(replace(now, left=(MEMORY,)), watch, tell)
    for row in memory_of_batches(changed, host, found, pace, announce):
        now = told(replace(now, memory=(*now.memory, row)), watch, tell)
    return told(replace(now, left=()), watch, tell)


def operations_of(found: dict[str, Any]) -> Operations:
    """Of a run that was looked at."""
    plain = found.get("operations")
    if plain is None:
        return Operations(failure="no network was seen in training")
    top = tuple(Operation(**each) for each in plain["top"])
    return Operations(**plain | {"top": top})


def ticks_of(steps: list[float]) -> list[float]:
    """Means of equal stretches."""
    each = max(1, len(steps) // TICKS)
    return [
        statistics.fmean(steps[first : first + each])
        for first in range(0, len(steps) - each + 1, each)
    ]
