"""A configuration for darts: a script that sets up its TSMixerModel, with the network that drops in
where ours differs.

`original` is the same function as darts' own network, which is therefore left as it is. Another
variant's network, or a class of the user's own, takes the place of darts' module class.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.config import library_class, names_own_code
from tuner.data.source_kinds import LATER
from tuner.errors import UsageError
from tuner.export.as_python import IN_TORCHS_WORDS, OWN_IMPORTS, built_by
from tuner.export.best_config import BestConfig, refuse_untrainable
from tuner.export.bundle import Name, bundle
from tuner.export.script_text import comment, literal, users_class
from tuner.files.plain import in_json

DARTS = "tuner.export.darts_training"

RENAMED = {"n_blocks": "num_blocks", "feed_forward_size": "ff_size"}
TAKEN = ("num_blocks", "ff_size", "activation", "norm_type", "normalize_before")
"""What darts' model takes of a network's fixed settings, in its own names."""

FILES = {
    "demo": "",
    "etth": "[ETTh1.csv ETTh2.csv]",
    "csv": "[CSV ...]",
}
"""What the script is told of its data, by the kind of source."""

SCRIPT = """\
{headline}
#
# Needs torch, pandas{library}, numpy and darts 0.48. Run:  python THIS_FILE {files}
# {what}
from __future__ import annotations

{imports}

{aliases}

SETTINGS: dict[str, Any] = {{
{settings}
}}


{reader}


{definitions}


{network}


def make() -> TSMixerModel:
    \"\"\"darts' model, ready for `fit`.\"\"\"
    return make_model(Job(**SETTINGS), own_norm={own_norm}{changes})


if __name__ == "__main__":
    run_darts(Job(**SETTINGS), read_series, make)
"""

DROP_IN = '''\
{found}class _TSMixerModule(NetworkModule):
    """What drops in for darts' own module class."""

    @staticmethod
    def build(shapes: ModelShapes, hidden_size: int, dropout: float) -> nn.Module:
        return {built}


# darts builds whatever class this name has
tsmixer_model._TSMixerModule = {module}'''

FIND = """\
{users_class}


OWN_CLASS = users_class()
DROPS_IN = has_darts_interface(OWN_CLASS)


"""


def render(config: BestConfig) -> str:
    """The script.

    Raises:
        UsageError: a built-in variant that this tuner does not have, or what darts does not train
            or the script does not read.
    """
    refuse_untrainable(config, "darts")
    roots: list[Name] = [(DARTS, name) for name in ("run_darts", "make_model", "Job", "Series")]
    reader = read_function(config, roots)
    renamed = {RENAMED.get(key, key): value for key, value in config.architecture.settings.items()}
    changes = "".join(f", {key}={literal(value)}" for key, value in renamed.items() if key in TAKEN)
    imports = "from darts.models.forecasting import tsmixer_model\n"
    network, own_norm = "# Nothing to drop in.", "False"
    what = "darts' own network is the same function as this variant's."
    model = config.architecture.model
    if model != "original":
        built, parts = built_by(config, {name: name for name in config.hyperparameters.sizes})
        roots += [(DARTS, "NetworkModule"), *parts]
        found, module, own_norm = "", "_TSMixerModule", "True"
        what = "The variant's network takes the place of darts' own."
        if names_own_code(model):
            # Which of the two interfaces a class of the user's own has, the script finds out:
            # nothing is imported to write it.
            roots.append(("tuner.models.darts_interface", "has_darts_interface"))
            imports += OWN_IMPORTS
            found = FIND.format(users_class=users_class(model))
            module, own_norm = "OWN_CLASS if DROPS_IN else _TSMixerModule", "not DROPS_IN"
            built = built.replace("users_class()", "OWN_CLASS")
            what = "The class of the study takes the place of darts' own, or is inside what does."
        network = DROP_IN.format(found=found, built=built, module=module)
    made = bundle(roots, first=DARTS, instead=IN_TORCHS_WORDS)
    return SCRIPT.format(
        headline=comment(config),
        library="" if library_class(model) is None else ", neuralforecast",
        files=FILES[config.definition.task["source"]["kind"]],
        what=what,
        imports=f"{imports}{made.imports}",
        aliases=made.aliases,
        settings=settings_lines(config),
        reader=reader,
        network=network,
        definitions=made.definitions,
        own_norm=own_norm,
        changes=changes,
    )


def settings_lines(config: BestConfig) -> str:
    """The fields of a `Job`, one a line."""
    settings = ("max_epochs", "patience", "min_delta", "gradient_clip", "learning_rate_decay")
    hyperparameters = ("learning_rate", "weight_decay", "batch_size", "dropout", "hidden_size")
    given: dict[str, Any] = {
        **in_json(config.hyperparameters, *hyperparameters),
        **in_json(config.training, *settings, "validate_every", precision="precision.value"),
        **in_json(config, "accumulate", input_size="shapes.input_size"),
        "seed": config.provenance["seeds"][0],
    }
    task = "".join(
        f"        {literal(key)}: {literal(value)},\n"
        for key, value in config.definition.task.items()
    )
    return f"    'task': {{\n{task}    }},\n" + "\n".join(
        f"    {literal(key)}: {literal(value)}," for key, value in given.items()
    )


def read_function(config: BestConfig, roots: list[Name]) -> str:
    """The function that reads the task's series; `roots` get what it needs."""
    task, told = config.definition.task, config.source
    source = task["source"]
    columns = [*task["target_columns"], *task["past_covariates"], *task["future_covariates"]]
    check_readable({**source, "header": told.get("header", True)})
    if source["kind"] == "demo":
        roots.append(("tuner.data.sources", "demo_series"))
        rows, seed = literal(source["rows"]), literal(source["seed"])
        body = f"list(demo_series(rows={rows}, seed={seed}, n_targets={len(columns)}))"
    else:
        roots.append((DARTS, "read_csvs"))
        etth = source["kind"] == "etth"
        paths = ["ETTh1.csv", "ETTh2.csv"] if etth else [told.get("path", f"{task['name']}.csv")]
        given = {"time_column": "date" if etth else source["time_column"]}
        if not etth:
            given["id_column"] = source["id_column"]
        names = {"separator": "sep", "decimal": "decimal", "encoding": "encoding"}
        names["time_format"] = "time_format"
        given |= {name: told[key] for key, name in names.items() if key in told}
        body = f"read_csvs(paths or {literal(paths)}, {literal(columns)}, **{literal(given)})"
    head = "def read_series(paths: list[str]) -> list[Series]:\n"
    return f'{head}    """The series of the task."""\n    return {body}'


def check_readable(source: Mapping[str, Any]) -> None:
    """Refuse a file that the script cannot read: it reads CSVs with a header and times, as they
    are, each a series or several.

    Raises:
        UsageError: it is another.
    """
    others = "use --format python, or neuralforecast, whose script reads a panel"
    if source["kind"] not in FILES:
        raise UsageError(f"the script for darts does not read {source['kind']} files; {others}")
    plain = {**LATER, "header": True}
    for key, usual in plain.items():
        if source.get(key, usual) != usual:
            raise UsageError(
                f"the script for darts does not know '{key}' under [source] of a task; {others}"
            )
