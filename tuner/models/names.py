"""How networks are named, and no imports: built-in ones, neuralforecast's, the user's own classes.

What the built-in ones are, studies/ says.
"""

from __future__ import annotations


def builtin_names() -> tuple[str, ...]:
    """The names of the mixers, the baseline first."""
    return "original", "rmsnorm", "layernorm", "simple", "batchnorm"


LOOP, SHARED, HEADS = "social-xlstm-loop", "social-xlstm-shared", "social-xlstm-heads"
"""The forms of Social-xLSTM: a network a detector, one for all, and one with a head each."""


def social_names() -> tuple[str, ...]:
    """The names of the networks for tasks whose targets are detectors at places."""
    return LOOP, SHARED, HEADS


TIME_LLM, LAYERS = "time-llm", "llm_layers"
"""The one with a frozen language model in its middle, and of that so many layers."""


def network_names() -> tuple[str, ...]:
    """The names of all networks that come with tuner."""
    return *builtin_names(), *social_names(), TIME_LLM
