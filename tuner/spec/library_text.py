"""The study file of a model of neuralforecast as a text, for a person to change."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tuner.display.text import shown
from tuner.files.toml_text import toml_key, toml_value
from tuner.models.names import LIBRARY
from tuner.models.of_neuralforecast.auto_space import study_of_library
from tuner.spec.study_text import TRIED_ON, next_commands, variant_name


def library_text(name: str, path: Path, tried_on: Sequence[str] = TRIED_ON) -> str:
    """What `--variant neuralforecast:NAME` searches, written out.

    Args:
        name: of the class.
        path: where the file will lie, as it was named.
        tried_on: the options that name the data in whose shapes the network was built.

    Raises:
        UsageError: as `study_of_library`.
    """
    return "\n".join(_lines(name, path, tried_on)) + "\n"


def _lines(name: str, path: Path, tried_on: Sequence[str]) -> Iterator[str]:
    study = study_of_library(name)
    whole = study.study_file() | {"name": variant_name(name)}
    called = whole["name"]
    yield f'# The study of variant "{called}": what it is, where its search starts and may go.'
    yield f"# Proposed from Auto{name} of {LIBRARY}: change what you know better. Then:"
    for command in next_commands(path, tried_on):
        yield f"#     {shown(command)}"
    yield ""
    for key in ("name", "title", "core_change", "source", "model"):
        yield f"{key} = {toml_value(whole[key])}"
    yield ""
    yield "# The first trial of the study: the class's own defaults."
    yield from _table("defaults", study.defaults)
    for argument, table in study.space.items():
        yield ""
        yield from _table(f"space.{toml_key(argument)}", table)


def _table(header: str, values: Mapping[str, Any]) -> Iterator[str]:
    yield f"[{header}]"
    for key, value in values.items():
        yield f"{toml_key(key)} = {toml_value(value)}"
