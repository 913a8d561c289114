"""A configuration as TOML, which `tuner train --config` reads.
TOML has no null: such keys are left out.
"""

from __future__ import annotations

from typing import Any

from tuner.errors import UsageError
from tuner.export.best_config import BestConfig
from tuner.export.script_text import headline
from tuner.files.toml_text import toml_key, toml_value


def render(config: BestConfig) -> str:
    """The document of `BestConfig.as_dict`, under comments that say what it is."""
    plain = {key: value for key, value in config.as_dict().items() if value is not None}
    lines = [*(f"# {line}" for line in headline(config)), ""]
    lines += [
        f"{key} = {_value(value)}" for key, value in plain.items() if not isinstance(value, dict)
    ]
    for key, table in plain.items():
        if isinstance(table, dict):
            lines += ["", f"[{key}]"]
            lines += [
                f"{toml_key(name)} = {_value(value)}"
                for name, value in table.items()
                if value is not None
            ]
    return "\n".join(lines)


def _value(value: Any) -> str:
    try:
        return toml_value(value)
    except ValueError as error:
        raise UsageError(f"{error}; use --format json") from None
