"""What neuralforecast says of its classes, read from its source: no import, which takes seconds.

`neuralforecast.auto` has, for nearly every model, a class `Auto<NAME>` whose `default_config` is
the search space that the library itself would search, written with Ray Tune's functions.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import json
from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.config import LIBRARY
from tuner.errors import UsageError, unknown_name


@dataclass(frozen=True, slots=True)
class Choice:
    """`tune.choice`: one of these."""

    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Whole:
    """`tune.randint`: a whole number from `low` up to and with `high`."""

    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Real:
    """`tune.uniform` or `tune.loguniform`."""

    low: float
    high: float
    log: bool


Searched = Choice | Whole | Real


class UnreadableError(Exception):
    """The source is not written as it was in the version that this module knows."""


def model_names() -> tuple[str, ...]:
    """The model classes that neuralforecast lists.

    Raises:
        UsageError: it is not installed, or its source cannot be read.
    """
    for node in _tree("models/__init__.py").body:
        if isinstance(node, ast.Assign) and _name_of(node) == "__all__":
            return tuple(ast.literal_eval(node.value))
    raise _unreadable("models/__init__.py")


def constructor_defaults(name: str) -> dict[str, Any]:
    """The defaults of the arguments of a model class; those that are no plain values are left out.

    Raises:
        UsageError: neuralforecast is not installed, or its source cannot be read.
    """
    arguments = _constructor(name).args
    named = [*arguments.posonlyargs, *arguments.args]
    found = {}
    for argument, default in zip(
        named[len(named) - len(arguments.defaults) :], arguments.defaults, strict=True
    ):
        try:
            found[argument.arg] = _plain(default)
        except UnreadableError:
            continue
    return found


def constructor_arguments(name: str) -> tuple[str, ...]:
    """The names of all arguments of a model class.

    Raises:
        UsageError: neuralforecast is not installed, or its source cannot be read.
    """
    arguments = _constructor(name).args
    return tuple(each.arg for each in (*arguments.posonlyargs, *arguments.args)[1:])


def searched_by_library(name: str) -> dict[str, Searched]:
    """What `Auto<name>` searches by default; nothing where the library has no such class.

    Raises:
        UsageError: neuralforecast is not installed, or its source cannot be read.
    """
    for node in _tree("auto.py").body:
        if isinstance(node, ast.ClassDef) and node.name == f"Auto{name}":
            return _default_config(node)
    return {}


def _default_config(auto: ast.ClassDef) -> dict[str, Searched]:
    found: dict[str, Searched] = {}
    for node in auto.body:
        if not (isinstance(node, ast.Assign) and _name_of(node) == "default_config"):
            continue
        if not isinstance(node.value, ast.Dict):
            raise _unreadable("auto.py")
        for key, value in zip(node.value.keys, node.value.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(value, ast.Call):
                searched = _searched(value)
                if searched is not None:
                    found[str(key.value)] = searched
    return found


def _searched(call: ast.Call) -> Searched | None:
    """What a call of Ray Tune's means; None for a kind that no network's hyperparameter has."""
    kind = call.func.attr if isinstance(call.func, ast.Attribute) else ""
    try:
        given = [_plain(each) for each in call.args]
        given += [_plain(each.value) for each in call.keywords]
    except UnreadableError:
        return None
    if kind == "choice":
        return Choice(tuple(given[0]))
    if kind == "randint":
        return Whole(given[0], given[1] - 1)
    if kind in ("uniform", "loguniform"):
        return Real(given[0], given[1], log=kind == "loguniform")
    return None


def _class(name: str) -> ast.ClassDef:
    for node in _tree("models/__init__.py").body:
        if not isinstance(node, ast.ImportFrom) or node.module is None:
            continue
        if any(alias.name == name for alias in node.names):
            path = f"models/{node.module}.py"
            for found in _tree(path).body:
                if isinstance(found, ast.ClassDef) and found.name == name:
                    return found
    raise _unreadable("models/__init__.py")


def _constructor(name: str) -> ast.FunctionDef:
    for node in _class(name).body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            return node
    raise _unreadable(f"the class {name}")


def _plain(node: ast.expr) -> Any:
    """The value of a literal, or of a product such as `3 * [1]`.

    Raises:
        UnreadableError: it is something else.
    """
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return _plain(node.left) * _plain(node.right)
    if isinstance(node, ast.List | ast.Tuple):
        return [_plain(each) for each in node.elts]
    try:
        return ast.literal_eval(node)
    except ValueError as error:
        raise UnreadableError(ast.unparse(node)) from error


def _name_of(node: ast.Assign) -> str:
    target = node.targets[0]
    return target.id if isinstance(target, ast.Name) else ""


def _tree(path: str) -> ast.Module:
    return _parsed(_folder() / path)


@functools.cache
def _parsed(path: Path) -> ast.Module:
    try:
        return ast.parse(path.read_text(encoding="utf-8"))
    except (OSError, SyntaxError, ValueError) as error:
        raise _unreadable(path.name) from error


def _folder() -> Path:
    found = importlib.util.find_spec(LIBRARY)
    if found is None or not found.submodule_search_locations:
        raise UsageError(f"the package {LIBRARY} is not installed; pip install {LIBRARY}")
    return Path(found.submodule_search_locations[0])


def _unreadable(path: str) -> UsageError:
    return UsageError(
        f"{LIBRARY}/{path} is not written as that of version 3.3, so no space can be proposed from "
        "it; write a study file (docs/own-model.md)"
    )


# The arguments of neuralforecast's model classes: which are hyperparameters here, and how a study
# says them.


NO_NETWORK = "it reconciles the forecasts of one; name that one"
"""What is said of HINT, the one name of the library's that is no model class."""

