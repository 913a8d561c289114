"""The readings that are tried: each is one choice, or a few, that a rewrite may have made unsaid.

A reading holds for all variants alike. It is today's network and training but for what it names.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Tried:
    """What differs, and what was expected of it before any of them was trained."""

    network: Mapping[str, Any] = field(default_factory=dict)
    """Settings of the variant, `tuner.models.readings`."""
    hyperparameters: Mapping[str, float] = field(default_factory=dict)
    training: Mapping[str, float | bool] = field(default_factory=dict)
    """The table `[training]` of a study file."""
    monitor: str = "val_loss"
    """What early stopping watches: this, `train_loss` or `val_mql`."""
    expected: str = ""
    """Epochs, validation loss and test MQL beside today's: + more, - less, = alike."""


HE = {"initialisation": "he_normal", "biases": "zero"}
NO_NORM = {"norm": "none"}
BEFORE = {"norm_place": "before"}
PATIENT = {"patience": 20}
LAST = {"restore_best_weights": False}

TRIED: dict[str, Tried] = {
    "today": Tried(expected="= = ="),
    # Initial weights.
    "he-normal": Tried(network=HE, expected="+ + +"),
    "he-normal-usual-biases": Tried(network={"initialisation": "he_normal"}, expected="+ + +"),
    "he-normal-fan-out": Tried(
        network={"initialisation": "he_normal_fan_out", "biases": "zero"}, expected="+ + +"
    ),
    "lecun-normal": Tried(
        network={"initialisation": "lecun_normal", "biases": "zero"}, expected="+ + +"
    ),
    "xavier-uniform": Tried(
        network={"initialisation": "xavier_uniform", "biases": "zero"}, expected="+ + ="
    ),
    "orthogonal": Tried(
        network={"initialisation": "orthogonal", "biases": "zero"}, expected="+ + ="
    ),
    "normal-0.02": Tried(
        network={"initialisation": "normal_0.02", "biases": "zero"}, expected="+ - +"
    ),
    "zero-biases": Tried(network={"biases": "zero"}, expected="= = ="),
    "half-gain": Tried(network={"gain": 0.5}, expected="+ - ="),
    "small-branches": Tried(network={"branch_gain": 0.1}, expected="= - ="),
    # Norms.
    "no-norm": Tried(network=NO_NORM, expected="+ - ="),
    "norm-without-weights": Tried(network={"norm_weights": "none"}, expected="= = ="),
    "norm-weight-per-feature": Tried(network={"norm_weights": "feature"}, expected="= = ="),
    "norm-over-plane": Tried(network={"norm_axes": "plane"}, expected="= - ="),
    "norm-before": Tried(network=BEFORE, expected="+ - +"),
    "norm-after-time": Tried(network={"norm_place": "after_time"}, expected="= = ="),
    "norm-after-features": Tried(network={"norm_place": "after_features"}, expected="= = ="),
    # Dropout.
    "no-dropout": Tried(hyperparameters={"dropout": 0.0}, expected="- = +"),
    "no-time-dropout": Tried(network={"time_dropout": False}, expected="- = ="),
    "hidden-dropout-only": Tried(
        network={"time_dropout": False, "output_dropout": False}, expected="- = +"
    ),
    "channel-dropout": Tried(network={"dropout_unit": "channel"}, expected="+ + ="),
    # Layers.
    "kernel-3": Tried(network={"kernel_size": 3}, expected="- + +"),
    "groups-4": Tried(network={"groups": 4}, expected="+ + +"),
    "no-time-relu": Tried(network={"time_relu": False}, expected="= = ="),
    "no-biases": Tried(network={"biases": "none"}, expected="= = ="),
    "residual-of-equal-widths": Tried(network={"residual": "equal_widths"}, expected="+ + +"),
    "no-residual": Tried(network={"residual": "none"}, expected="+ + +"),
    "reversible-without-weights": Tried(network={"reversible_affine": False}, expected="= = ="),
    "head-reshaped": Tried(network={"head_order": "reshaped"}, expected="+ + +"),
    "no-static": Tried(network={"covariates": "no_static"}, expected="= = ="),
    "no-calendar": Tried(network={"covariates": "no_calendar"}, expected="- = ="),
    # Training.
    "patience-20": Tried(training=PATIENT, expected="+ - ="),
    "patience-30-any-gain": Tried(training={"patience": 30, "min_delta": 0.0}, expected="+ - ="),
    "last-weights": Tried(training=LAST, expected="= = +"),
    "train-loss-watched": Tried(monitor="train_loss", expected="+ = ="),
    "val-mql-watched": Tried(monitor="val_mql", expected="= = ="),
    "no-decay": Tried(training={"learning_rate_decay": 1.0}, expected="= = ="),
    "no-clip": Tried(training={"gradient_clip": 1e9}, expected="= = ="),
    "half-rate": Tried(hyperparameters={"learning_rate": 5e-5}, expected="+ - ="),
    "weight-decay": Tried(hyperparameters={"weight_decay": 0.01}, expected="= = ="),
    # Several at once: what lengthens a training with what lowers its validation loss.
    "no-norm-patience-20": Tried(network=NO_NORM, training=PATIENT, expected="+ - +"),
    "no-norm-he-normal": Tried(network=NO_NORM | HE, expected="+ + +"),
    "no-norm-small-branches": Tried(network=NO_NORM | {"branch_gain": 0.1}, expected="+ - ="),
    "no-norm-no-dropout": Tried(
        network=NO_NORM, hyperparameters={"dropout": 0.0}, expected="= - +"
    ),
    "no-norm-last-weights-patience-20": Tried(
        network=NO_NORM, training=PATIENT | LAST, expected="+ - +"
    ),
    "norm-before-patience-20": Tried(network=BEFORE, training=PATIENT, expected="+ - +"),
    "norm-before-he-normal": Tried(network=BEFORE | HE, expected="+ + +"),
    "norm-before-last-weights-patience-20": Tried(
        network=BEFORE, training=PATIENT | LAST, expected="+ - +"
    ),
}
