"""One trial on a terminal: what it was asked to do,
what became of it, and under which circumstances.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table

from tuner.devices.backend_rules import WHY_EAGER
from tuner.devices.watch import SEES_PROCESSES
from tuner.display.terminal import line, make_console
from tuner.display.text import shown_value
from tuner.files.kinds import In
from tuner.record import MEANINGS, Recorded, names_in
from tuner.report.figures.style import spread
from tuner.report.study_status import TrialDetail, utc
from tuner.spec.objectives import axis_title
from tuner.spec.program import ClockLabel
from tuner.study.throughput import rate

# A row of values as one line of text.


SPARK_WIDTH = 32
"""Of a trial's curves."""
BLOCKS = "▁▂▃▄▅▆▇█"
PLAIN = "_.-=*#"


def sparkline(values: Sequence[float | None], *, width: int, plain: bool = False) -> str:
    """`values` as at most `width` characters of rising height;
    `plain` for terminals without Unicode.

    More values than characters are thinned evenly, the first and the last kept. Values that are no
    finite number leave a blank.
    """
    levels = PLAIN if plain else BLOCKS
    values = [values[place] for place in spread(len(values), width)]
    finite = [value for value in values if value is not None and math.isfinite(value)]
    if not finite:
        return ""
    low, span = min(finite), max(finite) - min(finite)

    def level(value: float | None) -> str:
        if value is None or not math.isfinite(value):
            return " "
        return levels[min(int((value - low) / span * len(levels)), len(levels) - 1) if span else 0]

    return "".join(level(value) for value in values)


# What `tuner trial` says of a trial's throughput, and of how busy its device was.


def throughput_rows(detail: TrialDetail, *, plain: bool) -> Iterator[tuple[str, str]]:
    """From the first epochs to the last ones, of its last seed, and an alarm where it fell.

    In samples a second, or, where nobody recorded how many an epoch has, in seconds an epoch.
    """
    found = detail.throughput
    if (ends := found.ends) is not None:
        first, last = ends
        trend = sparkline([1 / each for each in found.seconds], width=SPARK_WIDTH, plain=plain)
        said = f"{first:.3g} to {last:.3g} s an epoch"
        if detail.windows:
            rates = (rate(detail.windows / seconds) for seconds in ends)
            said = f"{' to '.join(rates)} samples/s"
        yield "throughput", f"{trend} {said}"
    if detail.alarm:
        yield "alarm", detail.alarm


def busy_in_words(recorded: Recorded) -> str:
    """`GPU 38 %, 1.0 CPU cores`; empty where neither is known."""
    said = []
    if recorded.gpu_busy is not None:
        said.append(f"GPU {100 * recorded.gpu_busy:.0f} %")
    if recorded.cpu_busy is not None:
        said.append(f"{recorded.cpu_busy:.1f} CPU cores")
    return f"{', '.join(said)}, while the clock ran" if said else ""


def energy_in_words(recorded: Recorded) -> str:
    """`8,412 J`, or that so short a clock leaves them unresolved; empty where neither is known."""
    if recorded.energy_j is not None:
        return f"{recorded.energy_j:,.0f} J"
    return "unresolved" if recorded.energy_unresolved else ""


Rows = Iterator[tuple[str, str]]
STYLES = {"FAIL": "red", "COMPLETE": "green", "PRUNED": "yellow"}
WHOLE_S = 10
"""Attempts that lasted longer are told in whole seconds."""


