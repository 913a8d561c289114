"""The profile of somebody else's training script."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from tuner.devices import CpuCores, Gpu, Watch
from tuner.profile.advice_order import bottleneck, of_falling, ranked
from tuner.profile.falling_pace import trend_of
from tuner.profile.profile_records import AtBatch, Busy, Operation, Operations, Profile
from tuner.profile.script_advice import advice_on, memory_of_batches
from tuner.profile.script_host import ScriptHost
from tuner.profile.script_runs import Script, pace_of, run_script, stages_of

TICKS = 60
"""Stretches that the throughput is looked at in."""
TIMES, LEAST_S = 5.0, 120.0
"""A run with something changed may take so many times as long as the present one, and in any case
so many seconds: `torch.compile` takes minutes where the run itself takes seconds."""


def profile_script(
    script: Script,
    device: Gpu | CpuCores,
    *,
    advice: bool,
    announce: Callable[[str], None] = lambda _line: None,
) -> Profile:
    """Where the time of this script's training goes, and what would help.

    Raises:
        ScriptError: the script fails, or trains nothing.
    """
    with ScriptHost() as host:
        return _profiled(script, host, device, advice=advice, announce=announce)


def _profiled(
    script: Script,
    host: ScriptHost,
    device: Gpu | CpuCores,
    *,
    advice: bool,
    announce: Callable[[str], None],
) -> Profile:
    watch = Watch(device)
    announce(f"running {script.path.name} for {script.steps} steps")
    began = time.monotonic()
    found = run_script(script, host, look=True)
    changed = replace(script, within_s=max(LEAST_S, TIMES * (time.monotonic() - began)))
    pace, stages = pace_of(found), stages_of(found)
    trend = trend_of(ticks_of(found["steps"]), found["all_steps"])
    a_step = pace.windows / pace.batch_size if pace.windows else 0
    pieces = [each] if (each := of_falling(trend, round(a_step))) else []
    memory: tuple[AtBatch, ...] = ()
    if advice:
        pieces += advice_on(changed, host, found, pace, stages, announce)
        memory = memory_of_batches(changed, host, found, pace, announce)
    order, launched = ranked(pieces), operations_of(found)
    return Profile(
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
        operations=launched,
        busy=Busy(**found["busy"] | {"cores": tuple(found["busy"]["cores"])}),
        memory=memory,
        bottleneck=bottleneck(order, stages, launched, pace),
        advice=order,
        contamination=watch.finish().why,
    )


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
