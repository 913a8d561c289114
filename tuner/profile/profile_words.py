"""The words of a profile that terminal and page share."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import asdict
from typing import Any

from rich.table import Table

from tuner.display.terminal import Console
from tuner.profile.advice_order import waiting_share
from tuner.profile.profile_records import ADVICE, MEMORY, OPERATIONS, Advice, AtBatch, Profile
from tuner.training.stage_marks import Stage

MILLI, MICRO = 1e-3, 1e-6


def seconds(value: float) -> str:
    """`1.24 s`, `12.4 ms` or `312 us`."""
    if value >= 1:
        return f"{value:.3g} s"
    if value >= MILLI:
        return f"{value / MILLI:.3g} ms"
    return f"{value / MICRO:.3g} us"


def gain_of(advice: Advice) -> str:
    """`1.84 x`, or a dash."""
    return "-" if advice.gain is None else f"{advice.gain:.2f} x"


def remark_on(advice: Advice) -> str:
    """What is to be known of a piece of advice beside its gain."""
    changes = f"changes the mathematics: {advice.mathematics}" if advice.mathematics else ""
    return "; ".join(filter(None, (advice.why, advice.outcome, changes)))


def memory_of(at: AtBatch) -> str:
    """Of a batch size, or why there is none."""
    if at.failure:
        return at.failure
    return "-" if at.peak_bytes is None else f"{at.peak_bytes / 1e6:,.0f} MB"


def distrust(profile: Profile) -> str:
    """What speaks against all of its figures; empty where nothing does."""
    why = profile.contamination
    return f"These timings are not to be trusted: {why}." if why else ""


def facts_of(profile: Profile) -> Iterator[str]:
    """Lines on pace, attribution, machine and kernels."""
    pace, stages = profile.pace, profile.stages
    rate = f"{pace.windows_per_s:,.0f} windows/s"
    if pace.windows:
        yield (
            f"an epoch of {pace.windows:,} windows takes {seconds(pace.epoch_s)}, set-up "
            f"{seconds(pace.setup_s)}; a step of {pace.batch_size} takes {seconds(pace.step_s)}: "
            f"{rate}"
        )
    else:
        yield f"a step of {pace.batch_size} takes {seconds(pace.step_s)}: {rate}"
    yield f"stages: {stages.how}"
    yield (
        f"a recorded step took {abs(stages.difference):.1%} "
        f"{'more' if stages.difference >= 0 else 'less'} than one that was not; the stages are the "
        "shares of a recorded step, in the time of one that was not recorded"
    )
    trend = profile.trend
    if trend.seconds:
        falls = f"falls by {trend.fall:.0%}" if trend.falls else "does not fall"
        yield f"throughput {falls} within {trend.steps} steps"
    yield from _of_machine(profile)
    yield from profile.notes
    if profile.left:
        yield f"stopped before it was measured to its end: {', '.join(profile.left)}"


def _of_machine(profile: Profile) -> Iterator[str]:
    busy, launched = profile.busy, profile.operations
    if busy.gpu is not None:
        yield f"GPU {busy.gpu:.0f} % busy, as NVML says"
    if busy.process is not None:
        cores = ", ".join(f"{core:.0f}" for core in busy.cores)
        yield f"the process used {busy.process:.0f} % of a core; cores, in %: {cores or '-'}"
    if launched.failure:
        yield f"operations could not be looked at: {launched.failure}"
    if launched.kernels is not None and launched.kernel_s is not None:
        waits = waiting_share(launched, profile.pace)
        yield (
            f"{launched.kernels:.0f} kernels a step, {seconds(launched.kernel_s)} in all"
            + ("" if waits is None else f": the GPU is without one for {waits:.0%} of a step")
        )
        if launched.tensor_cores is None:
            yield "no kernel's name says that it multiplies matrices"
        else:
            yield f"tensor cores do {launched.tensor_cores:.0%} of the products' time"


# A profile on the terminal.


BAR = 30
STAGES = "stages"


def print_measured(profile: Profile, console: Console, printed: set[str]) -> None:
    """Of one that is being measured: its finished tables that are not `printed` yet, and are then.
    Advice is printed at the end, in its order.
    """
    for name, table in _tables(profile):
        if name not in (*printed, *profile.left, ADVICE):
            console.print(table)
            printed.add(name)


def print_profile(profile: Profile, console: Console, printed: Container[str] = ()) -> None:
    """The bottleneck, stages, advice, operations, memory, and what is to be known of them; without
    the tables that are `printed`.
    """
    console.print(profile.bottleneck, style="bold")
    if doubt := distrust(profile):
        console.print(doubt, style="yellow")
    console.print()
    for name, table in _tables(profile):
        if name not in printed:
            console.print(table)
    for line in facts_of(profile):
        console.print(line)


def _tables(profile: Profile) -> Iterator[tuple[str, Table]]:
    yield STAGES, _stages(profile)
    if profile.advice:
        yield ADVICE, _advice(profile)
    if profile.operations.top:
        yield OPERATIONS, _operations(profile)
    if profile.memory:
        yield MEMORY, _memory(profile)


def _stages(profile: Profile) -> Table:
    stages = profile.stages
    per = "an epoch" if profile.pace.windows else "a step"
    table = Table("stage", per, "share", "", title=f"{profile.subject} on {profile.device}")
    for stage in Stage:
        took, share = stages.seconds.get(stage, 0.0), stages.share(stage)
        table.add_row(stage.value, seconds(took), f"{share:.1%}", "#" * round(BAR * share))
    table.add_row("sum", seconds(stages.epoch_s), "100.0%", "")
    return table


def _advice(profile: Profile) -> Table:
    table = Table("advice", "gain", "an epoch", "", title="Advice, tried here where it can be")
    for each in profile.advice:
        foretold = "-" if each.epoch_s is None else seconds(each.epoch_s)
        style = "bold" if each.fault else "" if each.helps else "dim"
        table.add_row(each.change, gain_of(each), foretold, remark_on(each), style=style)
    return table


def _operations(profile: Profile) -> Table:
    kind = "kernel" if profile.operations.kernels is not None else "operation"
    table = Table(kind, "calls a step", "time a step", title="What a step launches")
    for each in profile.operations.top:
        table.add_row(each.name[:90], f"{each.calls:.1f}", seconds(each.seconds))
    return table


def _memory(profile: Profile) -> Table:
    table = Table("batch", "peak memory", "a step", "a window", title="Memory against batch size")
    for each in profile.memory:
        step = "-" if each.step_s is None else seconds(each.step_s)
        window = "-" if each.step_s is None else seconds(each.step_s / each.batch_size)
        table.add_row(str(each.batch_size), memory_of(each), step, window)
    return table


# A profile as plain data: for `--json`, and from the process of somebody else's script.


def as_document(profile: Profile) -> dict[str, Any]:
    """Times in seconds, memory in bytes, shares from 0 to 1, utilisation in per cent."""
    stages = profile.stages
    return {
        "subject": profile.subject,
        "device": profile.device,
        "settings": dict(profile.settings),
        "bottleneck": profile.bottleneck,
        "pace": asdict(profile.pace)
        | {"window_s": profile.pace.window_s, "windows_per_s": profile.pace.windows_per_s},
        "stages": {
            "epoch_s": stages.epoch_s,
            "seconds": {stage.value: stages.seconds.get(stage, 0.0) for stage in Stage},
            "shares": {stage.value: stages.share(stage) for stage in Stage},
            "attribution": stages.how,
            "difference": stages.difference,
        },
        "throughput": {
            "step_s": list(profile.trend.seconds),
            "fall": profile.trend.fall,
            "falls": profile.trend.falls,
        },
        "operations": asdict(profile.operations),
        "busy": asdict(profile.busy),
        "memory": [asdict(each) for each in profile.memory],
        "advice": [_of_advice(each) for each in profile.advice],
        "contamination": profile.contamination,
        "notes": list(profile.notes),
        "not_measured": list(profile.left),
    }


def _of_advice(advice: Advice) -> dict[str, Any]:
    return {
        "change": advice.change,
        "why": advice.why,
        "fault": advice.fault,
        "tried": advice.gain is not None,
        "gain": advice.gain,
        "helps": advice.helps,
        "epoch_s": advice.epoch_s,
        "changes_the_mathematics": advice.mathematics,
        "outcome": advice.outcome,
    }
