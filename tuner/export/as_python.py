"""A configuration as a script of its own: it needs torch, pandas and numpy, and repeats the trial
number for number.

Its network, losses and data features are this package's own source (`bundle`), because any
rewriting, however equal on paper, rounds differently, and a training of some thousand steps turns
that into another network.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tuner.config import Backend, Precision
from tuner.data.source_kinds import LATER
from tuner.errors import UsageError
from tuner.export.best_config import BestConfig, cores_of
from tuner.export.bundle import Name, bundle, entry_text, names_in
from tuner.export.headline import headline, one_line
from tuner.export.script_text import library_of, literal, sizes_of, users_class, users_term
from tuner.models.names import library_class, names_own_code
from tuner.models.readings import reading_of
from tuner.models.registry import check_name

NETWORK = "tuner.models.tsmixer"
TRAINING = "tuner.export.standalone.training"
STEP = "tuner.export.standalone.script_step"
DATA = "tuner.export.standalone.windows_of_series"
OF_LIBRARY = "tuner.models.of_neuralforecast.build"
FORECAST_FILE = "tuner.export.standalone.forecast_file"
ADDED_TERM = "tuner.training.added_term"
DARTS_INTERFACE = "tuner.models.darts_interface"
OWN_MASKS = (Backend.COMPILE.value, Backend.TRITON.value)
"""Backends whose masks are not those of PyTorch's operations, which the script uses."""
READERS: dict[str, tuple[Name, ...]] = {
    "demo": (("tuner.data.demo", "demo_series"),),
    "etth": ((DATA, "read_csv"),),
    "csv": ((DATA, "read_csv"),),
}

NETWORK_HEAD = '''\
def network(job: Job, shapes: ModelShapes) -> nn.Module:
    """The network of the variant."""
'''

NO_FILES = """\
    if data is None:
        raise ValueError("name its files by a pattern in quotes, such as 'runs/*/series.csv'")
"""

SCRIPT = """\
{headline}
#
# Needs torch, pandas{library} and numpy. Run:  python THIS_FILE {arguments}
# {repeats}
from __future__ import annotations

{imports}

{aliases}

SETTINGS: dict[str, Any] = {{
{settings}
}}


{reader}


{network}


{definitions}


if __name__ == "__main__":
    run(Job(**SETTINGS), read_series, network{more})
"""


def render(config: BestConfig) -> str:
    """The script.

    Raises:
        UsageError: a built-in variant that this tuner does not have.
    """
    network, roots = network_function(config)
    reader, reader_roots = read_function(config)
    parts = parts_of_training(config)
    made = bundle(
        [(TRAINING, "run"), (STEP, "Job"), *reader_roots, *roots, *parts.values()],
        first=[TRAINING, STEP, DATA, FORECAST_FILE],
    )
    own = names_own_code(config.architecture.model)
    needs = ["import importlib.util"] if own or config.added_term else []
    needs += ["from typing import cast"] if own else []
    return SCRIPT.format(
        headline=comment(config),
        library=library_of(config.architecture.model),
        repeats=repeats(config),
        arguments=f"{data_argument(config)}[--device cuda] [--forecasts FILE.csv]",
        imports="\n".join([*needs, made.imports]),
        aliases=made.aliases,
        settings=settings_lines(config),
        reader=reader,
        network=network + term_function(config),
        definitions=made.definitions,
        more="".join(f", {name}={PASSED.get(name, root[1])}" for name, root in parts.items()),
    )


def data_argument(config: BestConfig) -> str:
    """What the script is told of its data, as its usage says it."""
    if config.definition.task["source"].get("runs"):
        return "['PATTERN of all files, in quotes'] "
    named = {"demo": "", "etth": "[FOLDER of ETTh1.csv and ETTh2.csv] "}
    return named.get(kind_of(config), "[CSV] ")


PASSED = {"term_of": "added_term"}
"""Where what is given is a function of the script's own, which needs the root."""


def term_function(config: BestConfig) -> str:
    """The function that makes what this configuration adds to its training loss; empty where that
    is nothing.
    """
    loss = config.added_term
    if loss is None:
        return ""
    weight = literal(loss.weight_in(config.hyperparameters.own))
    return (
        f"\n\n\n{users_term(loss.term)}\n\n\n"
        "def added_term(task: Mapping[str, Any], data: Data) -> AddedTerm:\n"
        '    """What is added to the quantile loss that is trained on."""\n'
        f"    return term_of_script(users_term(), {weight}, task, data)"
    )


def parts_of_training(config: BestConfig) -> dict[str, Name]:
    """Of a training, what only some settings take: the arguments of `run` and what is given."""
    found: dict[str, Name] = {}
    if config.training.precision is Precision.FP16:
        found["scale_of"] = ("tuner.training.loss_scale", "LossScale")
    if config.training.checkpoint_activations:
        found["checkpointed"] = ("tuner.training.activations", "CheckpointedNetwork")
    if config.added_term is not None:
        found["term_of"] = ("tuner.export.standalone.script_term", "term_of_script")
    return found


def comment(config: BestConfig) -> str:
    """What every script says at its head."""
    lines = headline(config)
    if names_own_code(config.architecture.model):
        lines.append(f"Its network is {one_line(config.architecture.model)}, whose code runs here.")
    if config.added_term is not None:
        term = one_line(config.added_term.term)
        lines.append(f"Its training loss has the term {term}, whose code runs here.")
    return "\n".join(f"# {line}" for line in lines)


