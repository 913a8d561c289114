"""Pieces of an exported script: plain data as Python writes it, and the user's own code, which
stays where it is.
"""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING, Any

from tuner.errors import UsageError
from tuner.files.plain import excerpt
from tuner.models.names import library_class
from tuner.models.readings import reading_of

if TYPE_CHECKING:
    from tuner.export.best_config import BestConfig


def users_term(term: str) -> str:
    """The function that finds the term of the training loss, likewise."""
    location, _, name = term.rpartition(":")
    head = 'def users_term() -> Any:\n    """The term of the study\'s training loss."""\n'
    lines = _load_lines(location, "own_term")
    return f"{head}{lines}    return getattr(module, {literal(name)})"


def users_class(model: str) -> str:
    """The function that finds a class of the user's own, which stays where it is; nothing is
    imported to write it.
    """
    location, _, name = model.rpartition(":")
    head = 'def users_class() -> type[nn.Module]:\n    """The class of the study\'s network."""\n'
    found = f"cast('type[nn.Module]', getattr(module, {literal(name)}))"
    return f"{head}{_load_lines(location, 'own_network')}    return {found}"


def literal(value: Any) -> str:
    """Plain data as Python writes it, whatever texts are in it.

    Raises:
        UsageError: it is no plain data, or not finite.
    """
    text = repr(value)
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError):
        raise UsageError(
            f"{excerpt(text)} cannot be written into a script; use --format json"
        ) from None
    return text


def _load_lines(location: str, name: str) -> str:
    """Statements of a function that bind `module` to the user's file or module."""
    if not location.endswith(".py"):
        return f"    module = importlib.import_module({literal(location)})\n"
    return (
        f"    spec = importlib.util.spec_from_file_location({literal(name)}, {literal(location)})\n"
        "    assert spec is not None and spec.loader is not None, 'the file of the study'\n"
        "    module = importlib.util.module_from_spec(spec)\n"
        "    spec.loader.exec_module(module)\n"
    )


def library_of(model: str) -> str:
    """The package that a network is of, in a list of packages; empty where it needs none."""
    return "" if library_class(model) is None else ", neuralforecast"


def sizes_of(config: BestConfig) -> str:
    """The arguments that a network is built with, beside its shapes."""
    words = [
        f"{name}=job.{name}"
        for name in ("hidden_size", "dropout")
        if getattr(config.hyperparameters, name) is not None
    ]
    _, settings = reading_of(config.architecture)
    return ", ".join([*words, *([f"**{literal(settings)}"] if settings else [])])
