"""From the name of a Social-xLSTM variant to its network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tuner.config import ModelShapes
from tuner.errors import UsageError
from tuner.models.names import HEADS, LOOP
from tuner.models.social_xlstm.detector_networks import (
    DetectorNetwork,
    LoopNetwork,
    SharedNetwork,
)
from tuner.models.social_xlstm.matrix_cell import cell_in_use
from tuner.models.social_xlstm.neighbour_grid import pooling_in_words
from tuner.models.social_xlstm.variant_settings import Pooling, VariantSettings


def build_social(
    variant: str, shapes: ModelShapes, arguments: Mapping[str, Any]
) -> DetectorNetwork:
    """A new network on the CPU.

    Args:
        variant: one of `tuner.models.names.social_names()`.
        shapes: of the task.
        arguments: those of `VariantSettings`.

    Raises:
        UsageError: settings it does not take, a task without the positions that it pools by, or a
            cell whose package is not installed.
    """
    settings = VariantSettings.of(variant, arguments)
    try:
        if variant == LOOP:
            return LoopNetwork(shapes, settings)
        return SharedNetwork(shapes, settings, heads=variant == HEADS)
    except UsageError as error:
        raise UsageError(f"variant {variant!r}: {error}") from None


def social_cell(variant: str, arguments: Mapping[str, Any]) -> str:
    """Whose cell a network with these arguments runs on this machine, as `cell_in_use` says it.

    Raises:
        UsageError: settings that the variant does not take.
    """
    settings = VariantSettings.of(variant, arguments)
    return cell_in_use(settings.cell, settings.kind)


def social_pooling(variant: str, shapes: ModelShapes, arguments: Mapping[str, Any]) -> str:
    """Over how many others a detector of the task pools, in words; empty where nothing is pooled.

    Raises:
        UsageError: as `build_social`.
    """
    settings = VariantSettings.of(variant, arguments)
    if settings.pooling is Pooling.NONE or not shapes.positions:
        return ""
    return pooling_in_words(shapes.positions, settings.pool_radius)
