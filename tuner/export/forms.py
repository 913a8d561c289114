"""The forms a configuration is written in, by name; each has a module of its own."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import cast

from tuner.errors import UsageError, unknown_name
from tuner.export.best_config import BestConfig
from tuner.export.no_network import refuse_program
from tuner.models.names import social_names

FORMATS = ("json", "toml", "python", "neuralforecast", "darts")

RECORDS = ("json", "toml")


def render(config: BestConfig, form: str) -> str:
    """`config` as text.

    `json` and `toml` are its record. The others are scripts: `python` trains it with torch, pandas
    and numpy alone, `neuralforecast` and `darts` with these libraries.

    Raises:
        UsageError: unknown form, or one that this configuration does not have.
    """
    if form not in FORMATS:
        raise unknown_name("format", form, FORMATS)
    if config.definition.program is not None and form not in RECORDS:
        refuse_program(config.definition, config.study, f"--format {form}")
    if config.definition.architecture.model in social_names() and form not in RECORDS:
        raise UsageError(
            f"--format {form} has no Social-xLSTM yet; use --format toml or json, and tuner train "
            "for a model that forecasts"
        )
    module = importlib.import_module(f"tuner.export.as_{form}")
    return cast("Callable[[BestConfig], str]", module.render)(config)
