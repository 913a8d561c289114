"""A process trains a study with the class and the term that it began with, also where somebody
edits their files meanwhile.
"""

from __future__ import annotations

from tuner.models.own_modules import EditedError, keep_to_file
from tuner.spec.definition import StudyDefinition
from tuner.trial.survival import TrainerLostError


def keep_to_code(definition: StudyDefinition) -> None:
    """To be called before a study's network is built.

    Raises:
        TrainerLostError: a file is not what the study was made with, so that each trial would fail.
        UsageError: it cannot be imported, or read.
    """
    if definition.files is not None and (problem := definition.files.problem()):
        raise TrainerLostError(problem)
    loss = definition.training.loss
    try:
        keep_to_file(definition.architecture.model, definition.model_source)
        if loss is not None:
            keep_to_file(loss.term, definition.loss_source)
    except EditedError as error:
        raise TrainerLostError(str(error)) from None
