"""What is registered of a retune, with the first study of its variant."""

from __future__ import annotations

from tuner.errors import StorageError
from tuner.files.plain import explained
from tuner.spec.retune import Registered
from tuner.storage.database import Database
from tuner.study.open import OpenStudy, attributes_of_studies

RETUNE = "tuner_retune"
"""Where it is: with Optuna's own attributes of the study."""


def registered_in(database: Database, study: str) -> Registered | None:
    """What is registered with a study; None where nothing is, or there is no such study.

    Raises:
        StorageError: it cannot be read.
    """
    stored = attributes_of_studies(database).get(study, {}).get(RETUNE)
    if stored is None:
        return None
    try:
        return Registered.model_validate(stored, strict=True)
    except ValueError as error:
        raise StorageError(
            f"the retune that is registered with study {study!r} cannot be read "
            f"({explained(error)}); a newer tuner wrote it, or another program"
        ) from None


def register_retune(study: OpenStudy, retune: Registered) -> None:
    """Register it with a study."""
    plain = retune.as_dict()
    study.database.optuna.set_study_user_attr(study.study_id, RETUNE, plain)
