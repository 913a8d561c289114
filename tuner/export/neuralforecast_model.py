"""A configuration as a neuralforecast model: the same network, set up to train like the study's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tuner.config import Architecture, Hyperparameters, Precision
from tuner.errors import UsageError
from tuner.models.names import LIBRARY, library_class, names_own_code
from tuner.models.of_neuralforecast.class_arguments import lists_in, take_our_norm
from tuner.models.of_neuralforecast.library_source import constructor_arguments
from tuner.models.of_neuralforecast.order import QUANTILES_FIRST
from tuner.models.readings import reading_of

if TYPE_CHECKING:
    from tuner.export.best_config import BestConfig


def build_model(
    config: BestConfig, *, h: int | None = None, n_series: int | None = None, **changes: Any
) -> Any:
    """`BestConfig.to_neuralforecast`."""
    import torch

    given = arguments(config, h=h, n_series=n_series)
    given |= {
        "optimizer": torch.optim.AdamW,
        "loss": _loss(config.architecture)(quantiles=list(config.definition.task["quantiles"])),
    }
    if "lr_scheduler_kwargs" in given:
        given["lr_scheduler"] = torch.optim.lr_scheduler.ExponentialLR
    if "loss" in changes:
        given["gradient_clip_val"] = config.training.gradient_clip
    return _class_of(config.architecture)(**given | changes)


def _class_of(architecture: Architecture) -> Any:
    of_library = library_class(architecture.model)
    if of_library is not None:
        from tuner.models.of_neuralforecast.build import find_class

        return find_class(of_library)
    from tuner.integrations.neuralforecast import model_class

    return model_class(architecture)


def _loss(architecture: Architecture) -> Any:
    if library_class(architecture.model) in QUANTILES_FIRST:
        from tuner.integrations.quantiles_first import QuantilesFirstMQLoss

        return QuantilesFirstMQLoss
    from neuralforecast.losses.pytorch import MQLoss

    return MQLoss


def arguments(
    config: BestConfig, *, h: int | None = None, n_series: int | None = None
) -> dict[str, Any]:
    """The plain arguments of the model class.

    neuralforecast counts steps where a study counts epochs, and averages its quantile loss over the
    levels where the protocol sums it: the number of steps, the decay of the learning rate and the
    clipping are converted. It trains until the trial's best epoch; set `early_stop_patience_steps`
    and fit with a `val_size` to stop early instead.

    A model of neuralforecast's own is given its hyperparameters as the study has them. The study's
    reversible norm around it becomes the library's scaling of each window.

    Accumulated batches become one larger batch, which has the same gradient: Lightning updates at
    the end of each of its epochs, which are single batches here.

    Raises:
        UsageError: the study checkpoints activations, or adds a term to its loss.
    """
    refuse_untrainable(config, "neuralforecast")
    task, settings = config.definition.task, dict(config.architecture.settings)
    hyperparameters, training = config.hyperparameters, config.training
    given: dict[str, Any] = {
        "h": h or task["horizon"],
        "input_size": config.shapes.input_size,
        "n_series": n_series or len(task["target_columns"]),
        **_network_sizes(config.architecture.model, hyperparameters),
        "learning_rate": hyperparameters.learning_rate,
        "optimizer_kwargs": {"weight_decay": hyperparameters.weight_decay},
        "windows_batch_size": hyperparameters.batch_size * config.accumulate,
        "gradient_clip_val": training.gradient_clip / len(task["quantiles"]),
        "random_seed": config.provenance["seeds"][0],
    }
    of_library = library_class(config.architecture.model)
    if of_library is not None:
        given = of_class(of_library, given, settings)
    elif ":" not in config.architecture.model:
        given |= settings
    windows = config.provenance["training_windows"]
    if windows:
        steps = math.ceil(windows / (hyperparameters.batch_size * config.accumulate))
        epochs = config.provenance["best_epoch"] or config.provenance["epochs"] or 1
        given |= {
            "max_steps": steps * epochs,
            "val_check_steps": steps * training.validate_every,
            "lr_scheduler_kwargs": {"gamma": training.learning_rate_decay ** (1 / steps)},
        }
    if training.precision.half:
        given["precision"] = "16-mixed" if training.precision is Precision.FP16 else "bf16-mixed"
    return given


def refuse_untrainable(config: BestConfig, library: str) -> None:
    """Raises UsageError where a study checkpoints activations, adds a term to its loss or reads its
    variant in another way: a library's training does not.
    """
    if changed := reading_of(config.architecture)[0].changed:
        raise UsageError(
            f"the study's network is another reading of its variant, {', '.join(changed)}, which "
            f"{library}'s class does not build; use --format python"
        )
    if config.added_term is not None:
        raise UsageError(
            f"the study's training loss has the term {config.added_term.in_words()}, which "
            f"{library} does not train with; use --format python"
        )
    if config.training.checkpoint_activations:
        raise UsageError(
            f"the study checkpoints activations, which {library} does not; use --format python"
        )


def _network_sizes(model: str, hyperparameters: Hyperparameters) -> dict[str, Any]:
    """Of `hidden_size` and `dropout`, those that the configuration has; None is for a class of the
    user's own that takes none: left out, it would be given the usual ones.
    """
    both = {"hidden_size": hyperparameters.hidden_size, "dropout": hyperparameters.dropout}
    if names_own_code(model):
        return both
    return {name: value for name, value in both.items() if value is not None}


def of_class(name: str, given: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a class of the library's own: `given` and the study's own hyperparameters.

    A univariate class counts windows of one series, a study windows of all targets.
    """
    taken = constructor_arguments(name)
    own = lists_in(f"{LIBRARY}:{name}", settings)
    revin = take_our_norm(f"{LIBRARY}:{name}", taken, own)
    found = dict(given)
    if "n_series" not in taken:
        found["windows_batch_size"] *= found.pop("n_series")
    return found | own | {"scaler_type": "standard" if revin else "identity"}
