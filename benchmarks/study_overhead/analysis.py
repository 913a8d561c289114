"""What a study's finished trials say of its overhead and its memory."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import Any

from tuner.record import Recorded
from tuner.study.results import TrialRecord

TARGET_S = 0.25
EARLY = 10
"""After this trial the memory held is compared with that after the last."""
PARTS = {
    "training and validation": "wall_clock_s",
    "suggesting": "suggest_s",
    "set-up": "setup_s",
    "between epochs": None,
    "evaluation": "evaluation_s",
    "storing, claiming, preparing": "turnover_s",
    "waiting for the device": "wait_s",
    "looking at the device, records": None,
}
"""A trial's cycle, in parts, and the attribute that holds each; None is what is left of a sum."""
NOT_OVERHEAD = ("training and validation", "suggesting")


def parts_of(recorded: Recorded) -> dict[str, float] | None:
    """Seconds of a trial's cycle by part; None where the trial has no whole cycle (a worker's first, or run twice)."""
    known = [name for name in PARTS.values() if name is not None]
    if (
        any(recorded.named(name) is None for name in (*known, "cycle_s", "total_s"))
        or recorded.timings is not None
    ):
        return None
    parts = {part: float(recorded.named(name)) if name else 0.0 for part, name in PARTS.items()}
    if recorded.suggest_wait_s is not None:  # the rest was while the trial before it trained
        parts["suggesting"] = recorded.suggest_wait_s
    trained = parts["training and validation"] + parts["set-up"] + parts["evaluation"]
    parts["between epochs"] = recorded.total_s - trained
    parts["looking at the device, records"] = recorded.cycle_s - sum(parts.values())
    return parts


def analyse(records: Sequence[TrialRecord]) -> dict[str, Any]:
    """What a study's finished trials say of its overhead and its memory."""
    finished = [record for record in records if record.state.is_finished()]
    found = [
        (record, parts) for record in finished if (parts := parts_of(record.recorded)) is not None
    ]
    if not found:
        raise SystemExit(
            "no trial of this study has a whole cycle: it needs at least two, one after the other"
        )
    cycles = [record.recorded.cycle_s for record, _ in found]
    overhead = [
        sum(s for part, s in parts.items() if part not in NOT_OVERHEAD) for _, parts in found
    ]
    columns = {part: [parts[part] for _, parts in found] for part in PARTS}
    return {
        "trials": len(finished),
        "counted": len(found),
        "trials_per_hour": 3600 * len(cycles) / sum(cycles),
        "cycle_s": spread(cycles),
        "overhead_s": spread(overhead),
        "target_s": TARGET_S,
        "target_met": statistics.median(overhead) <= TARGET_S,
        "parts": {
            part: spread(values) | {"share": sum(values) / sum(cycles)} | tenths(values)
            for part, values in columns.items()
        },
        "ended": {
            end: sum(r.recorded.stopped_by == end for r in finished) for end in ends(finished)
        },
        "memory": memory([record.recorded for record in finished]),
    }


def ends(records: Sequence[TrialRecord]) -> list[str]:
    return sorted({str(record.recorded.stopped_by) for record in records})


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, 95th percentile and maximum, seconds."""
    ordered = sorted(values)
    return {
        "median": statistics.median(ordered),
        "p95": ordered[math.ceil(0.95 * len(ordered)) - 1],
        "max": ordered[-1],
    }


def tenths(values: Sequence[float]) -> dict[str, float]:
    """Medians of the first and of the last tenth, of at least one."""
    count = max(1, len(values) // 10)
    return {
        "first_tenth": statistics.median(values[:count]),
        "last_tenth": statistics.median(values[-count:]),
    }


def memory(records: Sequence[Recorded]) -> dict[str, Any] | None:
    """What was held after trial 10 and after the last, bytes; None on a CPU."""
    held = [each for each in records if each.allocated_memory_bytes is not None]
    if not held:
        return None
    early, last = held[min(EARLY, len(held) - 1)], held[-1]
    kinds = ("allocated_memory_bytes", "reserved_memory_bytes")
    return {
        "after": [min(EARLY, len(held) - 1), len(held) - 1],
        **{kind: [early.named(kind), last.named(kind)] for kind in kinds},
        "most": {kind: max(each.named(kind) for each in held) for kind in kinds},
        "equal": all(early.named(kind) == last.named(kind) for kind in kinds),
    }
