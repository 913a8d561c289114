"""A profile on the terminal, as plain data, and as an HTML page: one file that needs nothing else.

Names of classes, lines of scripts and kernels come from outside: all of it is escaped.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from tuner.display.terminal import Console
from tuner.estimate.whole_estimate import seconds_in_words
from tuner.files.plain import in_json
from tuner.profile.profile_records import ADVICE, MEMORY, OPERATIONS, Advice, Profile, waiting_share
from tuner.training.stage_marks import Stage

# The words of a profile that terminal and page share.


def gain_of(advice: Advice) -> str:
    """`1.84 x`, or a dash."""
    return "-" if advice.gain is None else f"{advice.gain:.2f} x"


def remark_on(advice: Advice) -> str:
    """What is to be known of a piece of advice beside its gain."""
    changes = f"changes the mathematics: {advice.mathematics}" if advice.mathematics else ""
    return "; ".join(filter(None, (advice.why, advice.outcome, changes)))


def _megabytes(count: int | None) -> str:
    return "" if count is None else f"{count / 1e6:,.0f} MB"


def distrust(profile: Profile) -> str:
    """What speaks against all of its figures; empty where nothing does."""
    why = profile.contamination
    return f"These timings are not to be trusted: {why}." if why else ""


def facts_of(profile: Profile) -> Iterator[str]:
    """Lines on pace, attribution, machine and kernels."""
    pace, stages = profile.pace, profile.stages
    step = f"a step of {pace.batch_size} takes {seconds_in_words(pace.step_s)}"
    step += f": {pace.windows_per_s:,.0f} windows/s"
    if pace.windows:
        epoch, set_up = seconds_in_words(pace.epoch_s), seconds_in_words(pace.setup_s)
        step = f"an epoch of {pace.windows:,} windows takes {epoch}, set-up {set_up}; {step}"
    yield step
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
            f"{launched.kernels:.0f} kernels a step, {seconds_in_words(launched.kernel_s)} in all"
            + ("" if waits is None else f": the GPU is without one for {waits:.0%} of a step")
        )
        if launched.tensor_cores is None:
            yield "no kernel's name says that it multiplies matrices"
        else:
            yield f"tensor cores do {launched.tensor_cores:.0%} of the products' time"


# The tables of a profile, as terminal and page have them.


STAGES = "stages"


@dataclass(frozen=True, slots=True)
class Listing:
    """One table in words."""

    title: str
    heads: tuple[str, ...]
    rows: Sequence[tuple[str, tuple[str, ...]]]
    """Of each its kind, `fault`, `idle` or empty, and its cells."""
    numbers: tuple[int, ...]
    """Places of the columns that hold figures."""


def _listings(profile: Profile) -> Iterator[tuple[str, Listing]]:
    """Those that there are by now, each with the name of what it is of."""
    listed = {
        ADVICE: _listed_advice,
        LADDER: _listed_ladder,
        OPERATIONS: _listed_operations,
        MEMORY: _listed_memory,
    }
    for name, of in listed.items():
        if (listing := of(profile)).rows:
            yield name, listing


def _listed_advice(profile: Profile) -> Listing:
    rows = []
    for each in profile.advice:
        if each.rung is not None:
            continue
        kind = "fault" if each.fault else "" if each.helps else "idle"
        foretold = "-" if each.epoch_s is None else seconds_in_words(each.epoch_s)
        rows.append((kind, (each.change, gain_of(each), foretold, remark_on(each))))
    heads = ("advice", "gain", "an epoch", "")
    return Listing("Advice, tried here where it can be", heads, rows, numbers=(1, 2))


def _listed_ladder(profile: Profile) -> Listing:
    """Changes of a script, by what becomes of its result; with all that help, as they add up."""
    rows = []
    tried = [(each.rung, each) for each in profile.advice if each.rung is not None]
    for rung, each in sorted(tried, key=lambda pair: pair[0].place or len(profile.advice)):
        figures = (_figure(rung.samples_per_s), gain_of(each), _figure(rung.together_per_s))
        machine = (_figure(rung.gpu), _figure(rung.cpu), _megabytes(rung.peak_bytes))
        cells = (each.change, rung.group, *figures, *machine, remark_on(each))
        rows.append(("idle" if each.outcome and not each.helps else "", cells))
    heads = ("change", "gives", "samples/s", "gain", "with those kept", "GPU %", "CPU %", "memory")
    title = "Each change alone, and with those above it that are kept"
    return Listing(title, (*heads, ""), rows, numbers=(2, 3, 4, 5, 6, 7))


LADDER = "ladder"


def _figure(number: float | None) -> str:
    return "" if number is None else f"{number:,.0f}"


def _listed_operations(profile: Profile) -> Listing:
    rows = [
        ("", (each.name, f"{each.calls:.1f}", seconds_in_words(each.seconds)))
        for each in profile.operations.top
    ]
    kind = "kernel" if profile.operations.kernels is not None else "operation"
    heads = (kind, "calls a step", "time a step")
    return Listing("What a step launches", heads, rows, numbers=(1, 2))


def _listed_memory(profile: Profile) -> Listing:
    rows = []
    for each in sorted(profile.memory, key=lambda one: one.batch_size):
        memory = each.failure or _megabytes(each.peak_bytes) or "-"
        step = "-" if each.step_s is None else seconds_in_words(each.step_s)
        window = "-" if each.step_s is None else seconds_in_words(each.step_s / each.batch_size)
        rows.append(("", (str(each.batch_size), memory, step, window)))
    heads = ("batch", "peak memory", "a step", "a window")
    return Listing("Memory against batch size", heads, rows, numbers=(0, 2, 3))


# A profile on the terminal.


BAR = 30
LONGEST_CELL = 90
"""Characters of a kernel's name that a terminal gets."""
STYLES = {"fault": "bold", "": "", "idle": "dim"}


