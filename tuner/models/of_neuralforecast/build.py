"""From a name of neuralforecast's to a network: its class found, built for a task, and tried."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Mapping
from typing import Any

from torch import nn

from tuner.config import ModelShapes
from tuner.errors import UsageError, first_line, unknown_name
from tuner.models.fault import on_one_line
from tuner.models.names import LIBRARY
from tuner.models.of_neuralforecast.class_arguments import (
    NO_NETWORK,
    check_names,
    lists_in,
    take_our_norm,
)
from tuner.models.of_neuralforecast.covariates import Covariates
from tuner.models.of_neuralforecast.faster_layers import make_faster
from tuner.models.of_neuralforecast.library_network import LibraryNetwork
from tuner.models.of_neuralforecast.library_seed import library_seed
from tuner.models.out_of_memory import out_of_memory
from tuner.models.own import check_output
from tuner.models.parameters import is_named

GIVEN = "; it was given "
"""After it: the arguments of a class that says no."""

MOST_OF_ARGUMENTS = 300
"""Characters."""


def build_of_library(name: str, shapes: ModelShapes, arguments: Mapping[str, Any]) -> nn.Module:
    """Neuralforecast's model `name` as a network of tuner, tried once.

    A list is given as a list or as text that holds one, `"[8, 4, 1]"`. `revin` goes to a class that
    takes it; for one without a reversible norm it is tuner's, on unless it is false.

    Args:
        name: of the class in `neuralforecast.models`.
        shapes: of the task.
        arguments: hyperparameters and settings by the class's own names.

    Raises:
        UsageError: one line for each way in which the class cannot be used.
    """
    reference = f"{LIBRARY}:{name}"
    model_class = find_class(name)
    given = lists_in(reference, arguments)
    parameters = _named_arguments(model_class)
    revin = take_our_norm(reference, parameters, given)
    check_names(reference, given, parameters)
    covariates = Covariates.of(model_class, shapes)
    model = _construct(reference, model_class, shapes, covariates, given)
    make_faster(model)
    network = LibraryNetwork(model, shapes, covariates, revin=revin)
    check_output(reference, network, shapes)
    return network


def find_class(name: str) -> Any:
    """The class of neuralforecast that is called so.

    Raises:
        UsageError: neuralforecast is not installed, has no such class, or it is no network that
            forecasts all hours at once.
    """
    try:
        from neuralforecast import models
        from neuralforecast.common._base_model import BaseModel
    except ImportError as error:
        raise UsageError(
            f"{LIBRARY}:{name} needs the package {error.name or LIBRARY}, which is not installed"
        ) from error
    if name not in models.__all__:
        raise unknown_name(f"model of {LIBRARY}", name, models.__all__)
    found = getattr(models, name)
    if not issubclass(found, BaseModel):
        raise UsageError(f"{LIBRARY}:{name} is no network: {NO_NETWORK}")
    if found.RECURRENT and "recurrent" not in inspect.signature(found).parameters:
        raise UsageError(
            f"{LIBRARY}:{name} forecasts hour after hour from samples of its own; "
            "tuner takes networks that forecast the quantiles of all hours at once"
        )
    return found


def _named_arguments(model_class: Any) -> tuple[str, ...]:
    """Without `**trainer_kwargs`, which takes what the library hands to its trainer."""
    parameters = inspect.signature(model_class).parameters.values()
    return tuple(p.name for p in parameters if is_named(p))


def _construct(
    reference: str,
    model_class: Any,
    shapes: ModelShapes,
    covariates: Covariates,
    given: Mapping[str, Any],
) -> nn.Module:
    from neuralforecast.losses.pytorch import MQLoss

    # Only the number of levels matters: it is the number of outputs. The loss is never called.
    levels = [(n + 1) / (shapes.n_quantiles + 1) for n in range(shapes.n_quantiles)]
    loss = MQLoss(quantiles=levels)
    series = {"n_series": shapes.n_targets} if model_class.MULTIVARIATE else {}
    try:
        # The library's advice on its arguments would be repeated for every trial.
        with library_seed() as seed, warnings.catch_warnings(action="ignore"):
            model: nn.Module = model_class(
                h=shapes.horizon,
                input_size=shapes.input_size,
                loss=loss,
                random_seed=seed,
                **series,
                **covariates.lists(),
                **given,
            )
    except ImportError as error:
        raise UsageError(f"{reference} needs {_package(error)}, which is not installed") from error
    except Exception as error:
        if out_of_memory(error) is not None:
            raise
        # The library's own refusals are plain exceptions: their words are enough.
        why = first_line(error) if type(error) is Exception else on_one_line(error)
        raise UsageError(f"{reference}: building it failed: {why}{_words(given)}") from error
    if any(p.is_complex() for p in model.parameters()):
        raise UsageError(
            f"{reference} has complex weights, which the protocol's optimiser does not take"
        )
    # The levels are a parameter of the loss: they must not be counted, saved or compared as one.
    for each in {id(each): each for each in model.modules() if isinstance(each, MQLoss)}.values():
        held = each.quantiles.detach()
        del each.quantiles
        each.quantiles = held
    return model


def _words(given: Mapping[str, Any]) -> str:
    """What a class that says no was given: its own words seldom name the argument."""
    if not given:
        return ""
    words = ", ".join(f"{name} = {value!r}" for name, value in given.items())
    return f"{GIVEN}{words[:MOST_OF_ARGUMENTS]}"


def _package(error: ImportError) -> str:
    """The package that is missing: by the error's name, or as the library's words quote it."""
    quoted = re.search(r"`([\w.-]+)`", str(error))
    return error.name or (quoted.group(1) if quoted else on_one_line(error))
