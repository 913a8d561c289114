"""Settings with which no training is possible."""

from __future__ import annotations

from tuner.config import ModelShapes, RunConfig
from tuner.devices.backend_rules import why_not_together
from tuner.errors import UsageError
from tuner.files.arguments import refuse_truths


def check_settings(config: RunConfig, shapes: ModelShapes) -> None:
    """Raises UsageError for settings with which no training is possible."""
    refuse_truths(config)
    h = config.hyperparameters
    for name, value in (("batch_size", h.batch_size), ("accumulate", config.accumulate)):
        if value < 1:
            raise UsageError(f"{name} must be at least 1, not {value}")
    if not h.learning_rate > 0:
        raise UsageError(f"learning_rate must be above 0, not {h.learning_rate}")
    if not h.weight_decay >= 0:
        raise UsageError(f"weight_decay must be at least 0, not {h.weight_decay}")
    if (problem := why_not_together(config.training)) is not None:
        raise UsageError(problem)
    if h.input_size not in (None, shapes.input_size):
        raise UsageError(
            f"input_size is {h.input_size}, the windows have {shapes.input_size} rows of past; "
            f"give data.seeing({h.input_size})"
        )
