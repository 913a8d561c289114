"""The forms a configuration is written in, by name: records, and scripts for tuner, neuralforecast
and darts.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Any

from tuner.config import LossTerm, TrainingSettings, library_class, names_own_code
from tuner.data.source_kinds import CsvSource
from tuner.display import text
from tuner.errors import UsageError, unknown_name
from tuner.export.best_config import (
    BestConfig,
    library_arguments,
    refuse_program,
    refuse_untrainable,
)
from tuner.export.bundle import Name, bundle, entry_text, names_in
from tuner.export.script_text import SCRIPTS, filled, headline, literal
from tuner.files.plain import in_json
from tuner.files.toml_file import toml_key, toml_value
from tuner.models.names import TIME_LLM, social_names
from tuner.models.of_neuralforecast.library_source import QUANTILES_FIRST
from tuner.models.readings import reading_of
from tuner.models.registry import check_name

# In Python, as two files: a script that trains it with tuner, and its network alone, which needs
# torch. The network is this package's own source (`bundle`) with operations in torch's own words
# (`plain_operations`), so that it has the weights' names of a saved model and its forecasts.


NETWORK = "tuner.models.tsmixer"
IN_TORCHS_WORDS = {
    "tuner.models.ops": "tuner.export.plain_operations",
    "tuner.models.dropout": "tuner.export.plain_operations",
}


def python_of(config: BestConfig) -> str:
    """The script that trains it.

    Raises:
        UsageError: a built-in variant that this tuner does not have.
    """
    check_name(config.architecture.model)
    given = config.definition.architecture
    architecture: dict[str, Any] = {"model": given.model}
    if given.settings:
        architecture["settings"] = dict(given.settings)
    usual = TrainingSettings()
    training = {
        name: getattr(config.training, name)
        for name in config.training.protocol()
        if getattr(config.training, name) != getattr(usual, name)
    }
    kinds = {type(value).__name__ for value in training.values() if isinstance(value, Enum)}
    kinds |= {"LossTerm"} if config.training.loss is not None else set()
    loss = config.training.loss
    return filled(
        "python",
        config,
        names=sorted({"Architecture", "Hyperparameters", "RunConfig", "TrainingSettings", *kinds}),
        architecture=_call("Architecture", architecture),
        loss="" if loss is None else f", loss={_argument(loss)}",
        training=_call("TrainingSettings", training),
        built_in=config.task in ("etth", "demo"),
    )


def network_of(config: BestConfig) -> str:
    """The file with the network alone.

    Raises:
        UsageError: a built-in variant that this tuner does not have.
    """
    sizes = {name: literal(value) for name, value in config.hyperparameters.sizes.items()}
    built, roots = built_by(config, sizes)
    made = bundle([("tuner.config", "ModelShapes"), *roots], instead=IN_TORCHS_WORDS)
    return filled("network", config, s=config.shapes, built=built, made=made)


def built_by(config: BestConfig, sizes: Mapping[str, str]) -> tuple[str, list[Name]]:
    """The expression that builds the network for `shapes`, and what it needs of this package.

    Args:
        config: whose network it is.
        sizes: an expression for each of its hyperparameters' `sizes`.

    Raises:
        UsageError: a built-in variant that this tuner does not have.
    """
    model = config.architecture.model
    check_name(model)
    reading, settings = reading_of(config.architecture)
    words = [f"{name}={word}" for name, word in sizes.items()]
    given = ", ".join([*words, *([f"**{literal(settings)}"] if settings else [])])
    of_library = library_class(model)
    if of_library is not None:
        built = f"build_of_library({literal(of_library)}, shapes, dict({given}))"
        return built, [("tuner.models.of_neuralforecast.build", "build_of_library")]
    if ":" in model:
        built = f"build_class(users_class(), shapes, dict({given}))"
        return built, [("tuner.models.darts_interface", "build_class")]
    design = entry_text(NETWORK, "DESIGNS", model)
    parts = names_in(NETWORK, design)
    if not reading.changed:
        return f"TSMixer(shapes, {design}, {given})", [(NETWORK, "TSMixer"), *parts]
    built = f"build_read(shapes, {design}, Reading(**{literal(reading.changed)}), {given})"
    roots = [("tuner.models.read_mixer", "build_read"), ("tuner.models.readings", "Reading")]
    return built, [*roots, *parts]


def _call(name: str, arguments: Mapping[str, Any]) -> str:
    return f"{name}({', '.join(f'{key}={_argument(value)}' for key, value in arguments.items())})"


def _argument(value: Any) -> str:
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, LossTerm):
        return _call("LossTerm", {"term": value.term, "weight": value.weight})
    return literal(value)


# For darts: a script that sets up its TSMixerModel, with the network that drops in where ours is
# another. `original` is the same function as darts' own network, which is left as it is. Another
# variant's, or a class of the user's own, takes the place of darts' module class.


DARTS = "tuner.export.darts_training"

RENAMED = {"n_blocks": "num_blocks", "feed_forward_size": "ff_size"}
TAKEN = ("num_blocks", "ff_size", "activation", "norm_type", "normalize_before")
"""What darts' model takes of a network's fixed settings, in its own names."""

FILES = {"demo": "", "etth": "[ETTh1.csv ETTh2.csv]", "csv": "[CSV ...]"}
"""What the script is told of its data, by the kind of source."""
KNOWN = (
    "kind", "path", "rows", "seed", "time_column", "id_column", "separator", "decimal", "encoding",
    "time_format",
)  # fmt: skip
"""Keys under [source] that the script reads by."""


def darts_of(config: BestConfig) -> str:
    """The script.

    Raises:
        UsageError: a built-in variant that this tuner does not have, or what darts does not train
            or the script does not read.
    """
    refuse_untrainable(config, "darts")
    roots: list[Name] = [(DARTS, name) for name in ("run_darts", "make_model", "Job", "Series")]
    series = read_call(config, roots)
    renamed = {RENAMED.get(key, key): value for key, value in config.architecture.settings.items()}
    model, built = config.architecture.model, ""
    if model != "original":
        built, parts = built_by(config, {name: name for name in config.hyperparameters.sizes})
        roots += [(DARTS, "NetworkModule"), *parts]
        if names_own_code(model):
            # Which of the two interfaces a class of the user's own has, the script finds out:
            # nothing is imported to write it.
            roots.append(("tuner.models.darts_interface", "has_darts_interface"))
            built = built.replace("users_class()", "OWN_CLASS")
    return filled(
        "darts",
        config,
        files=FILES[config.definition.task["source"]["kind"]],
        made=bundle(roots, first=DARTS, instead=IN_TORCHS_WORDS),
        settings=job_settings(config),
        series=series,
        built=built,
        changes={key: value for key, value in renamed.items() if key in TAKEN},
    )


def job_settings(config: BestConfig) -> dict[str, Any]:
    """The fields of a `Job` beside its task."""
    settings = ("max_epochs", "patience", "min_delta", "gradient_clip", "learning_rate_decay")
    hyperparameters = ("learning_rate", "weight_decay", "batch_size", "dropout", "hidden_size")
    return {
        **in_json(config.hyperparameters, *hyperparameters),
        **in_json(config.training, *settings, "validate_every", precision="precision.value"),
        **in_json(config, "accumulate", input_size="shapes.input_size"),
        "seed": config.provenance["seeds"][0],
    }


def read_call(config: BestConfig, roots: list[Name]) -> str:
    """The expression that reads the task's series; `roots` get what it needs."""
    task, told = config.definition.task, config.source
    source = task["source"]
    columns = [*task["target_columns"], *task["past_covariates"], *task["future_covariates"]]
    check_readable({**told, **source})
    if source["kind"] == "demo":
        roots.append(("tuner.data.sources", "demo_series"))
        rows, seed = literal(source["rows"]), literal(source["seed"])
        return f"list(demo_series(rows={rows}, seed={seed}, n_targets={len(columns)}))"
    roots.append((DARTS, "read_csvs"))
    etth = source["kind"] == "etth"
    paths = ["ETTh1.csv", "ETTh2.csv"] if etth else [told.get("path", f"{task['name']}.csv")]
    given = {"time_column": "date" if etth else source["time_column"]}
    if not etth:
        given["id_column"] = source["id_column"]
    for key in ("separator", "decimal", "encoding", "time_format"):
        if key in told:
            given["sep" if key == "separator" else key] = told[key]
    return f"read_csvs(paths or {literal(paths)}, {literal(columns)}, **{literal(given)})"


