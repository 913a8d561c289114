"""A profile as an HTML page: one file that needs nothing else, drawn in SVG by hand.

Names of classes, lines of scripts and kernels come from outside: all of it is escaped.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from tuner.display.terminal import Console
from tuner.display.text import in_html
from tuner.files.plain import in_json
from tuner.profile.profile_records import (
    ADVICE,
    MEMORY,
    OPERATIONS,
    Advice,
    AtBatch,
    Profile,
    waiting_share,
)
from tuner.training.stage_marks import Stage

# The words of a profile that terminal and page share.


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


# The tables of a profile, as terminal and page have them.


STAGES = "stages"


@dataclass(frozen=True, slots=True, kw_only=True)
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
    if profile.advice:
        yield ADVICE, _listed_advice(profile)
    if profile.operations.top:
        yield OPERATIONS, _listed_operations(profile)
    if profile.memory:
        yield MEMORY, _listed_memory(profile)


def _listed_advice(profile: Profile) -> Listing:
    rows = []
    for each in profile.advice:
        kind = "fault" if each.fault else "" if each.helps else "idle"
        foretold = "-" if each.epoch_s is None else seconds(each.epoch_s)
        rows.append((kind, (each.change, gain_of(each), foretold, remark_on(each))))
    return Listing(
        title="Advice, tried here where it can be",
        heads=("advice", "gain", "an epoch", ""),
        rows=rows,
        numbers=(1, 2),
    )


def _listed_operations(profile: Profile) -> Listing:
    rows = [
        ("", (each.name, f"{each.calls:.1f}", seconds(each.seconds)))
        for each in profile.operations.top
    ]
    kind = "kernel" if profile.operations.kernels is not None else "operation"
    heads = (kind, "calls a step", "time a step")
    return Listing(title="What a step launches", heads=heads, rows=rows, numbers=(1, 2))


def _listed_memory(profile: Profile) -> Listing:
    rows = []
    for each in profile.memory:
        step = "-" if each.step_s is None else seconds(each.step_s)
        window = "-" if each.step_s is None else seconds(each.step_s / each.batch_size)
        rows.append(("", (str(each.batch_size), memory_of(each), step, window)))
    heads = ("batch", "peak memory", "a step", "a window")
    return Listing(title="Memory against batch size", heads=heads, rows=rows, numbers=(0, 2, 3))


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
        table.add_row(stage.value, seconds(took), f"{share:.1%}", "#" * round(BAR * share))
    table.add_row("sum", seconds(stages.epoch_s), "100.0%", "")
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


COLOURS = {
    Stage.DATA: "#4477aa",
    Stage.TRANSFER: "#66ccee",
    Stage.FORWARD: "#228833",
    Stage.BACKWARD: "#ccbb44",
    Stage.OPTIMISER: "#ee6677",
    Stage.VALIDATION: "#aa3377",
    Stage.BETWEEN: "#bb5566",
    Stage.OTHER: "#bbbbbb",
}
"""Paul Tol's bright scheme: to be told apart by colour-blind people, too."""

