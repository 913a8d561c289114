"""A reading: what a mixer's layers leave open once its layout and norm are told, choice by choice.

Known without importing torch. `read_mixer` builds the networks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from typing import Any

from tuner.config import Architecture
from tuner.errors import UsageError, unknown_name
from tuner.models.names import builtin_names


def _of(usual: Any, *others: Any) -> Any:
    """A field of these choices, the first of which is today's network."""
    return field(default=usual, metadata={"choices": (usual, *others)})


def _number(usual: float, at_least: float) -> Any:
    return field(default=usual, metadata={"at_least": at_least})


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """A choice a field; what all of them are by default is the network that the variant names."""

    initialisation: str = _of(
        "default",
        "he_normal",
        "he_normal_fan_out",
        "he_uniform",
        "lecun_normal",
        "xavier_uniform",
        "xavier_normal",
        "orthogonal",
        "normal_0.02",
    )
    """Of the weights of all layers. `lecun_normal` is He's with the gain of a linear layer."""
    gain: float = _number(1.0, 0.01)
    """Multiplies all initial weights."""
    branch_gain: float = _number(1.0, 0.0)
    """Multiplies those of the last layer beside each residual as well."""
    biases: str = _of("default", "zero", "none")
    """Their initial values; with `none`, layers have none but for the first, over the window."""
    norm: str = _of("variant", "none", "rms", "layer")
    norm_axes: str = _of("variant", "features", "time", "plane")
    norm_weights: str = _of("variant", "feature", "no_bias", "none")
    """One for each element that is normalised, as the variant has them; or one a feature."""
    norm_place: str = _of("after", "before", "after_time", "after_features")
    """After each residual; before its branch; or only after time, or features, were mixed."""
    time_dropout: bool = _of(True, False)
    """After the time mixing's layer."""
    hidden_dropout: bool = _of(True, False)
    """Between the feature mixing's two."""
    output_dropout: bool = _of(True, False)
    """After the second."""
    dropout_unit: str = _of("element", "channel")
    """`channel` drops a feature at all hours of a window at once."""
    time_relu: bool = _of(True, False)
    feature_relu: bool = _of(True, False)
    kernel_size: int = _of(1, 3, 5, 7)
    """Hours that the convolutions of a feature mixing see; more than 1 in channel-first layouts."""
    groups: int = _of(1, 2, 4, 8)
    """Of the same, where both widths are multiples."""
    residual: str = _of("projected", "equal_widths", "none")
    """Where a feature mixing's widths differ: through a layer of its own, or left out; or none."""
    reversible_affine: bool = _of(True, False)
    covariates: str = _of("all", "no_static", "no_calendar")
    """`no_calendar`: none that are known of the future."""
    head_order: str = _of("transposed", "reshaped")
    """`reshaped`: the head's plane is read as if hours came first, whatever its layout."""

    @property
    def changed(self) -> dict[str, Any]:
        """The choices that are not today's, by name."""
        usual = {each.name: each.default for each in fields(self)}
        return {
            name: getattr(self, name)
            for name, value in usual.items()
            if getattr(self, name) != value
        }

    @property
    def of_weights_only(self) -> bool:
        """Whether it is the variant's own network, from other initial weights."""
        others = set(self.changed) - {"initialisation", "gain", "branch_gain", "biases"}
        return not others and self.biases != "none"


CHOICES: Mapping[str, Field[Any]] = {each.name: each for each in fields(Reading)}
"""By the names that they have in a study file, among the settings or the hyperparameters."""


def check_choice(where: str, name: str, value: Any) -> None:
    """Raises UsageError where a reading cannot have this value."""
    told = CHOICES[name].metadata
    if "choices" in told:
        if any(value == each and type(value) is type(each) for each in told["choices"]):
            return
        choices = ", ".join(repr(each) for each in told["choices"])
        raise UsageError(f"{where}: {name} must be one of {choices}, not {value!r}")
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not told["at_least"] <= value < float("inf"):
        least = told["at_least"]
        raise UsageError(f"{where}: {name} must be a number of at least {least:g}, not {value!r}")


def split_reading(arguments: Mapping[str, Any]) -> tuple[Reading, dict[str, Any]]:
    """The reading among a mixer's arguments, which were checked, and the others."""
    chosen = {name: value for name, value in arguments.items() if name in CHOICES}
    rest = {name: value for name, value in arguments.items() if name not in CHOICES}
    return Reading(**chosen), rest


def reading_of(architecture: Architecture) -> tuple[Reading, dict[str, Any]]:
    """The reading that a mixer has by its settings, and the other settings; other networks' are
    theirs alone, whatever they are called.
    """
    if architecture.model not in builtin_names():
        return Reading(), dict(architecture.settings)
    return split_reading(architecture.settings)


# What the built-in mixers are built with, known without importing torch.


SIZES = ("hidden_size", "dropout")
"""Hyperparameters of every study of a mixer."""
SETTINGS = {"n_blocks": 16, "feed_forward_size": 4096}
"""Fixed, or hyperparameters of a study's own: whole numbers from 1 on; and up to which a network is
of a usual size.
"""
USUAL_HIDDEN_SIZE = 1024


def check_mixer_arguments(
    model: str, settings: Mapping[str, Any], arguments: Mapping[str, Any]
) -> None:
    """Raises UsageError where a mixer does not take one of these.

    Args:
        model: a built-in variant's name.
        settings: that are fixed.
        arguments: all of them, the configuration's among them.
    """
    where = f"variant {model!r}, settings"
    for name, value in arguments.items():
        if name in SIZES and name not in settings:
            continue
        if name in SIZES:
            raise UsageError(
                f"{where}: {name!r} is a hyperparameter; give it in the study's space or defaults"
            )
        if name in CHOICES:
            check_choice(where, name, value)
            continue
        if name not in SETTINGS:
            known = [*SETTINGS, *CHOICES]
            raise unknown_name(f"setting of variant {model!r}", name, known)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise UsageError(f"{where}: {name} must be a whole number of at least 1, not {value!r}")


def of_usual_size(arguments: Mapping[str, Any]) -> bool:
    """Whether a mixer of these arguments fits wherever one trains."""
    most = {"hidden_size": USUAL_HIDDEN_SIZE, **SETTINGS}
    return all(arguments.get(name, 1) <= largest for name, largest in most.items())
