"""A configuration for darts: a script that sets up its TSMixerModel, with the network that drops in where ours differs.

`original` is the same function as darts' own network, which is therefore left as it is. Another variant's network, or a
class of the user's own, takes the place of darts' module class.
"""

from __future__ import annotations

from tuner.export.as_python import (
    DATA,
    TRAINING,
    comment,
    kind_of,
    load_lines,
    network_function,
    read_function,
    settings_lines,
)
from tuner.export.bundle import Name, bundle
from tuner.export.record import BestConfig

DARTS = "tuner.export.standalone.darts_training"

RENAMED = {"n_blocks": "num_blocks", "feed_forward_size": "ff_size"}
TAKEN = ("num_blocks", "ff_size", "activation", "norm_type", "normalize_before")
"""What darts' model takes of a network's fixed settings, in its own names."""

SCRIPT = """\
{headline}
#
# Needs torch, pandas, numpy and darts 0.48. Run:  python THIS_FILE {arguments}
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

USERS = '''\
def users_class() -> type:
    """The class that drops in for darts' own."""
{load}    return module.{name}


tsmixer_model._TSMixerModule = users_class()  # darts builds whatever class this name has'''


def render(config: BestConfig) -> str:
    """The script.

    Raises:
        UsageError: the network's class cannot be found.
    """
    reader, roots = read_function(config)
    roots = [(DARTS, "run_darts"), (DARTS, "make_model"), (TRAINING, "Job"), *roots]
    renamed = {RENAMED.get(key, key): value for key, value in config.architecture.settings.items()}
    changes = "".join(f", {key}={value!r}" for key, value in renamed.items() if key in TAKEN)
    needs = ["from darts.models.forecasting import tsmixer_model"]
    network, own_norm, what = "", False, "darts' own network is the same function as this variant's."
    if config.architecture.model != "original":
        network, more, own_norm, what = _drop_in(config)
        roots += more
        if "importlib" in network:
            needs.append("import importlib.util")
    made = bundle(roots, first=[DARTS, TRAINING, DATA])
    arguments = {"demo": "", "etth": "[FOLDER of ETTh1.csv and ETTh2.csv]"}.get(kind_of(config), "[CSV]")
    return SCRIPT.format(
        headline=comment(config),
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


def _drop_in(config: BestConfig) -> tuple[str, list[Name], bool, str]:
    """What takes the place of darts' module class, what it needs, and whether it normalises its windows itself."""
    model = config.architecture.model
    if ":" in model:
        from tuner.models.darts_interface import has_darts_interface
        from tuner.models.own import load_class

        if has_darts_interface(load_class(model)):
            location, _, name = model.rpartition(":")
            text = USERS.format(load=load_lines(location), name=name)
            return text, [], False, "The class of the study takes the place of darts' own."
    function, roots = network_function(config)
    text = DROP_IN.format(function=function)
    return text, [(DARTS, "NetworkModule"), *roots], True, "The variant's network takes the place of darts' own."
