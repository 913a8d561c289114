"""A small real task: generated data, which is prepared in no time."""

from __future__ import annotations

from typing import Any

from tuner.data.source_kinds import DemoSource
from tuner.data.task import Task


def tiny_task(**more: Any) -> Task:
    """Two series of 300 hours, two columns; a day of history, six hours ahead."""
    return Task(
        name="tiny",
        source=DemoSource(kind="demo", rows=300),
        target_columns=("a", "b"),
        frequency="h",
        input_size=24,
        horizon=6,
        **more,
    )
