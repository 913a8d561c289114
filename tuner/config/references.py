"""How code that is not tuner's is named: as text, before anything is imported."""

from __future__ import annotations

import keyword
import re
from typing import Annotated

from pydantic import AfterValidator

from tuner.files.plain import Label

LIBRARY = "neuralforecast"
"""Before a colon: the library whose model classes are networks here, `neuralforecast:TCN`."""

_MODULE = re.compile(r"[\w.]+|.+\.py")


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


def is_name(text: str) -> bool:
    """Whether Python takes it for a name."""
    return text.isidentifier() and not keyword.iskeyword(text)


def _reference(model: str) -> str:
    """A name, or an import string whose class can be written into a script as it is."""
    location, colon, name = model.rpartition(":")
    if colon and not (_MODULE.fullmatch(location) and is_name(name)):
        raise ValueError(
            f"{model!r} is no import string; expected package.module:Class or path/to/file.py:Class"
        )
    return model


NetworkName = Annotated[Label, AfterValidator(_reference)]
"""A built-in network, a model of neuralforecast, or a class of the user's own."""
