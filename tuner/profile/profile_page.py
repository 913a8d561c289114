"""A profile as an HTML page: one file that needs nothing else, drawn in SVG by hand.

Names of classes, lines of scripts and kernels come from outside: all of it is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tuner.display.text import in_html
from tuner.profile.profile_records import Profile
from tuner.profile.profile_words import distrust, facts_of, gain_of, memory_of, remark_on, seconds
from tuner.training.stage_marks import Stage

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
        *_advice(profile),
        *_operations(profile),
        *_memory(profile),
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


def _advice(profile: Profile) -> Iterator[str]:
    if not profile.advice:
        return
    yield "<h2>Advice, tried here where it can be</h2>"
    rows = []
    for each in profile.advice:
        kind = "fault" if each.fault else "" if each.helps else "idle"
        foretold = "-" if each.epoch_s is None else seconds(each.epoch_s)
        rows.append((kind, (each.change, gain_of(each), foretold, remark_on(each))))
    yield _table(("advice", "gain", "an epoch", ""), rows, numbers=(1, 2))


def _operations(profile: Profile) -> Iterator[str]:
    if not profile.operations.top:
        return
    yield "<h2>What a step launches</h2>"
    rows = [
        ("", (each.name, f"{each.calls:.1f}", seconds(each.seconds)))
        for each in profile.operations.top
    ]
    yield _table(("kernel or operation", "calls a step", "time a step"), rows, numbers=(1, 2))


def _memory(profile: Profile) -> Iterator[str]:
    if not profile.memory:
        return
    yield "<h2>Memory against batch size</h2>"
    rows = []
    for each in profile.memory:
        step = "-" if each.step_s is None else seconds(each.step_s)
        rows.append(("", (str(each.batch_size), memory_of(each), step)))
    yield _table(("batch", "peak memory", "a step"), rows, numbers=(0, 2))


def _table(
    heads: Sequence[str], rows: Iterable[tuple[str, Sequence[str]]], *, numbers: Sequence[int]
) -> str:
    head = "".join(
        f"<th{' class=n' if n in numbers else ''}>{in_html(each)}</th>"
        for n, each in enumerate(heads)
    )
    body = []
    for kind, cells in rows:
        inside = "".join(
            f"<td{' class=n' if n in numbers else ''}>{in_html(cell)}</td>"
            for n, cell in enumerate(cells)
        )
        body.append(f'<tr class="{kind}">{inside}</tr>')
    return f"<table><tr>{head}</tr>{''.join(body)}</table>"


def _box(x: float, y: float, wide: float, high: float, colour: str, said: str) -> str:
    return (
        f'<rect x="{x:.2f}" y="{y:.1f}" width="{wide:.2f}" height="{high:.1f}" fill="{colour}">'
        f"<title>{in_html(said)}</title></rect>"
    )


def _text(x: float, y: float, said: str, colour: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" fill="{colour}">{in_html(said)}</text>'


def _svg(high: float, pieces: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {high:.0f}">{"".join(pieces)}</svg>'
