"""Settings with which no training is possible."""

from __future__ import annotations

from tuner.config import ModelShapes, RunConfig
from tuner.devices.served_settings import why_not_together
from tuner.errors import UsageError
from tuner.files.arguments import refuse_truths


def check_settings(config: RunConfig, shapes: ModelShapes) -> None:
    """Raises UsageError for settings with which no training is possible."""
    refuse_truths(config)
    h, t = config.hyperparameters, config.training
    for name, value in (
        ("batch_size", h.batch_size),
        ("max_epochs", t.max_epochs),
        ("patience", t.patience),
        ("accumulate", config.accumulate),
        ("validate_every", t.validate_every),
    ):
        if value < 1:
            raise UsageError(f"{name} must be at least 1, not {value}")
    for name, number in (("learning_rate", h.learning_rate), ("gradient_clip", t.gradient_clip)):
        if not number > 0:
            raise UsageError(f"{name} must be above 0, not {number}")
    if not h.weight_decay >= 0:
        raise UsageError(f"weight_decay must be at least 0, not {h.weight_decay}")
    if (problem := why_not_together(t)) is not None:
        raise UsageError(problem)
    if h.input_size not in (None, shapes.input_size):
        raise UsageError(
            f"input_size is {h.input_size}, the windows have {shapes.input_size} rows of past; "
            f"give data.seeing({h.input_size})"
        )
