"""The forms a configuration is written in, by name: its record here, each script in a module of its
own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tuner.errors import UsageError, unknown_name
from tuner.export import as_darts, as_neuralforecast, as_python
from tuner.export.best_config import BestConfig, refuse_program
from tuner.export.script_text import headline
from tuner.files.toml_file import toml_key, toml_value
from tuner.models.names import social_names


def json_of(config: BestConfig) -> str:
    """The document of `BestConfig.as_dict`."""
    return json.dumps(config.as_dict(), indent=2, allow_nan=False)


def toml_of(config: BestConfig) -> str:
    """The document of `BestConfig.as_dict`, under comments that say what it is. TOML has no null:
    such keys are left out.
    """
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


FORMS = {
    "json": json_of,
    "toml": toml_of,
    "python": as_python.render,
    "neuralforecast": as_neuralforecast.render,
    "darts": as_darts.render,
}
FORMATS = tuple(FORMS)

RECORDS = ("json", "toml")


def render(config: BestConfig, form: str) -> str:
    """`config` as text.

    `json` and `toml` are its record. The others are scripts: `python` trains it with tuner,
    `neuralforecast` and `darts` with these libraries.

    Raises:
        UsageError: unknown form, or one that this configuration does not have.
    """
    if form not in FORMS:
        raise unknown_name("format", form, FORMATS)
    if config.definition.program is not None and form not in RECORDS:
        refuse_program(config.definition, config.study, f"--format {form}")
    if config.definition.architecture.model in social_names() and form not in RECORDS:
        raise UsageError(
            f"--format {form} has no Social-xLSTM yet; use --format toml or json, and tuner train "
            "for a model that forecasts"
        )
    return FORMS[form](config)


def render_files(config: BestConfig, form: str, path: Path) -> dict[Path, str]:
    """The files that `tuner best --output` writes: `path`, and beside a script of the form `python`
    the network alone, `best_network.py` beside `best.py`.

    Raises:
        UsageError: as `render`; or a script of this form is to be no `.py`.
    """
    found = {path: render(config, form)}
    if form == "python":
        found[network_path(path)] = as_python.render_network(config)
    return found


def network_path(path: Path) -> Path:
    """Where the network of a script of the form `python` goes.

    Raises:
        UsageError: the script is to be no `.py`.
    """
    if path.suffix != ".py":
        raise UsageError(
            f"{path}: expected a file name that ends in .py; the network alone goes beside it, as "
            "NAME_network.py"
        )
    return path.with_name(f"{path.stem}_network.py")