def check_readable(source: Mapping[str, Any]) -> None:
    """Refuse a file that the script cannot read: it reads CSVs with a header and times, as they
    are, each a series or several.

    Raises:
        UsageError: it is another.
    """
    others = "use --format python, or neuralforecast, whose script reads a panel"
    if source["kind"] not in FILES:
        raise UsageError(f"the script for darts does not read {source['kind']} files; {others}")
    for key in ("time_column", "id_column"):
        if isinstance(source.get(key), list | tuple):
            raise UsageError(f"the script for darts does not join columns to one {key}; {others}")
    for key, value in source.items():
        usual = CsvSource.model_fields.get(key)
        if key not in KNOWN and (usual is None or value != usual.default):
            raise UsageError(
                f"the script for darts does not know '{key}' under [source] of a task; {others}"
            )


# All forms, by name.


def json_of(config: BestConfig) -> str:
    """The document of `BestConfig.as_dict`."""
    return json.dumps(config.as_dict(), indent=2, allow_nan=False)


def toml_of(config: BestConfig) -> str:
    """The document of `BestConfig.as_dict`, under comments that say what it is. TOML has no null:
    such keys are left out.
    """
    plain = {key: value for key, value in config.as_dict().items() if value is not None}
    template, first = SCRIPTS / "best.toml.jinja", headline(config)
    written = text.filled(template, headline=first, plain=plain, key=toml_key, toml=_value)
    return written.removesuffix("\n")


