"""A configuration as TOML, which `tuner train --config` reads.
TOML has no null: such keys are left out.
"""

from __future__ import annotations

import json
import re
from typing import Any

from tuner.errors import UsageError
from tuner.export.best_config import BestConfig
from tuner.export.headline import headline

_BARE = re.compile(r"[A-Za-z0-9_-]+")


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
                f"{_key(name)} = {_value(value)}"
                for name, value in table.items()
                if value is not None
            ]
    return "\n".join(lines)


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _value(name)


def _value(value: Any) -> str:
    if isinstance(value, list | tuple):
        if None in value:
            raise UsageError("a list holds a null, which TOML does not have; use --format json")
        return "[" + ", ".join(map(_value, value)) + "]"
    if isinstance(value, dict):
        return (
            "{ "
            + ", ".join(f"{_value(k)} = {_value(v)}" for k, v in value.items() if v is not None)
            + " }"
        )
    # As in JSON, but for characters beyond 16 bits, which JSON writes as a pair that TOML refuses,
    # and DEL.
    return json.dumps(value, ensure_ascii=False, allow_nan=False).replace("\x7f", "\\u007f")
