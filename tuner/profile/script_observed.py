"""What hooks saw of somebody else's training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import nn

from tuner.profile.recorders import Recording


@dataclass(slots=True)
class Loader:
    """What is known of the training's DataLoader."""

    batches: int | None = None
    samples: int | None = None
    batch_size: int | None = None
    workers: int = 0


@dataclass(slots=True)
class Observed:
    """What the hooks saw."""

    steps: list[float] = field(default_factory=list)
    """Seconds of each timed step without validation, unrecorded."""
    validations: list[float] = field(default_factory=list)
    """Seconds by which a step with validation before it took longer."""
    recordings: list[Recording] = field(default_factory=list)
    recorded_steps: int = 0
    samples: int = 0
    sampled_steps: int = 0
    loader: Loader = field(default_factory=Loader)
    network: nn.Module | None = None
    inputs: tuple[tuple[Any, ...], dict[str, Any]] | None = None
    alive: set[str] = field(default_factory=set)
    began: float = 0.0
    setup_s: float = 0.0
