"""The user's own network: found by an import string, called, and tried before hours go into it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from tuner.config import Architecture, ModelShapes, names_own_code
from tuner.errors import UsageError, unknown_name
from tuner.models.darts_interface import DartsNetwork, darts_arguments, has_darts_interface
from tuner.models.fault import FAULTS, on_one_line, out_of_memory
from tuner.models.own_modules import module_by_name, module_from_file

# Classes written for another library: which of their methods tuner does not call, and how to wrap
# such a network.


UNUSED = (
    "training_step",
    "validation_step",
    "test_step",
    "configure_optimizers",
    "optimizer_step",
    "lr_scheduler_step",
    "configure_gradient_clipping",
    "backward",
    "train_dataloader",
    "val_dataloader",
)
"""Methods by which a LightningModule says how it is trained: tuner trains all networks by one
protocol instead."""

LIBRARIES = ("neuralforecast", "darts", "pytorch_lightning", "lightning", "torch", "tuner")
"""Whose own methods say nothing about what the user wanted."""

CALLED_AS = (
    "tuner takes a torch.nn.Module called as Class(shapes, hidden_size=..., dropout=..., "
    "**settings) whose "
    "forward(past, future, static) returns (batch, horizon, targets, quantiles)"
)
WHERE = "docs/own-model.md, 'A class of another library', shows how to wrap the network of another"


def unused_methods(found: type) -> tuple[str, ...]:
    """Those of `UNUSED` that the class, or one that it inherits from outside of libraries, defines
    itself.
    """
    mine = [each for each in found.__mro__ if _library(each) == ""]
    return tuple(name for name in UNUSED if any(name in vars(each) for each in mine))


def unused_notice(reference: str, methods: tuple[str, ...]) -> str:
    """That the methods are ignored, for the person who wrote them; empty where there are none."""
    if not methods:
        return ""
    named = " and ".join(filter(None, (", ".join(methods[:-1]), methods[-1])))
    return (
        f"{reference}: its own {named} will not be used: tuner trains every variant by one "
        "protocol (quantile loss, "
        "AdamW, early stopping) and takes only the network and its forward of the class; see "
        "docs/own-model.md"
    )


FOR_DARTS = ", or a module class with the constructor arguments of darts' _TSMixerModule"


def advice(found: object) -> str:
    """What is accepted in place of a class that is not, for one of neuralforecast or of darts;
    empty for others.
    """
    if isinstance(found, type) and found.__module__.startswith("neuralforecast.models."):
        return f"; name it as neuralforecast:{found.__name__} instead (docs/own-model.md)"
    library = next((name for name in _libraries(found) if name in ("neuralforecast", "darts")), "")
    if not library:
        return ""
    taken = CALLED_AS
    if library == "darts":
        taken += FOR_DARTS
    return f"; it is a class of {library}: {taken}; {WHERE}"


def _libraries(found: object) -> Iterator[str]:
    if isinstance(found, type):
        yield from (_library(each) for each in found.__mro__)


def _library(found: type) -> str:
    root = found.__module__.partition(".")[0]
    return root if root in LIBRARIES or root == "builtins" else ""


# The parameters of a signature that are given by their names.


_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def is_named(parameter: inspect.Parameter) -> bool:
    """Not so `*args` and `**kwargs`, which take what has no name of its own."""
    return parameter.kind in _NAMED


TRIAL_BATCH = 2


def build_own(reference: str, shapes: ModelShapes, arguments: Mapping[str, Any]) -> nn.Module:
    """`Class(shapes, **arguments)` for an import string or `path/to/file.py:Class`, tried once.

    A class with the interface of darts' TSMixer module is called as darts calls it instead.

    A package is looked for where Python looks and in the current folder; a file is taken relative
    to the current folder.

    Raises:
        UsageError: one line for each way in which the class cannot be used.
    """
    model_class = load_class(reference)
    darts = has_darts_interface(model_class)
    if darts:
        arguments = darts_arguments(model_class, shapes, arguments)
    positional = () if darts else (shapes,)
    _check_arguments(reference, model_class, positional, arguments)
    try:
        model = model_class(*positional, **arguments)
        if darts:
            model = DartsNetwork(model, shapes)
    except FAULTS as error:
        if out_of_memory(error) is not None:
            raise
        why = on_one_line(error) + (advice(model_class) or _gets_shapes(model_class, positional))
        raise UsageError(f"{reference}: building it failed: {why}") from error
    check_output(reference, model, shapes)
    return model


def load_class(reference: str) -> type[nn.Module]:
    """The class an import string names.

    Raises:
        UsageError: the module or file is not there or fails on import, has no such name, or it is
            no nn.Module class.
    """
    found = load_named(reference, kind="class")
    name = reference.rpartition(":")[2]
    if not (isinstance(found, type) and issubclass(found, nn.Module)):
        raise UsageError(f"{reference}: {name} is not a subclass of torch.nn.Module{advice(found)}")
    return found


def load_named(reference: str, *, kind: str = "function or class") -> Any:
    """What an import string names; `kind` is what is expected, for messages.

    Raises:
        UsageError: the module or file is not there or fails on import, or has no such name.
    """
    location, _, name = reference.rpartition(":")
    if not location or not name:
        raise UsageError(
            f"{reference!r} is no import string; "
            "expected package.module:Class or path/to/file.py:Class"
        )
    from_file = location.endswith(".py")
    module = module_from_file(location) if from_file else module_by_name(location)
    if not hasattr(module, name):
        known = _own_names(module, type if kind == "class" else (type, FunctionType))
        raise unknown_name(f"{kind} in {location}", name, known)
    return getattr(module, name)


def methods_not_used(architecture: Architecture) -> tuple[str, ...]:
    """Methods of the user's own class by which it would train itself, which nobody calls here.

    Raises:
        UsageError: as `load_class`.
    """
    own = names_own_code(architecture.model)
    return unused_methods(load_class(architecture.model)) if own else ()


def _own_names(module: ModuleType, kinds: type | tuple[type, ...]) -> list[str]:
    return [
        n
        for n, v in vars(module).items()
        if isinstance(v, kinds) and v.__module__ == module.__name__
    ]


def _check_arguments(
    reference: str,
    model_class: type[nn.Module],
    positional: Sequence[Any],
    arguments: Mapping[str, Any],
) -> None:
    try:
        signature = inspect.signature(model_class)
    except ValueError:  # a class without a readable signature: its own call will say
        return
    try:
        signature.bind(*positional, **arguments)
    except TypeError as error:
        given = ", ".join([*("shapes" for _ in positional), *arguments])
        if missing := _missing(signature, len(positional), arguments):
            raise UsageError(
                f"{reference} is not given what its constructor needs: {', '.join(missing)}; name "
                f"each in the study file, under [model_settings] or [defaults]{advice(model_class)}"
            ) from error
        raise UsageError(
            f"{reference} cannot be called as Class({given}): {error}{advice(model_class)}"
        ) from error
    for name in arguments:
        if stars := _takes_others(signature, model_class, name):
            raise UsageError(
                f"{reference}: {name} is no argument: {stars}{name} takes others, by their own "
                "names; say those"
            )


def _takes_others(signature: inspect.Signature, model_class: type[nn.Module], name: str) -> str:
    """The stars of the parameter that is called so and takes what has no name of its own; empty
    where there is none, or a class that it inherits from has an argument of that name.
    """
    p = signature.parameters.get(name)
    stars = {inspect.Parameter.VAR_POSITIONAL: "*", inspect.Parameter.VAR_KEYWORD: "**"}
    if p is None or p.kind not in stars:
        return ""
    for each in model_class.__mro__:
        if "__init__" in vars(each):
            found = inspect.signature(vars(each)["__init__"]).parameters.get(name)
            if found is not None and is_named(found):
                return ""
    return stars[p.kind]


def _gets_shapes(model_class: type[nn.Module], positional: Sequence[Any]) -> str:
    """What the first argument is given, where its name expects something else."""
    try:
        first = next(iter(inspect.signature(model_class).parameters), "shapes")
    except ValueError:
        return ""
    if not positional or "shape" in first:
        return ""
    return (
        f"; its first argument, {first}, is given the sizes of the windows: shapes.input_size, "
        "shapes.horizon, shapes.n_targets and so on"
    )


def _missing(
    signature: inspect.Signature, n_positional: int, arguments: Mapping[str, Any]
) -> list[str]:
    """The parameters without a default that nothing is given for."""
    rest = list(signature.parameters.values())[n_positional:]
    return [
        p.name for p in rest if is_named(p) and p.default is p.empty and p.name not in arguments
    ]


def random_windows(s: ModelShapes, n: int) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """What a network of these shapes is given for `n` windows: past (n, L, C + P + F), future
    (n, T, F) and static (n, S), the latter two None where there are none.
    """
    past = torch.rand(n, s.input_size, s.n_targets + s.n_past + s.n_future)
    future = torch.rand(n, s.horizon, s.n_future) if s.n_future else None
    return past, future, torch.zeros(n, s.n_static) if s.n_static else None


@torch.no_grad()
def check_output(reference: str, model: nn.Module, shapes: ModelShapes) -> None:
    """One forward pass in evaluation mode, on the CPU; torch's random state is left as it was.

    Raises:
        UsageError: it fails, or returns something else than (batch, horizon, targets, quantiles).
    """
    expected = (TRIAL_BATCH, shapes.horizon, shapes.n_targets, shapes.n_quantiles)
    try:
        with torch.random.fork_rng(devices=[]):
            output = model.eval()(*random_windows(shapes, TRIAL_BATCH))
    except FAULTS as error:
        if out_of_memory(error) is not None:
            raise
        raise UsageError(
            f"{reference}: model(past, future, static) failed: {on_one_line(error)}"
        ) from error
    finally:
        model.train()
    if not isinstance(output, torch.Tensor) or tuple(output.shape) != expected:
        got = tuple(output.shape) if isinstance(output, torch.Tensor) else type(output).__name__
        raise UsageError(
            f"{reference}: model(past, future, static) must return a tensor of shape (batch, "
            f"horizon, targets, quantiles) = {expected} for a batch of {TRIAL_BATCH}, not {got}"
        )
