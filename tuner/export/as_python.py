"""A configuration in Python, as two files: a script that trains it with tuner, and its network
alone, which needs torch.

The network is this package's own source (`bundle`) with operations in torch's own words
(`plain_operations`), so that it has the weights' names of a saved model and its forecasts.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from tuner.config import LossTerm, TrainingSettings, library_class, names_own_code
from tuner.export.best_config import BestConfig
from tuner.export.bundle import Name, bundle, entry_text, names_in
from tuner.export.script_text import comment, literal, users_class
from tuner.models.readings import reading_of
from tuner.models.registry import check_name

NETWORK = "tuner.models.tsmixer"
OWN_IMPORTS = "import importlib.util\n"
"""What `users_class` needs."""
IN_TORCHS_WORDS = {
    "tuner.models.ops": "tuner.export.plain_operations",
    "tuner.models.dropout": "tuner.export.plain_operations",
}

SCRIPT = """\
{headline}
#
# Trains it and prints its MQL. Needs tuner. Run:  python THIS_FILE {arguments}[--device cuda]
import argparse
import statistics
import sys
from dataclasses import replace

from tuner import evaluate, fit, load_data
from tuner.config import {names}
from tuner.errors import TunerError

CONFIG = RunConfig(
    architecture={architecture},
    hyperparameters=Hyperparameters.of(
        {params}{loss}
    ),
    training={training},
)
SEEDS = {seeds}


def train(data) -> None:
    if data.data_hash != {data_hash}:
        print("WARNING: this is not the data that the configuration was found on")
    data, found = data.seeing(CONFIG.hyperparameters.input_size), []
    for seed in SEEDS:
        result = fit(replace(CONFIG, seed=seed), data)
        if not result.stopped_by.completed:
            sys.exit(f"seed {{seed}}: {{result.stopped_by}} ({{result.message}})")
        scores = evaluate(result.model, data)
        found.append(scores.test_mql_mean)
        print(f"seed {{seed}}: {{result.stopped_by}} after {{result.epochs}} epochs, ", end="")
        print(f"{{result.wall_clock_s:.2f}} s, validation loss {{result.best_val_loss:.6f}}")
        for name, mql in scores.test_mql.items():
            print(f"  {{name}}: test MQL {{mql:.6f}}, validation MQL {{scores.val_mql[name]:.6f}}")
    mql = statistics.median(found)
    print(f"all forecasts: test MQL {{mql:.6f}}, median of {{len(found)}} seed(s)")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train one configuration and print its MQL.")
    parser.add_argument("--task", {task}, help="etth, demo, or a task file (.toml)")
    parser.add_argument("--data-dir", help="folder with the task's data")
    parser.add_argument("--device", default="cpu", help="cpu (default), or cuda")
    given = parser.parse_args()
    try:
        train(load_data(given.task, device=given.device, data_dir=given.data_dir))
    except TunerError as error:
        sys.exit(str(error))
"""

NETWORK_FILE = '''\
{headline}
#
# The network alone. Needs torch{library}. Weights that 'tuner train' saved are loaded so:
#     model = build_network()
#     model.load_state_dict(safetensors.torch.load_file("model.safetensors"))
from __future__ import annotations

{imports}

{aliases}{own_class}def build_network() -> nn.Module:
    """An untrained network for the study's task: past {past}, future {future},
    static {static} -> {forecast}, quantiles in the units of the past.
    """
    shapes = ModelShapes(
{shapes}    )
    return {built}


{definitions}
'''


def render(config: BestConfig) -> str:
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
    names = sorted({"Architecture", "Hyperparameters", "RunConfig", "TrainingSettings", *kinds})
    built_in = config.task in ("etth", "demo")
    return SCRIPT.format(
        headline=comment(config),
        arguments="" if built_in else "--task TASK.toml ",
        names=", ".join(names),
        architecture=_call("Architecture", architecture),
        params=literal(config.hyperparameters.as_dict()),
        loss="" if config.training.loss is None else f", loss={_argument(config.training.loss)}",
        training=_call("TrainingSettings", training),
        seeds=literal(list(config.provenance["seeds"])),
        data_hash=literal(config.definition.data_hash),
        task=f"default={literal(config.task)}" if built_in else "required=True",
    )


def render_network(config: BestConfig) -> str:
    """The file with the network alone.

    Raises:
        UsageError: a built-in variant that this tuner does not have.
    """
    sizes = {name: literal(value) for name, value in config.hyperparameters.sizes.items()}
    built, roots = built_by(config, sizes)
    made = bundle([("tuner.config", "ModelShapes"), *roots], instead=IN_TORCHS_WORDS)
    own_class = names_own_code(config.architecture.model)
    of_library = library_class(config.architecture.model) is not None
    s = config.shapes
    return NETWORK_FILE.format(
        headline=comment(config),
        library=" and neuralforecast" if of_library else "",
        imports=f"{OWN_IMPORTS if own_class else ''}{made.imports}",
        aliases=f"{made.aliases}\n\n\n" if made.aliases else "\n",
        own_class=f"{users_class(config.architecture.model)}\n\n\n" if own_class else "",
        shapes="".join(f"        {name}={size},\n" for name, size in s.sizes().items()),
        built=built,
        definitions=made.definitions,
        past=f"(B, {s.input_size}, {s.n_targets + s.n_past + s.n_future})",
        future=f"(B, {s.horizon}, {s.n_future})" if s.n_future else "None",
        static=f"(B, {s.n_static})" if s.n_static else "None",
        forecast=f"(B, {s.horizon}, {s.n_targets}, {s.n_quantiles})",
    )


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
