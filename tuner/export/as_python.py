"""A configuration as a script of its own: it needs torch, pandas and numpy, and repeats the trial number for number.

Its network, losses and data features are this package's own source (`bundle`), because any rewriting, however equal
on paper, rounds differently, and a training of some thousand steps turns that into another network.
"""

from __future__ import annotations

from typing import Any

from tuner.errors import UsageError
from tuner.export.bundle import Name, bundle, entry_text, names_in
from tuner.export.record import BestConfig, cores_of, headline, protocol

NETWORK = "tuner.models.tsmixer"
TRAINING = "tuner.export.standalone.training"
DATA = "tuner.export.standalone.data"
DARTS_INTERFACE = "tuner.models.darts_interface"
READERS: dict[str, tuple[Name, ...]] = {
    "demo": (("tuner.data.demo", "demo_series"),),
    "etth": ((DATA, "read_csv"),),
    "csv": ((DATA, "read_csv"),),
}

SCRIPT = """\
{headline}
#
# Needs torch, pandas and numpy. Run:  python THIS_FILE {arguments}
# With the trial's seed on the trial's kind of device it ends at the trial's test MQL.
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
    run(Job(**SETTINGS), read_series, network)
"""


def render(config: BestConfig) -> str:
    """The script.

    Raises:
        UsageError: the network's class is no longer where the study had it.
    """
    network, roots = network_function(config)
    reader, reader_roots = read_function(config)
    made = bundle([(TRAINING, "run"), (TRAINING, "Job"), *reader_roots, *roots], first=[TRAINING, DATA])
    extra = "import importlib.util" if "importlib" in network else ""
    return SCRIPT.format(
        headline=comment(config),
        arguments={"demo": "", "etth": "[FOLDER of ETTh1.csv and ETTh2.csv] "}.get(kind_of(config), "[CSV] ")
        + "[--device cuda]",
        imports="\n".join(line for line in (extra, made.imports) if line),
        aliases=made.aliases,
        settings=settings_lines(config),
        reader=reader,
        network=network,
        definitions=made.definitions,
    )


def comment(config: BestConfig) -> str:
    """What every script says at its head."""
    return "\n".join(f"# {line}" for line in headline(config))


def kind_of(config: BestConfig) -> str:
    """Which kind of source the task's data has."""
    return str(config.definition.task["source"]["kind"])


def settings_lines(config: BestConfig) -> str:
    """The fields of a `Job`, one a line."""
    p = config.provenance
    given: dict[str, Any] = {
        **config.hyperparameters.as_dict(),
        **protocol(config.training),
        "seeds": list(p["seeds"]),
        "threads": cores_of(p["device"]),
        "data_hash": config.definition.data_hash,
    }
    given["precision"] = str(given["precision"].value)
    task = "".join(f"        {key!r}: {value!r},\n" for key, value in config.definition.task.items())
    return f"    'task': {{\n{task}    }},\n" + "\n".join(f"    {key!r}: {value!r}," for key, value in given.items())


def read_function(config: BestConfig) -> tuple[str, list[Name]]:
    """The function that reads the task's series, and what it needs."""
    task = config.definition.task
    source = task["source"]
    columns = [*task["target_columns"], *task["past_covariates"], *task["future_covariates"]]
    kind = kind_of(config)
    if kind == "demo":
        body = f"    return list(demo_series(rows={source['rows']}, seed={source['seed']}, n_targets={len(columns)}))"
    elif kind == "etth":
        body = (
            f"    folder, columns = Path(data or '.'), {columns!r}\n"
            "    names = ('ETTh1', 'ETTh2')\n"
            "    return [s for n in names for s in read_csv(folder / f'{n}.csv', columns, name=n, time_column='date')]"
        )
    else:
        dialect = {"name": task["name"], "time_column": source["time_column"], "id_column": source["id_column"]}
        keys = ("separator", "decimal", "encoding", "time_format")
        dialect |= {key: config.source[key] for key in keys if key in config.source}
        if dialect.get("encoding", "").lower().replace("_", "-") in ("utf-8", "utf8"):
            del dialect["encoding"]  # the reader's own, which also takes a byte order mark
        arguments = "".join(f"        {key}={value!r},\n" for key, value in dialect.items())
        path = config.source.get("path", f"{task['name']}.csv")
        body = f"    return read_csv(\n        data or {path!r},\n        {columns!r},\n{arguments}    )"
    head = f'def read_series(data: str | None) -> list[Series]:\n    """The series of the task {task["name"]}."""\n'
    return head + body, list(READERS[kind])


def network_function(config: BestConfig) -> tuple[str, list[Name]]:
    """The function that builds the network of this variant, and what it needs."""
    model, settings = config.architecture.model, dict(config.architecture.settings)
    head = f'def network(job: Job, shapes: ModelShapes) -> nn.Module:\n    """The variant {config.variant}."""\n'
    sizes = "".join(f", {key}={value!r}" for key, value in settings.items())
    sizes = f"hidden_size=job.hidden_size, dropout=job.dropout{sizes}"
    if ":" in model:
        return own_network(config, head, sizes)
    design = entry_text(NETWORK, "DESIGNS", model)
    text = f"{head}    return TSMixer(shapes, {design}, {sizes})"
    return text, [(NETWORK, "TSMixer"), *names_in(NETWORK, design)]


def own_network(config: BestConfig, head: str, sizes: str) -> tuple[str, list[Name]]:
    """The same for a class of the user's own, which stays where it is."""
    location, _, name = config.architecture.model.rpartition(":")
    if not name.isidentifier():
        raise UsageError(f"{config.architecture.model!r} names no class; expected package.module:Class")
    from tuner.models.darts_interface import has_darts_interface
    from tuner.models.own import load_class

    if has_darts_interface(load_class(config.architecture.model)):
        call = f"darts_arguments(module.{name}, shapes, dict({sizes}))"
        roots: list[Name] = [(DARTS_INTERFACE, "DartsNetwork"), (DARTS_INTERFACE, "darts_arguments")]
        return f"{head}{load_lines(location)}    return DartsNetwork(module.{name}(**{call}), shapes)", roots
    return f"{head}{load_lines(location)}    return module.{name}(shapes, {sizes})", []


def load_lines(location: str) -> str:
    """Statements of a function that bind `module` to the user's file or module."""
    if not location.endswith(".py"):
        return f"    module = importlib.import_module({location!r})\n"
    return (
        f"    spec = importlib.util.spec_from_file_location('own_network', {location!r})\n"
        "    assert spec is not None and spec.loader is not None, 'the file of the network'\n"
        "    module = importlib.util.module_from_spec(spec)\n"
        "    spec.loader.exec_module(module)\n"
    )