def _value(value: Any) -> str:
    try:
        return toml_value(value)
    except ValueError as error:
        raise UsageError(f"{error}; use --format json") from None


CLASSES = {
    "original": "TSMixerOriginal",
    "rmsnorm": "TSMixerRMSNorm",
    "layernorm": "TSMixerLayerNorm",
    "simple": "TSMixerSimple",
    "batchnorm": "TSMixerBatchNorm",
}
"""The classes in `tuner.integrations.neuralforecast`, whose import takes seconds, by variant."""


def neuralforecast_of(config: BestConfig) -> str:
    """A script that sets up a neuralforecast model, trains it and forecasts.

    Raises:
        UsageError: it is for a frequency that pandas has no name for.
    """
    frequency = config.definition.task["frequency"]
    if "+" in frequency or "[" in frequency:
        raise UsageError(
            f"pandas has no name for frequency {frequency!r}, which the script for neuralforecast "
            "needs; use --format python"
        )
    given, name = library_arguments(config), config.architecture.model
    check_name(name)
    settings = dict(config.architecture.settings)
    own, fixed = (settings, {}) if ":" in name else ({}, settings)
    known = library_class(name) or CLASSES.get(name)
    made = f"model_class(Architecture(model={literal(name)}, settings={literal(own)}))"
    return filled(
        "neuralforecast",
        config,
        given=given,
        fixed=fixed,
        model=known or made,
        own=known is None,
        quantiles_first=library_class(name) in QUANTILES_FIRST,
    )


FORMS = {
    "json": json_of,
    "toml": toml_of,
    "python": python_of,
    "neuralforecast": neuralforecast_of,
    "darts": darts_of,
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
    model = config.definition.architecture.model
    if model in (*social_names(), TIME_LLM) and form not in RECORDS:
        named = "Time-LLM" if model == TIME_LLM else "Social-xLSTM"
        raise UsageError(
            f"--format {form} has no {named} yet; use --format toml or json, and tuner train "
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
        found[network_path(path)] = network_of(config)
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
