"""What the turns of a contender came to, also as text: for a fresh process that goes on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from tuner.bench.contender import Entry, Epoch, Round


@dataclass(slots=True)
class Measurement:
    """What one contender's turns came to; `failure` is why it dropped out, or empty."""

    entry: Entry
    cold_setup_s: float | None = None
    rounds: list[Round] = field(default_factory=list)
    kernels_per_step: int | None = None
    gpu_utilisation: float | None = None
    failure: str = ""
    looked_inside: bool = False


def as_text(measurements: Sequence[Measurement]) -> str:
    """All that was measured, to the last digit."""
    return json.dumps([asdict(measured) for measured in measurements])


def from_text(text: str, entries: Sequence[Entry]) -> list[Measurement]:
    """What `as_text` wrote of these contenders.

    Raises:
        ValueError: it is of others, or of none at all.
    """
    try:
        found = [
            _measurement(each, entry) for each, entry in zip(json.loads(text), entries, strict=True)
        ]
    except (TypeError, KeyError) as error:
        raise ValueError(str(error)) from error
    return found


def _measurement(values: dict[str, Any], entry: Entry) -> Measurement:
    if values["entry"] != asdict(entry):
        raise ValueError(f"measured was {values['entry']}, not {entry.label}")
    plain = {
        each.name: values[each.name]
        for each in fields(Measurement)
        if each.name not in ("entry", "rounds")
    }
    return Measurement(entry=entry, rounds=[_round(each) for each in values["rounds"]], **plain)


def _round(values: dict[str, Any]) -> Round:
    first, last = values["counted"]
    epochs = tuple(Epoch(**each) for each in values["epochs"])
    return Round(**(values | {"epochs": epochs, "counted": (first, last)}))
