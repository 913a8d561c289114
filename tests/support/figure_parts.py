"""What the tests of figures draw, and how they look at what was drawn."""

from __future__ import annotations

from typing import Any

POINTS = [(3.0, 0.9), (1.0, 1.2), (2.0, 1.0), (2.5, 1.1)]
LABELS = [f"trial {i}" for i in range(4)]


def traces(figure: Any) -> dict[str, Any]:
    """By name; those without one are left out."""
    return {trace.name: trace for trace in figure.data if trace.name}
