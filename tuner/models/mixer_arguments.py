"""What the built-in mixers are built with, known without importing torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.errors import UsageError, unknown_name
from tuner.models.readings import CHOICES, check_choice

SIZES = ("hidden_size", "dropout")
"""Hyperparameters of every study of a mixer."""
SETTINGS = {"n_blocks": 16, "feed_forward_size": 4096}
"""Fixed, or hyperparameters of a study's own: whole numbers from 1 on; and up to which a network is
of a usual size.
"""
USUAL_HIDDEN_SIZE = 1024


def check_mixer_arguments(
    model: str, settings: Mapping[str, Any], arguments: Mapping[str, Any]
) -> None:
    """Raises UsageError where a mixer does not take one of these.

    Args:
        model: a built-in variant's name.
        settings: that are fixed.
        arguments: all of them, the configuration's among them.
    """
    where = f"variant {model!r}, settings"
    for name, value in arguments.items():
        if name in SIZES and name not in settings:
            continue
        if name in SIZES:
            raise UsageError(
                f"{where}: {name!r} is a hyperparameter; give it in the study's space or defaults"
            )
        if name in CHOICES:
            check_choice(where, name, value)
            continue
        if name not in SETTINGS:
            known = [*SETTINGS, *CHOICES]
            raise unknown_name(f"setting of variant {model!r}", name, known)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise UsageError(f"{where}: {name} must be a whole number of at least 1, not {value!r}")


def of_usual_size(arguments: Mapping[str, Any]) -> bool:
    """Whether a mixer of these arguments fits wherever one trains."""
    most = {"hidden_size": USUAL_HIDDEN_SIZE, **SETTINGS}
    return all(arguments.get(name, 1) <= largest for name, largest in most.items())
