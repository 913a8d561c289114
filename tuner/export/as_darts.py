"""A configuration for darts: a script that sets up its TSMixerModel, with the network that drops in
where ours differs.

`original` is the same function as darts' own network, which is therefore left as it is. Another
variant's network, or a class of the user's own, takes the place of darts' module class.
"""

from __future__ import annotations

from tuner.export.as_python import (
    DARTS_INTERFACE,
    DATA,
    FORECAST_FILE,
    NETWORK_HEAD,
    STEP,
    TRAINING,
    comment,
    kind_of,
    network_function,
    read_function,
    settings_lines,
)
from tuner.export.best_config import BestConfig
from tuner.export.bundle import Name, bundle
from tuner.export.neuralforecast_model import refuse_untrainable
from tuner.export.script_text import library_of, literal, sizes_of, users_class
from tuner.models.names import names_own_code

DARTS = "tuner.export.standalone.darts_training"

RENAMED = {"n_blocks": "num_blocks", "feed_forward_size": "ff_size"}
TAKEN = ("num_blocks", "ff_size", "activation", "norm_type", "normalize_before")
"""What darts' model takes of a network's fixed settings, in its own names."""

SCRIPT = """\
{headline}
#
# Needs torch, pandas{library}, numpy and darts 0.48. Run:  python THIS_FILE {arguments}
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
{function}


class _TSMixerModule(NetworkModule):
    """What drops in for darts' own module class."""

    @staticmethod
    def build(shapes: ModelShapes, hidden_size: int, dropout: float) -> nn.Module:
        job = Job(**SETTINGS | {{"hidden_size": hidden_size, "dropout": dropout}})
        return network(job, shapes)


tsmixer_model._TSMixerModule = _TSMixerModule  # darts builds whatever class this name has'''

USERS = DROP_IN.replace(
    "= _TSMixerModule  #", "= OWN_CLASS if DROPS_IN else _TSMixerModule  #"
).replace(
    "{function}",
    """\
{find}


OWN_CLASS = users_class()
DROPS_IN = has_darts_interface(OWN_CLASS)


{function}""",
)


def render(config: BestConfig) -> str:
    """The script.

    Raises:
        UsageError: a built-in variant that this tuner does not have.
    """
    refuse_untrainable(config, "darts")
    reader, roots = read_function(config)
    roots = [(DARTS, "run_darts"), (DARTS, "make_model"), (STEP, "Job"), *roots]
    renamed = {RENAMED.get(key, key): value for key, value in config.architecture.settings.items()}
    changes = "".join(f", {key}={literal(value)}" for key, value in renamed.items() if key in TAKEN)
    needs = ["from darts.models.forecasting import tsmixer_model"]
    network, own_norm, what = (
        "",
        "False",
        "darts' own network is the same function as this variant's.",
    )
    if config.architecture.model != "original":
        network, more, own_norm, what = _drop_in(config)
        roots += more
        if names_own_code(config.architecture.model):
            needs += ["import importlib.util", "from typing import cast"]
    made = bundle(roots, first=[DARTS, TRAINING, STEP, DATA, FORECAST_FILE])
    arguments = {"demo": "", "etth": "[FOLDER of ETTh1.csv and ETTh2.csv] "}.get(
        kind_of(config), "[CSV] "
    ) + "[--forecasts FILE.csv]"
    return SCRIPT.format(
        headline=comment(config),
        library=library_of(config.architecture.model),
        arguments=arguments,
        what=what,
        imports="\n".join([*needs, made.imports]) if network else made.imports,
        aliases=made.aliases,
        settings=settings_lines(config),
        reader=reader,
        network=network or "# Nothing to drop in.",
        definitions=made.definitions,
        own_norm=own_norm,
        changes=changes,
    )


def _drop_in(config: BestConfig) -> tuple[str, list[Name], str, str]:
    """What takes the place of darts' module class, what it needs,
    and whether it normalises its windows itself.

    Which of the two interfaces a class of the user's own has, the script finds out: nothing is
    imported to write it.
    """
    model = config.architecture.model
    if names_own_code(model):
        sizes = sizes_of(config)
        function = f"{NETWORK_HEAD}    return OWN_CLASS(shapes, {sizes})"
        text = USERS.format(find=users_class(model), function=function)
        what = "The class of the study takes the place of darts' own, or is inside what does."
        return (
            text,
            [(DARTS, "NetworkModule"), (DARTS_INTERFACE, "has_darts_interface")],
            "not DROPS_IN",
            what,
        )
    function, roots = network_function(config)
    text = DROP_IN.format(function=function)
    return (
        text,
        [(DARTS, "NetworkModule"), *roots],
        "True",
        "The variant's network takes the place of darts' own.",
    )