def print_trial(detail: TrialDetail) -> None:
    """Print all that is known of a trial, in sections, as wide as the terminal is."""
    console = make_console()
    front = "its configuration on the front" if detail.configuration else "on the front"
    marks = ["default hyperparameters"] * detail.record.is_default + [front] * detail.on_front
    head = (f"{detail.study}, trial {detail.record.number}", "bold")
    console.print(line(head, f" ({', '.join(marks)})" if marks else ""), soft_wrap=True)
    console.print(detail.outcome, style=STYLES.get(detail.record.state.name, ""))
    sections = (
        ("Values", _values(detail)),
        ("Hyperparameters", ((k, shown_value(v)) for k, v in detail.record.params.items())),
        ("Training", _training(detail, plain=console.options.ascii_only)),
        ("Device", _device(detail)),
        ("Attempts", _attempts(detail)),
        ("Made with", _origin(detail)),
        ("Also recorded", _rest(detail)),
    )
    for title, rows in sections:
        table = Table(box=None, show_header=False, padding=(0, 1, 0, 0), pad_edge=False)
        table.add_column(no_wrap=True, style="dim")
        table.add_column(overflow="fold")
        for key, value in rows:
            table.add_row(f"  {key}", value)
        if table.row_count:
            console.print(title, style="bold")
            console.print(table)


def _values(detail: TrialDetail) -> Rows:
    recorded, values = detail.record.recorded, detail.record.values
    if values is not None:
        warning = "; contaminated, do not trust it" if recorded.contaminated else ""
        clock, error = detail.record.objectives
        yield clock, f"{values[0]:.3f} s (best epoch after {_s(recorded.time_to_best_s)}){warning}"
        other = "test" if error == "val_mql" else "validation"
        beside = recorded.test_mql if error == "val_mql" else recorded.val_mql
        yield error, f"{values[1]:.4f} ({other} {_number(beside)})"
    if detail.configuration is not None and detail.configuration.values is not None:
        whole, (middle, quality) = detail.configuration, detail.configuration.values
        numbers = ", ".join(map(str, whole.numbers))
        medians = f"medians {middle:.3f} s, {quality:.4f}"
        yield "its configuration", f"{whole.runs} runs (trials {numbers}), {medians}"
    if detail.verified is not None:
        seconds, mql = (
            _interval(detail.verified[key], digits)
            for key, digits in (("wall_clock_s", 3), ("test_mql", 4))
        )
        split = axis_title(detail.verified.get("mql_is", "test_mql"))
        yield "fresh seeds", f"{detail.verified['seeds']}: {seconds} s, {split} {mql}"
    elif detail.unverified:
        yield "fresh seeds", detail.unverified
    for of, tested, validated in (
        ("test_mql/", recorded.series_test_mql, recorded.series_val_mql),
        ("test_mql_of/", recorded.column_test_mql, recorded.column_val_mql),
    ):
        for part, score in sorted(tested.items()):
            yield f"{of}{part}", f"{_number(score)} (validation {_number(validated.get(part))})"
    for block, score in sorted(recorded.block_test_mql.items()):
        yield f"test_block_mql/{block}", _number(score)


def _training(detail: TrialDetail, *, plain: bool) -> Rows:
    recorded = detail.record.recorded
    if recorded.epochs is not None:
        best = "-" if recorded.best_epoch is None else recorded.best_epoch
        each = f"{recorded.epochs} of {_s(recorded.s_per_epoch)} each"
        yield "epochs", f"{each}, the best was {best}"
    if detail.curve and detail.best is not None:
        last_seed = max(row.repeat for row in detail.validated)
        rows = [row for row in detail.validated if row.repeat == last_seed]
        line = sparkline([row.val_loss for row in rows], width=SPARK_WIDTH, plain=plain)
        first, last = (_number(row.val_loss) for row in (rows[0], rows[-1]))
        yield "validation loss", f"{line} {first} to {last}"
        best_at = f"epoch {detail.best.epoch} ({_s(detail.best.elapsed_s)})"
        yield "lowest", f"{_number(detail.best.val_loss)} in {best_at}"
    if recorded.total_s is not None:
        parts = f"{_s(recorded.total_s)} in all, {_s(recorded.setup_s)} of it setup"
        if recorded.suggest_s is not None:
            parts += f"; asking for it took {_s(recorded.suggest_s)}"
        if recorded.checkpoint_load_s is not None:
            parts += f"; its checkpoint was back in {_s(recorded.checkpoint_load_s)}"
        yield "took", parts
    if recorded.samples_per_s is not None:
        yield "pace", f"{recorded.samples_per_s:,.0f} samples/s"
    yield from throughput_rows(detail, plain=plain)
    yield from _backend(recorded)
    if recorded.n_parameters is not None:
        peak = f"{_bytes(recorded.peak_memory_bytes)} at the peak"
        frozen = f" and {recorded.n_frozen:,} frozen ones" if recorded.n_frozen else ""
        yield "network", f"{recorded.n_parameters:,} parameters{frozen}, {peak}"
    if recorded.seed is not None:
        yield "seed", str(recorded.seed)