WIDTH, LANE = 1000, 34
SHOWN_STEPS = 3
LEAST_LABELLED = 0.06

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 1060px; color: #222; }
h1 { font-size: 1.4em; } h2 { font-size: 1.1em; margin-top: 1.8em; }
p.first { font-size: 1.2em; border-left: 4px solid #ee6677; padding-left: .7em; }
table { border-collapse: collapse; width: 100%; } td, th { text-align: left; padding: .25em .6em;
border-bottom: 1px solid #ddd; vertical-align: top; } td.n, th.n { text-align: right;
white-space: nowrap; } tr.fault td { background: #fdf0f1; } tr.idle td { color: #888; }
svg { width: 100%; height: auto; } svg text { font: 12px system-ui, sans-serif; }
.key span { display: inline-block; margin-right: 1.2em; } .key i { display: inline-block;
width: .9em; height: .9em; margin-right: .35em; vertical-align: -0.1em; }
"""


def as_page(profile: Profile) -> str:
    """The whole document."""
    title = in_html(f"{profile.subject}: where its time goes")
    parts = [
        f"<h1>{title}</h1>",
        f'<p class="first">{in_html(profile.bottleneck)}</p>',
        *(f"<p>{in_html(line)}</p>" for line in [distrust(profile)] if line),
        f"<p>{in_html(_settings(profile))}</p>",
        f"<h2>{'An epoch' if profile.pace.windows else 'A step'}</h2>",
        _bar(profile),
        _key(),
        *_timeline(profile),
        *_throughput(profile),
        *(_table(listing) for _, listing in _listings(profile)),
        "<h2>How it was measured</h2>",
        *(f"<p>{in_html(line)}</p>" for line in facts_of(profile)),
    ]
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><!-- a profile -->'
        f"<title>{title}</title><style>{STYLE}</style></head><body>\n"
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _settings(profile: Profile) -> str:
    named = ", ".join(f"{name} {value}" for name, value in profile.settings.items())
    return f"{profile.device}. {named}" if named else profile.device


def _key() -> str:
    items = "".join(
        f'<span><i style="background:{COLOURS[stage]}"></i>{in_html(stage.value)}</span>'
        for stage in Stage
    )
    return f'<p class="key">{items}</p>'


def _bar(profile: Profile) -> str:
    """All stages of an epoch, side by side."""
    pieces, at = [], 0.0
    for stage in Stage:
        share, took = profile.stages.share(stage), profile.stages.seconds.get(stage, 0.0)
        wide = share * WIDTH
        said = f"{stage.value} {seconds(took)}, {share:.1%}"
        pieces.append(_box(at, 0, wide, LANE, COLOURS[stage], said))
        if share >= LEAST_LABELLED:
            pieces.append(_text(at + 6, LANE - 12, f"{share:.0%}", "#fff"))
        at += wide
    return _svg(LANE, pieces)


def _timeline(profile: Profile) -> Iterator[str]:
    """Some recorded steps, a lane for each stage."""
    spans = profile.stages.spans
    if not spans:
        return
    span_s = profile.pace.step_s * SHOWN_STEPS * (1 + max(0.0, profile.stages.difference))
    end = min(span_s, spans[-1].end_s) or 1.0
    stages = [stage for stage in Stage if any(span.stage is stage for span in spans)]
    pieces = []
    for lane, stage in enumerate(stages):
        pieces.append(_text(0, lane * LANE + 21, stage.value, "#222"))
    left, wide = 90, WIDTH - 90
    for span in spans:
        if span.start_s >= end:
            break
        x = left + span.start_s / end * wide
        w = (min(span.end_s, end) - span.start_s) / end * wide
        said = f"{span.stage.value}: {seconds(span.end_s - span.start_s)}"
        top = stages.index(span.stage) * LANE + 4
        pieces.append(_box(x, top, max(w, 0.5), LANE - 8, COLOURS[span.stage], said))
    below = len(stages) * LANE + 14
    pieces.append(_text(left, below, "0", "#666"))
    pieces.append(_text(WIDTH - 60, below, seconds(end), "#666"))
    yield "<h2>Timeline of recorded steps</h2>"
    yield _svg(below + 8, pieces)


def _throughput(profile: Profile) -> Iterator[str]:
    """Windows a second from start to end."""
    ticks = [each for each in profile.trend.seconds if each > 0]
    if len(ticks) < 2:  # noqa: PLR2004 - a line takes two points
        return
    rates = [profile.pace.batch_size / each for each in ticks]
    high, most = 150, max(rates)
    step = (WIDTH - 100) / (len(rates) - 1)
    points = " ".join(
        f"{90 + n * step:.1f},{high - rate / most * (high - 20):.1f}"
        for n, rate in enumerate(rates)
    )
    pieces = [
        f'<line x1="90" y1="{high}" x2="{WIDTH - 10}" y2="{high}" stroke="#999"/>',
        f'<polyline points="{points}" fill="none" stroke="#4477aa" stroke-width="2"/>',
        _text(0, 24, f"{most:,.0f} /s", "#222"),
        _text(0, high, "0", "#222"),
        _text(90, high + 16, "first step", "#666"),
        _text(WIDTH - 70, high + 16, f"step {profile.trend.steps}", "#666"),
    ]
    yield "<h2>Throughput, windows a second</h2>"
    yield _svg(high + 24, pieces)


def _table(listing: Listing) -> str:
    """A heading, and the table."""
    rows = [_cells("th", listing.heads, "", listing.numbers)]
    rows += [_cells("td", cells, kind, listing.numbers) for kind, cells in listing.rows]
    return f"<h2>{in_html(listing.title)}</h2>\n<table>{''.join(rows)}</table>"


def _cells(tag: str, cells: Sequence[str], kind: str, numbers: Sequence[int]) -> str:
    inside = "".join(
        f"<{tag}{' class=n' if n in numbers else ''}>{in_html(cell)}</{tag}>"
        for n, cell in enumerate(cells)
    )
    return f'<tr class="{kind}">{inside}</tr>'


def _box(x: float, y: float, wide: float, high: float, colour: str, said: str) -> str:
    return (
        f'<rect x="{x:.2f}" y="{y:.1f}" width="{wide:.2f}" height="{high:.1f}" fill="{colour}">'
        f"<title>{in_html(said)}</title></rect>"
    )


def _text(x: float, y: float, said: str, colour: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}">{in_html(said)}</text>'


def _svg(high: float, pieces: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {high:.0f}">{"".join(pieces)}</svg>'