def print_measured(profile: Profile, console: Console, printed: set[str]) -> None:
    """Of one that is being measured: its finished tables that are not `printed` yet, and are then.
    Advice is printed at the end, in its order.
    """
    for name, table in _tables(profile):
        if name not in (*printed, *profile.left, ADVICE, LADDER):
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
    yield STAGES, _table_of_stages(profile)
    for name, listing in _listings(profile):
        table = Table(*listing.heads, title=listing.title)
        for kind, (first, *others) in listing.rows:
            shown = first[:LONGEST_CELL] if name == OPERATIONS else first
            table.add_row(shown, *others, style=STYLES[kind])
        yield name, table


def _table_of_stages(profile: Profile) -> Table:
    stages = profile.stages
    per = "an epoch" if profile.pace.windows else "a step"
    table = Table("stage", per, "share", "", title=f"{profile.subject} on {profile.device}")
    for stage in Stage:
        took, share = stages.seconds.get(stage, 0.0), stages.share(stage)
        table.add_row(stage.value, seconds_in_words(took), f"{share:.1%}", "#" * round(BAR * share))
    table.add_row("sum", seconds_in_words(stages.epoch_s), "100.0%", "")
    return table


# A profile as plain data: for `--json`, and from the process of somebody else's script.


def as_document(profile: Profile) -> dict[str, Any]:
    """Times in seconds, memory in bytes, shares from 0 to 1, utilisation in per cent."""
    stages = profile.stages
    return {
        **in_json(profile, "subject", "device", "settings", "bottleneck"),
        "pace": asdict(profile.pace)
        | {"window_s": profile.pace.window_s, "windows_per_s": profile.pace.windows_per_s},
        "stages": {
            **in_json(stages, "epoch_s", "difference", attribution="how"),
            "seconds": {stage.value: stages.seconds.get(stage, 0.0) for stage in Stage},
            "shares": {stage.value: stages.share(stage) for stage in Stage},
        },
        "throughput": in_json(profile.trend, "fall", "falls", step_s="seconds"),
        "operations": asdict(profile.operations),
        "busy": asdict(profile.busy),
        "memory": [asdict(each) for each in profile.memory],
        "advice": [_of_advice(each) for each in profile.advice],
        **in_json(profile, "contamination", "notes", not_measured="left"),
    }


def _of_advice(advice: Advice) -> dict[str, Any]:
    plain = asdict(advice)
    plain["changes_the_mathematics"] = plain.pop("mathematics")
    return plain | {"tried": advice.gain is not None, "helps": advice.helps}


SHOWN_STEPS = 3


@dataclass(frozen=True, slots=True)
class Box:
    """A stretch of one stage, as a page draws it."""

    stage: Stage
    start: float
    """As a share of what is drawn."""
    share: float
    said: str


def as_page(profile: Profile) -> str:
    """The whole document."""
    from tuner.report.pages import rendered

    spans = profile.stages.spans
    whole_s = profile.pace.step_s * SHOWN_STEPS * (1 + max(0.0, profile.stages.difference))
    whole_s = min([whole_s, *(span.end_s for span in spans[-1:])])
    return rendered(
        "profile.html",
        title=f"{profile.subject}: where its time goes",
        profile=profile,
        distrust=distrust(profile),
        bar=_bar(profile),
        timeline=_timeline(profile, whole_s),
        shown=seconds_in_words(whole_s),
        rates=[profile.pace.batch_size / each for each in profile.trend.seconds if each > 0],
        listings=[listing for _, listing in _listings(profile)],
        facts=facts_of(profile),
    )


def _bar(profile: Profile) -> Iterator[Box]:
    """All stages of an epoch, side by side."""
    at = 0.0
    for stage in Stage:
        share, took = profile.stages.share(stage), profile.stages.seconds.get(stage, 0.0)
        yield Box(stage, at, share, f"{stage.value} {seconds_in_words(took)}, {share:.1%}")
        at += share


def _timeline(profile: Profile, whole_s: float) -> list[Box]:
    """Some recorded steps."""
    found = []
    for span in profile.stages.spans:
        took = min(span.end_s, whole_s) - span.start_s
        if took > 0:
            said = f"{span.stage.value}: {seconds_in_words(span.end_s - span.start_s)}"
            found.append(Box(span.stage, span.start_s / whole_s, took / whole_s, said))
    return found
