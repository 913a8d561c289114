"""A profile on the terminal."""

from __future__ import annotations

from collections.abc import Container, Iterator

from rich.table import Table

from tuner.display.terminal import Console
from tuner.profile.profile_records import ADVICE, MEMORY, OPERATIONS, Profile
from tuner.profile.profile_words import distrust, facts_of, gain_of, memory_of, remark_on, seconds
from tuner.training.stage_marks import Stage

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
