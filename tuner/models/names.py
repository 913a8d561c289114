"""The names of the built-in networks. Imports nothing: checking a name costs nothing. What they are, studies/ says."""

from __future__ import annotations

BUILTIN = ("original", "rmsnorm", "layernorm", "simple", "batchnorm")


def builtin_names() -> tuple[str, ...]:
    """The names of the built-in networks, the baseline first."""
    return BUILTIN