def repeats(config: BestConfig) -> str:
    """How near a run of the script with the trial's seed comes to the trial, in a line."""
    backend = config.provenance.get("backend")
    if backend in OWN_MASKS:
        return (
            f"The trial was trained by the backend {backend}, which draws dropout in its own way: "
            "expect another seed's result."
        )
    return "With the trial's seed on the trial's kind of device it ends at the trial's test MQL."


def kind_of(config: BestConfig) -> str:
    """Which kind of source the task's data has."""
    return str(config.definition.task["source"]["kind"])


def settings_lines(config: BestConfig) -> str:
    """The fields of a `Job`, one a line."""
    p, accumulate = config.provenance, config.accumulate
    given: dict[str, Any] = {
        **replace(config.hyperparameters, own={}).as_dict(),
        "input_size": config.shapes.input_size,
        **config.training.protocol(),
        **({"accumulate": accumulate} if accumulate > 1 else {}),
        "seeds": list(p["seeds"]),
        "threads": cores_of(p["device"]),
        "data_hash": config.definition.data_hash,
    }
    given.pop("loss", None)  # the script's own function
    given["precision"] = str(given["precision"].value)
    task = "".join(
        f"        {literal(key)}: {literal(value)},\n"
        for key, value in config.definition.task.items()
    )
    return f"    'task': {{\n{task}    }},\n" + "\n".join(
        f"    {literal(key)}: {literal(value)}," for key, value in given.items()
    )


def read_function(config: BestConfig) -> tuple[str, list[Name]]:
    """The function that reads the task's series, and what it needs."""
    task = config.definition.task
    source = task["source"]
    columns = [*task["target_columns"], *task["past_covariates"], *task["future_covariates"]]
    kind = kind_of(config)
    check_readable({**source, "header": config.source.get("header", True)})
    if kind == "demo":
        rows, seed = literal(source["rows"]), literal(source["seed"])
        sizes = f"rows={rows}, seed={seed}, n_targets={len(columns)}"
        body = f"    return list(demo_series({sizes}))"
    elif kind == "etth":
        body = (
            f"    folder, columns = Path(data or '.'), {literal(columns)}\n"
            "    names = ('ETTh1', 'ETTh2')\n"
            "    return [s for n in names for s in read_csv(folder / f'{n}.csv', columns, name=n, "
            "time_column='date')]"
        )
    else:
        dialect = {
            "name": task["name"],
            "time_column": source["time_column"],
            "id_column": source["id_column"],
        }
        keys = ("separator", "decimal", "encoding", "time_format")
        dialect |= {key: config.source[key] for key in keys if key in config.source}
        if dialect.get("encoding", "").lower().replace("_", "-") in ("utf-8", "utf8"):
            del dialect["encoding"]  # the reader's own, which also takes a byte order mark
        arguments = "".join(f"        {key}={literal(value)},\n" for key, value in dialect.items())
        many = bool(source.get("runs"))
        path = config.source.get("path", "" if many else f"{task['name']}.csv")
        given = f"data or {literal(path)}" if path else "data"
        body = (
            f"{'' if path else NO_FILES}    return {'read_runs' if many else 'read_csv'}(\n"
            f"        {given},\n        {literal(columns)},\n{arguments}    )"
        )
    head = 'def read_series(data: str | None) -> list[Series]:\n    """The series of the task."""\n'
    runs = [(DATA, "read_runs")] if source.get("runs") else []
    return head + body, [*READERS[kind], *runs]


OTHER_FORMATS = "use --format json, or neuralforecast, whose script reads a panel"


def check_readable(source: Mapping[str, Any]) -> None:
    """Refuse a file that a script cannot read: scripts read CSVs with a header and times, as they
    are.

    Raises:
        UsageError: it is another.
    """
    if source["kind"] not in READERS:
        raise UsageError(
            f"a script does not read {source['kind']} files yet; {OTHER_FORMATS}, or write the "
            "table as a CSV"
        )
    plain = {**LATER, "header": True}
    del plain["runs"]
    for key, usual in plain.items():
        if source.get(key, usual) != usual:
            told = f"a script does not know '{key}' under [source] of a task yet"
            raise UsageError(f"{told}; {OTHER_FORMATS}")


def network_function(config: BestConfig) -> tuple[str, list[Name]]:
    """The function that builds the network of this variant, and what it needs.

    Raises:
        UsageError: a built-in variant that this tuner does not have.
    """
    model = config.architecture.model
    check_name(model)
    sizes = sizes_of(config)
    of_library = library_class(model)
    if of_library is not None:
        built = f"build_of_library({literal(of_library)}, shapes, dict({sizes}))"
        return f"{NETWORK_HEAD}    return {built}", [(OF_LIBRARY, "build_of_library")]
    if ":" in model:
        own = (
            f"{users_class(model)}\n\n\n{NETWORK_HEAD}"
            f"    return build_class(users_class(), shapes, dict({sizes}))"
        )
        return own, [(DARTS_INTERFACE, "build_class")]
    design = entry_text(NETWORK, "DESIGNS", model)
    chosen = reading_of(config.architecture)[0].changed
    built, roots = f"TSMixer(shapes, {design}, {sizes})", [(NETWORK, "TSMixer")]
    if chosen:
        built = f"build_read(shapes, {design}, Reading(**{literal(chosen)}), {sizes})"
        roots = [("tuner.models.read_mixer", "build_read"), ("tuner.models.readings", "Reading")]
    return f"{NETWORK_HEAD}    return {built}", [*roots, *names_in(NETWORK, design)]