OWN_NORM = ("revin", "use_norm", "revin_affine")
"""By one of these arguments a class says that it has a reversible norm itself."""

_TASK = "the task says it"
_WINDOWS = (
    *("h_train", "step_size", "start_padding_enabled", "training_data_availability_threshold"),
    *("exclude_insample_y", "inference_input_size"),
)
_COVARIATES = (
    *("futr_exog_list", "hist_exog_list", "stat_exog_list", "cat_exog_list"),
    *("categorical_cardinalities", "cat_emb_dim"),
)
_TRAINING = (
    *("max_steps", "num_lr_decays", "val_check_steps", "val_monitor", "early_stop_patience_steps"),
    *("valid_batch_size", "inference_windows_batch_size", "drop_last_loader", "dataloader_kwargs"),
    *("optimizer", "optimizer_kwargs", "lr_scheduler", "lr_scheduler_kwargs", "trainer_kwargs"),
)

OWNED: Mapping[str, str] = {
    "h": f"{_TASK}, as horizon",
    "input_size": f"{_TASK}; [space.input_size] is for a shorter one",
    "n_series": f"{_TASK}: its targets are the series",
    "loss": "every variant is trained on the task's quantiles",
    "valid_loss": "every variant is validated on the task's quantiles",
    "learning_rate": "it is the study's; give it in [space] or [defaults]",
    "batch_size": "it is the study's; give it in [space] or [defaults]",
    "windows_batch_size": "the study's batch_size counts windows",
    "random_seed": "each trial has a seed of its own",
    "scaler_type": "tuner scales the data; for scaling by window, see revin",
    "recurrent": "tuner takes forecasts of all hours at once",
    "alias": "the study file names the variant",
    "n_samples": "nothing is sampled from a distribution",
    **dict.fromkeys(_WINDOWS, "tuner cuts the windows"),
    **dict.fromkeys(_COVARIATES, "the task names the covariates"),
    **dict.fromkeys(_TRAINING, "tuner trains every variant by one protocol"),
}
"""By name: why it is no hyperparameter."""


def check_names(reference: str, given: Mapping[str, object], taken: Collection[str]) -> None:
    """That every name of `given` is a hyperparameter of the class with the arguments `taken`.

    The classes hand what they do not know to Lightning's trainer, so a slip would go unseen.

    Raises:
        UsageError: one is tuner's to say, or the class does not take it.
    """
    for name in given:
        if name in OWNED:
            raise UsageError(f"{reference}: {name} is not a hyperparameter: {OWNED[name]}")
        if name not in taken:
            known = (each for each in taken if each not in OWNED)
            raise unknown_name(f"hyperparameter of {reference}", name, known)


def list_in(value: Any) -> Any:
    """The list in a text such as "[8, 4, 1]", which a choice of a search space can hold.

    Raises:
        UsageError: the text begins like a list and is none.
    """
    if not (isinstance(value, str) and value.startswith("[")):
        return value
    try:
        return json.loads(value)
    except ValueError:
        raise UsageError(
            f"{value!r} is no list; expected e.g. '[8, 4, 1]', texts in double quotes"
        ) from None


def lists_in(reference: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """`list_in` of each argument of a class.

    Raises:
        UsageError: one begins like a list and is none.
    """
    found = {}
    for name, value in arguments.items():
        try:
            found[name] = list_in(value)
        except UsageError as error:
            raise UsageError(f"{reference}: {name}: {error}") from None
    return found


def take_our_norm(reference: str, parameters: Container[str], given: dict[str, Any]) -> bool:
    """Whether tuner's reversible norm is around a class with these `parameters`; its argument,
    `revin`, is taken out of `given`.

    Raises:
        UsageError: the class has one of its own, or `revin` is neither true nor false.
    """
    own = next((argument for argument in OWN_NORM if argument in parameters), None)
    if own == "revin" or (own is not None and "revin" not in given):
        return False
    wanted = given.pop("revin", True)
    if own is not None:
        raise UsageError(f"{reference} has a reversible norm of its own: set {own}, not revin")
    if not isinstance(wanted, bool):
        raise UsageError(f"{reference}: revin must be true or false, not {wanted!r}")
    return wanted


# In which order neuralforecast's multivariate classes return what they forecast.


QUANTILES_FIRST = frozenset(
    (
        "RMoK",
        "SOFTS",
        "SOFTSSharp",
        "StemGNN",
        "TSMixer",
        "TSMixerx",
        "TimeXer",
        "XLinear",
        "iTransformer",
    )
)
"""Multivariate classes that return, for an hour, one quantile of all targets, then the next.

The library's own loss (`MQLoss.domain_map`, 3.3.0) reads all quantiles of one target, then the
next: with several quantiles it gives each target what the network says of others, at their levels.
"""