def _device(detail: TrialDetail) -> Rows:
    recorded = detail.record.recorded
    if recorded.device:
        named = recorded.device_label or "-"
        more = "" if named.startswith(recorded.device) else f", {recorded.device}"
        yield "device", named + more
    if recorded.device_uuid:
        yield "uuid", recorded.device_uuid
    if recorded.host:
        yield "host", recorded.host
    if busy := busy_in_words(recorded):
        yield "busy", busy
    if energy := energy_in_words(recorded):
        yield "energy", energy
    if detail.record.cost is not None:
        yield "cost", f"{detail.record.cost:.4g}"
    if recorded.clock not in (None, ClockLabel.TUNER):
        yield "clock", str(recorded.clock)
    if recorded.contaminated is not None:
        said = "alone on its device while the clock ran" + _as_far_as_seen(recorded)
        if recorded.contaminated:
            said = f"contaminated: {recorded.contamination or '-'}"
        yield "timing", said


def _as_far_as_seen(recorded: Recorded) -> str:
    watched = recorded.device_watch or {}
    if watched.get(SEES_PROCESSES) is False or watched.get("watched") is False:
        return "; other programs on it could not be seen: NVML lists no processes here"
    return ""


def _attempts(detail: TrialDetail) -> Rows:
    for number, each in enumerate(detail.history, start=1):
        words = {"returned": "handed back", "lost": "worker lost"}.get(each.state, each.state)
        if each.state == "lost" and each.stopped_by:
            words += ", its result came too late to count"
        words += f", {each.worker}, from {utc(each.began)}"
        if each.state in ("finished", "running"):
            took = each.ended - each.began
            words += f", {took:.{0 if took > WHOLE_S else 1}f} s"
        yield str(number), words


def _origin(detail: TrialDetail) -> Rows:
    recorded = detail.record.recorded
    if recorded.versions is not None:
        known = recorded.versions.items()
        yield "versions", ", ".join(f"{name} {version}" for name, version in known if version)
    if recorded.git_revision:
        yield "revision", recorded.git_revision


def _rest(detail: TrialDetail) -> Rows:
    above = {*names_in(In.SECTION), *(detail.record.named_values or ())}
    recorded = detail.record.recorded
    plain = {name: recorded.named(name) for name in MEANINGS if name not in above}
    for name, value in sorted({**recorded.other, **plain}.items()):
        if value is not None:
            yield name, value if isinstance(value, str) else json.dumps(value)


def _interval(figures: Mapping[str, float], digits: int) -> str:
    """A median with its 95 % interval."""
    return "{median:.{n}f} ({low:.{n}f} to {high:.{n}f})".format(n=digits, **figures)


def _backend(recorded: Recorded) -> Rows:
    if recorded.backend:
        yield "backend", f"{recorded.backend}, {recorded.precision or '-'}"
    if recorded.backend_fallback:
        wanted = "compile" if recorded.backend == "eager" else "triton"
        wanted = "graph" if recorded.backend_measured else wanted
        not_that = "eager" if recorded.backend_fallback == WHY_EAGER else f"not {wanted}"
        yield f"{not_that}, since", recorded.backend_fallback
    if recorded.backend_measured:
        yield "measured", recorded.backend_measured
    if recorded.cell:
        yield "xLSTM cell", recorded.cell


def _number(value: Any) -> str:
    return "-" if value is None else f"{value:.4f}"


def _s(value: Any) -> str:
    return "-" if value is None else f"{value:.3g} s"


def _bytes(value: Any) -> str:
    return "-" if value is None else f"{value / 2**20:,.0f} MiB"
