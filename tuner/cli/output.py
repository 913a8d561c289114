"""What goes to stdout: one JSON document, where that was asked for."""

from __future__ import annotations

import json
import math
from typing import Any


def print_json(document: Any) -> None:
    """One JSON document on stdout. What is no finite number (the loss of a diverging trial) has no JSON: it is null."""
    print(json.dumps(_finite(document), indent=2, allow_nan=False))  # noqa: T201


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
