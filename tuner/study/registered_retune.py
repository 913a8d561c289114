"""What is registered of a retune, with the first study of its variant."""

from __future__ import annotations

from tuner.errors import StorageError, UsageError
from tuner.files.plain import explained
from tuner.settings import in_percent
from tuner.spec.margin import checked_margin
from tuner.spec.retune import Registered
from tuner.storage.database import Database, initialisation_lock
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


# A study's margin, recorded before its confirmation begins and the same from then on.


def record_margin(study: OpenStudy, said: float | None = None) -> float:
    """Record the margin with the study, to be called before a run of its confirmation is planned:
    what was `said`, else what the study has, else the usual one. The margin that counts.

    Raises:
        UsageError: no margin, or another than the one that verification runs have begun with.
    """
    with initialisation_lock(study.database.address):  # a launch may be changing another field
        before = study.policy()
        margin = before.counted_margin if said is None else checked_margin(said)
        if margin != before.margin:
            refuse_other_margin(study, margin)
            study.set_policy(before.but(margin=margin))
    return margin


def refuse_other_margin(study: OpenStudy, said: float | None) -> None:
    """Raises UsageError where a margin is recorded, verification has begun and another is said."""
    recorded = study.policy().margin
    if recorded is None or said == recorded or not study.verifications.runs():
        return
    raise UsageError(
        f"study {study.name!r} has had a margin of {in_percent(recorded)} since before its "
        "verification began, and keeps it; to look at another, say it to 'tuner best --margin'"
    )
