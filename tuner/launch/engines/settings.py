"""What an engine is told beside the number of workers: `KEY=VALUE` with commas, or a TOML file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from tuner.errors import UsageError
from tuner.files.plain import explained
from tuner.files.toml_file import read_toml

Settings = TypeVar("Settings", bound=BaseModel)


def read_settings(kind: type[Settings], text: str | None, *, table: str) -> Settings:
    """The settings as typed, those that were not said with their defaults.

    Args:
        kind: its fields are the keys.
        text: `KEY=VALUE` with commas, or a path that ends in `.toml`; None: nothing is said.
        table: the file's table that is meant, `slurm` for `[slurm]`.

    Raises:
        UsageError: a key that is none, a value that its key does not take, or a file that is
            missing or wrong.
    """
    keys = [field.alias or name for name, field in kind.model_fields.items()]
    if text is None:
        said: Mapping[str, object] = {}
    elif text.endswith(".toml") and text.partition("=")[0].strip() not in keys:
        said = _table(Path(text).expanduser(), table)
    else:
        said = _pairs(text)
    try:
        return kind.model_validate(said)
    except ValidationError as error:
        raise UsageError(
            f"--placement: {explained(error)}; its keys are {', '.join(keys)}"
        ) from None


def _pairs(text: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in text.split(","):
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise UsageError(
                f"--placement: {pair!r} is no KEY=VALUE; expected e.g. partition=gpu,time=2:00:00, "
                "or the path of a .toml file"
            )
        if key.strip() in found:
            raise UsageError(f"--placement: {key.strip()!r} is named twice; name each key once")
        found[key.strip()] = value.strip()
    return found


def _table(path: Path, table: str) -> Mapping[str, object]:
    content = read_toml(path).data
    found = content.get(table)
    if not isinstance(found, dict):
        raise UsageError(f"--placement: {path} has no table [{table}]")
    return found
