"""How networks are named, and no imports: built-in ones, neuralforecast's, the user's own classes.

What the built-in ones are, studies/ says.
"""

from __future__ import annotations

import keyword
import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator

from tuner.files.plain import Label, PlainTable

BUILTIN = ("original", "rmsnorm", "layernorm", "simple", "batchnorm")


def builtin_names() -> tuple[str, ...]:
    """The names of the mixers, the baseline first."""
    return BUILTIN


LOOP, SHARED, HEADS = "social-xlstm-loop", "social-xlstm-shared", "social-xlstm-heads"
"""The forms of Social-xLSTM: a network a detector, one for all, and one with a head each."""


def social_names() -> tuple[str, ...]:
    """The names of the networks for tasks whose targets are detectors at places."""
    return LOOP, SHARED, HEADS


def network_names() -> tuple[str, ...]:
    """The names of all networks that come with tuner."""
    return *builtin_names(), *social_names()


LIBRARY = "neuralforecast"
"""Before a colon: the library whose model classes are networks here, `neuralforecast:TCN`."""


def library_class(model: str) -> str | None:
    """The name of neuralforecast's class, where a model is named as `neuralforecast:NAME`."""
    library, colon, name = model.partition(":")
    return name if colon and library == LIBRARY else None


def names_own_code(model: str) -> bool:
    """Whether a model is a class of the user's own, neither built in nor neuralforecast's."""
    return ":" in model and library_class(model) is None


def names_file(reference: str) -> bool:
    """Whether an import string names a file, `path/to/file.py:name`."""
    return reference.rpartition(":")[0].endswith(".py")


_MODULE = re.compile(r"[\w.]+|.+\.py")


def _reference(model: str) -> str:
    """A name, or an import string whose class can be written into a script as it is."""
    location, colon, name = model.rpartition(":")
    if colon and not (_MODULE.fullmatch(location) and _is_name(name)):
        raise ValueError(
            f"{model!r} is no import string; expected package.module:Class or path/to/file.py:Class"
        )
    return model


def _settings(settings: Any) -> Any:
    for name in settings if isinstance(settings, dict) else ():
        if not (isinstance(name, str) and _is_name(name)):
            raise ValueError(f"{name!r} is no argument of a network; expected a Python name")
    return settings


def _is_name(text: str) -> bool:
    return text.isidentifier() and not keyword.iskeyword(text)


NetworkName = Annotated[Label, AfterValidator(_reference)]
"""A built-in network, a model of neuralforecast, or a class of the user's own."""

NetworkSettings = Annotated[PlainTable, BeforeValidator(_settings)]
"""The fixed arguments of a network."""
