"""The arguments of neuralforecast's model classes: which are hyperparameters here, and how a study
says them.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Container, Mapping
from typing import Any

from tuner.errors import UsageError, unknown_name

NO_NETWORK = "it reconciles the forecasts of one; name that one"
"""What is said of HINT, the one name of the library's that is no model class."""

OWN_NORM = ("revin", "use_norm", "revin_affine")
"""By one of these arguments a class says that it has a reversible norm itself."""

_TASK = "the task says it"
_WINDOWS = "tuner cuts the windows"
_TRAINING = "tuner trains every variant by one protocol"
_COVARIATES = "the task names the covariates"

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
    "h_train": _WINDOWS,
    "step_size": _WINDOWS,
    "start_padding_enabled": _WINDOWS,
    "training_data_availability_threshold": _WINDOWS,
    "exclude_insample_y": _WINDOWS,
    "inference_input_size": _WINDOWS,
    "futr_exog_list": _COVARIATES,
    "hist_exog_list": _COVARIATES,
    "stat_exog_list": _COVARIATES,
    "cat_exog_list": _COVARIATES,
    "categorical_cardinalities": _COVARIATES,
    "cat_emb_dim": _COVARIATES,
    "alias": "the study file names the variant",
    "n_samples": "nothing is sampled from a distribution",
    "max_steps": _TRAINING,
    "num_lr_decays": _TRAINING,
    "val_check_steps": _TRAINING,
    "val_monitor": _TRAINING,
    "early_stop_patience_steps": _TRAINING,
    "valid_batch_size": _TRAINING,
    "inference_windows_batch_size": _TRAINING,
    "drop_last_loader": _TRAINING,
    "dataloader_kwargs": _TRAINING,
    "optimizer": _TRAINING,
    "optimizer_kwargs": _TRAINING,
    "lr_scheduler": _TRAINING,
    "lr_scheduler_kwargs": _TRAINING,
    "trainer_kwargs": _TRAINING,
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
