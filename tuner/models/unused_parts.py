"""Which part of a class, or of the task, a training does not use: for the person who starts it."""

from __future__ import annotations

from collections.abc import Iterator

from tuner.config import Architecture, ModelShapes
from tuner.models.foreign import unused_notice
from tuner.models.names import library_class
from tuner.models.own import methods_not_used


def unused_parts(architecture: Architecture, shapes: ModelShapes) -> Iterator[str]:
    """A line for each.

    Raises:
        UsageError: as `tuner.models.own.load_class` and
            `tuner.models.of_neuralforecast.build.find_class`.
    """
    of_library = library_class(architecture.model)
    if of_library is None:
        said = unused_notice(architecture.model, methods_not_used(architecture))
    else:
        from tuner.models.of_neuralforecast.build import find_class
        from tuner.models.of_neuralforecast.covariates import Covariates

        said = Covariates.of(find_class(of_library), shapes).notice(architecture.model)
    if said:
        yield said
