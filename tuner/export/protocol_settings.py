"""Which of a study's fixed settings leave with a configuration."""

from __future__ import annotations

from typing import Any

from tuner.config import TrainingSettings

PROTOCOL_SETTINGS = (
    "max_epochs",
    "patience",
    "min_delta",
    "gradient_clip",
    "learning_rate_decay",
    "precision",
    "accumulate",
    "checkpoint_activations",
    "validate_every",
    "loss",
)
"""The fixed settings that decide what a training computes, and in how much memory; the others say
how it is executed."""


def protocol(training: TrainingSettings) -> dict[str, Any]:
    """The settings that decide what a training computes, as plain data."""
    plain = training.as_dict()
    return {name: plain[name] for name in PROTOCOL_SETTINGS if name in plain}
