"""One trial on a terminal: what it was asked to do, what became of it, and under which circumstances."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from tuner.study.detail import TrialDetail, utc
from tuner.view.console import make_console
from tuner.view.spark import sparkline

Rows = Iterator[tuple[str, str]]
SPARK_WIDTH = 32
WHOLE_S = 10
"""Attempts that lasted longer are told in whole seconds."""
_SHOWN = frozenset({
    "stopped_by", "failure", "converged", "default", "epochs", "best_epoch", "val_loss", "val_mql", "test_mql_mean",
    "s_per_epoch", "setup_s", "time_to_best_s", "total_s", "suggest_s", "samples_per_s", "peak_memory_bytes",
    "n_parameters", "backend", "backend_fallback", "precision", "seed", "device", "device_label", "device_uuid", "host",
    "contaminated",
    "attempts", "contamination", "versions", "git_revision", "allocated_memory_bytes", "reserved_memory_bytes",
})  # fmt: skip


def print_trial(detail: TrialDetail) -> None:
    """Print all that is known of a trial, in sections, as wide as the terminal is."""
    console = make_console()
    marks = [
        name
        for name, holds in (("default hyperparameters", detail.record.is_default), ("on the front", detail.on_front))
        if holds
    ]
    head = Text(f"{detail.study}, trial {detail.record.number}", style="bold")
    console.print(head + Text(f" ({', '.join(marks)})" if marks else "", style="not bold"))
    console.print(detail.outcome, style=_style(detail), highlight=False)
    sections = (
        ("Values", _values(detail)),
        ("Hyperparameters", _params(detail)),
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
            table.add_row(f"  {key}", Text(value))
        if table.row_count:
            console.print(Text(title, style="bold"))
            console.print(table)


def _style(detail: TrialDetail) -> str:
    return {"FAIL": "red", "COMPLETE": "green", "PRUNED": "yellow"}.get(detail.record.state.name, "")


def _values(detail: TrialDetail) -> Rows:
    a, values = detail.record.attributes, detail.record.values
    if values is not None:
        warning = "; contaminated, do not trust it" if a.get("contaminated") else ""
        clock, error = detail.record.objectives
        yield clock, f"{values[0]:.3f} s (best epoch after {_s(a.get('time_to_best_s'))}){warning}"
        yield error, f"{values[1]:.4f} (validation {_number(a.get('val_mql'))})"
    if detail.verified is not None:
        seconds, mql = (
            _interval(detail.verified[key], digits) for key, digits in (("wall_clock_s", 3), ("test_mql", 4))
        )
        yield "fresh seeds", f"{detail.verified['seeds']}: {seconds} s, test MQL {mql}"
    for key, value in sorted(a.items()):
        if key.startswith("test_mql/"):
            yield key, f"{_number(value)} (validation {_number(a.get('val_' + key.removeprefix('test_')))})"


def _params(detail: TrialDetail) -> Rows:
    for key, value in detail.record.params.items():
        yield key, f"{value:.6g}"


def _training(detail: TrialDetail, *, plain: bool) -> Rows:
    a = detail.record.attributes
    if a.get("epochs") is not None:
        yield "epochs", f"{a['epochs']} of {_s(a.get('s_per_epoch'))} each, the best was {a.get('best_epoch', '-')}"
    if detail.curve and detail.best is not None:
        last_seed = max(row.repeat for row in detail.curve)
        rows = [row for row in detail.curve if row.repeat == last_seed]
        line = sparkline([row.val_loss for row in rows], width=SPARK_WIDTH, plain=plain)
        yield "validation loss", f"{line} {_number(rows[0].val_loss)} to {_number(rows[-1].val_loss)}"
        yield "lowest", f"{_number(detail.best.val_loss)} in epoch {detail.best.epoch} ({_s(detail.best.elapsed_s)})"
    if a.get("total_s") is not None:
        parts = f"{_s(a['total_s'])} in all, {_s(a.get('setup_s'))} of it setup"
        yield "took", parts + (f"; asking for it took {_s(a['suggest_s'])}" if "suggest_s" in a else "")
    if a.get("samples_per_s") is not None:
        yield "pace", f"{a['samples_per_s']:,.0f} samples/s"
    if a.get("backend"):
        yield "backend", f"{a['backend']}, {a.get('precision', '-')}"
    if a.get("backend_fallback"):
        yield "not triton, since", str(a["backend_fallback"])
    if a.get("n_parameters") is not None:
        yield "network", f"{a['n_parameters']:,} parameters, {_bytes(a.get('peak_memory_bytes'))} at the peak"
    if a.get("seed") is not None:
        yield "seed", str(a["seed"])


def _device(detail: TrialDetail) -> Rows:
    a = detail.record.attributes
    if a.get("device"):
        named = str(a.get("device_label", "-"))
        yield "device", named if named.startswith(str(a["device"])) else f"{named}, {a['device']}"
    if a.get("device_uuid"):
        yield "uuid", str(a["device_uuid"])
    if a.get("host"):
        yield "host", str(a["host"])
    if a.get("contaminated") is not None:
        alone = "alone on its device while the clock ran"
        yield "timing", f"contaminated: {a.get('contamination') or '-'}" if a["contaminated"] else alone


def _attempts(detail: TrialDetail) -> Rows:
    for number, each in enumerate(detail.history, start=1):
        words = {"returned": "handed back", "lost": "worker lost"}.get(each.state, each.state)
        words += ", its result came too late to count" if each.state == "lost" and each.stopped_by else ""
        took = each.ended - each.began
        lasted = f", {took:.{0 if took > WHOLE_S else 1}f} s" if each.state in ("finished", "running") else ""
        yield str(number), f"{words}, {each.worker}, from {utc(each.began)}{lasted}"


def _origin(detail: TrialDetail) -> Rows:
    a = detail.record.attributes
    versions = a.get("versions")
    if isinstance(versions, dict):
        yield "versions", ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    if a.get("git_revision"):
        yield "revision", str(a["git_revision"])


def _rest(detail: TrialDetail) -> Rows:
    above = _SHOWN | set(detail.record.named_values or ())
    for key, value in sorted(detail.record.attributes.items()):
        if key not in above and "mql/" not in key and value is not None:
            yield key, value if isinstance(value, str) else json.dumps(value)


def _interval(figures: Mapping[str, float], digits: int) -> str:
    """A median with its 95 % interval."""
    return "{median:.{n}f} ({low:.{n}f} to {high:.{n}f})".format(n=digits, **figures)


def _number(value: Any) -> str:
    return "-" if value is None else f"{value:.4f}"


def _s(value: Any) -> str:
    return "-" if value is None else f"{value:.3g} s"


def _bytes(value: Any) -> str:
    return "-" if value is None else f"{value / 2**20:,.0f} MiB"
