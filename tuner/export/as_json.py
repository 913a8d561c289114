"""A configuration as JSON: its record, as it is."""

from __future__ import annotations

import json

from tuner.export.best_config import BestConfig


def render(config: BestConfig) -> str:
    """The document of `BestConfig.as_dict`."""
    return json.dumps(config.as_dict(), indent=2, allow_nan=False)
