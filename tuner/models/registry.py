"""From an `Architecture` to a network: a built-in variant by name, a model of neuralforecast, or
the user's own class.

torch is imported only when a network is built, so that names and errors cost nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tuner.config import Architecture, Hyperparameters, ModelShapes, library_class
from tuner.errors import UsageError, unknown_name
from tuner.models.names import TIME_LLM, network_names, social_names
from tuner.models.readings import check_mixer_arguments, split_reading
from tuner.models.social_xlstm.variant_settings import Pooling, VariantSettings

if TYPE_CHECKING:
    from torch import nn

OWN_FORM = (
    "a model of neuralforecast as neuralforecast:NAME, "
    "or your own class as package.module:Class or path/to/file.py:Class"
)


def check_name(model: str) -> None:
    """Says early, without importing anything, whether `model` can name a network.

    Raises:
        UsageError: neither a built-in name nor of the form of an import string.
    """
    if model.endswith(".py"):
        raise UsageError(f"{model!r} names a file and no class; say {model}:CLASS")
    if ":" not in model and model not in network_names():
        raise unknown_name("variant", model, network_names(), more=f"; {OWN_FORM}")


def build_model(
    architecture: Architecture, shapes: ModelShapes, hyperparameters: Hyperparameters
) -> nn.Module:
    """A new network on the CPU, initialised from torch's global random state, in training mode.

    Mixers take the settings `n_blocks` (2), `feed_forward_size` (the hidden size) and the choices
    of `tuner.models.readings`, Social-xLSTM those of `tuner.models.social_xlstm.variant_settings`,
    Time-LLM those of `tuner.models.llm_folder`.
    A model of neuralforecast takes its hyperparameters by its own names. A class of the user's own
    is called as `Class(shapes, **settings, **own, hidden_size=..., dropout=...)`, the last two
    where the configuration has them; one with the interface of darts' TSMixer module as darts calls
    that; and tried on one tiny batch.

    Args:
        architecture: a built-in variant's name or an import string, and its fixed settings.
        shapes: of the windows: L input hours, T hours ahead, C targets, P past, F future and S
            static covariates, Q quantiles.
        hyperparameters: of which a network takes `hidden_size`, `dropout` and its own.

    Returns:
        A module that is called as `model(past (B, L, C + P + F), future (B, T, F) or None, static
        (B, S) or None) -> (B, T, C, Q)`, forecasts in the units of `past`.

    Raises:
        UsageError: unknown name, class that cannot be imported, called or used, settings it does
            not take, or a hyperparameter no network can have.

    >>> shapes = ModelShapes(
    ...     input_size=48, horizon=24, n_targets=3, n_past=0, n_future=0, n_static=0, n_quantiles=5
    ... )
    >>> chosen = Hyperparameters(
    ...     learning_rate=1e-3, weight_decay=0.0, batch_size=256, dropout=0.1, hidden_size=16
    ... )
    >>> model = build_model(Architecture(model="rmsnorm"), shapes, chosen)
    >>> model(torch.zeros(2, 48, 3), None, None).shape
    torch.Size([2, 24, 3, 5])
    """
    check_name(architecture.model)
    _check_hyperparameters(hyperparameters)
    arguments = {**architecture.settings, **network_arguments(hyperparameters)}
    of_library = library_class(architecture.model)
    if of_library is not None:
        from tuner.models.of_neuralforecast.build import build_of_library

        return build_of_library(of_library, shapes, arguments)
    if ":" in architecture.model:
        from tuner.models.own import build_own

        return build_own(architecture.model, shapes, arguments)
    if architecture.model in social_names():
        from tuner.models.social_xlstm.detector_networks import build_social

        return build_social(architecture.model, shapes, arguments)
    if architecture.model == TIME_LLM:
        from tuner.models.time_llm import build_time_llm

        return build_time_llm(shapes, arguments)
    return _build_builtin(architecture, shapes, arguments)


def cell_of(architecture: Architecture, hyperparameters: Hyperparameters) -> str | None:
    """Whose xLSTM cell a Social-xLSTM of this configuration runs on this machine: `xlstm 2.0.6`,
    `own`, or `own: the package xlstm is not installed`. None for other networks.

    Raises:
        UsageError: settings that the variant does not take.
    """
    settings = _social_settings(architecture, hyperparameters)
    if settings is None:
        return None
    from tuner.models.social_xlstm.matrix_cell import cell_in_use

    return cell_in_use(settings.cell, settings.kind)


def _social_settings(
    architecture: Architecture, hyperparameters: Hyperparameters
) -> VariantSettings | None:
    """None of other networks."""
    if architecture.model not in social_names():
        return None
    arguments = {**architecture.settings, **network_arguments(hyperparameters)}
    return VariantSettings.of(architecture.model, arguments)


def pooling_of(
    architecture: Architecture, shapes: ModelShapes, hyperparameters: Hyperparameters
) -> str:
    """Over how many detectors a Social-xLSTM of this configuration pools, in words; empty for other
    networks, and where nothing is pooled.

    Raises:
        UsageError: as `build_model`.
    """
    settings = _social_settings(architecture, hyperparameters)
    if settings is None or settings.pooling is Pooling.NONE or not shapes.positions:
        return ""
    from tuner.models.social_xlstm.detector_networks import pooling_in_words

    return pooling_in_words(shapes.positions, settings.pool_radius)


WHAT_IS_KEPT = (
    f"{TIME_LLM} reads each target's past alone, no covariates; each window's prompt is tokenised "
    "once and kept; its way through the language model, and the prototypes, are computed in every "
    "step"
)


def unused_parts(architecture: Architecture, shapes: ModelShapes) -> Iterator[str]:
    """What of a network will not be used here, a line for each.

    Raises:
        UsageError: as `tuner.models.own.load_class` and
            `tuner.models.of_neuralforecast.build.find_class`.
    """
    of_library = library_class(architecture.model)
    if architecture.model == TIME_LLM:
        said = WHAT_IS_KEPT
    elif of_library is None:
        from tuner.models.own import methods_not_used, unused_notice

        said = unused_notice(architecture.model, methods_not_used(architecture))
    else:
        from tuner.models.of_neuralforecast.build import Covariates, find_class

        said = Covariates.of(find_class(of_library), shapes).notice(architecture.model)
    if said:
        yield said


def network_arguments(hyperparameters: Hyperparameters) -> dict[str, Any]:
    """What of a configuration a network is built with: its own hyperparameters, and those of
    `hidden_size` and `dropout` that it has.
    """
    return hyperparameters.of_network | hyperparameters.sizes


def _build_builtin(
    architecture: Architecture, shapes: ModelShapes, arguments: dict[str, Any]
) -> nn.Module:
    from tuner.models.tsmixer import DESIGNS, TSMixer

    check_mixer_arguments(architecture.model, architecture.settings, arguments)
    reading, sizes = split_reading(arguments)
    design = DESIGNS[architecture.model]
    if not reading.changed:
        return TSMixer(shapes, design, **sizes)
    from tuner.models.read_mixer import build_read

    return build_read(shapes, design, reading, **sizes)


def _check_hyperparameters(hyperparameters: Hyperparameters) -> None:
    if hyperparameters.hidden_size is not None and hyperparameters.hidden_size < 1:
        raise UsageError(f"hidden_size must be at least 1, not {hyperparameters.hidden_size}")
    if hyperparameters.dropout is not None and not 0 <= hyperparameters.dropout < 1:
        raise UsageError(f"dropout must be at least 0 and below 1, not {hyperparameters.dropout}")
