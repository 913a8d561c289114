"""What Optuna keeps to itself: numbers of studies and trials, their storage, its tables.

Nothing outside this package touches a private name of Optuna: its updates are looked after here.
"""

# ruff: noqa: SLF001

from __future__ import annotations

from typing import Any

from optuna.distributions import BaseDistribution
from optuna.storages import BaseStorage
from optuna.storages._rdb.models import (
    StudyDirectionModel,
    StudyModel,
    TrialModel,
    TrialSystemAttributeModel,
)
from optuna.study import Study
from optuna.study._frozen import FrozenStudy
from optuna.trial import FrozenTrial
from sqlalchemy import ColumnElement, String, Table, type_coerce

__all__ = ["ATTRIBUTES", "DIRECTIONS", "STUDIES", "TRIALS", "FrozenStudy"]

STUDIES: Table = StudyModel.__table__
TRIALS: Table = TrialModel.__table__
DIRECTIONS: Table = StudyDirectionModel.__table__
ATTRIBUTES: Table = TrialSystemAttributeModel.__table__
"""Of trials, those of the system."""


def study_id_of(study: Study | FrozenStudy) -> int:
    """The number of a study in its storage."""
    return int(study._study_id)


def storage_of(study: Study) -> BaseStorage:
    return study._storage


def trial_id_of(trial: FrozenTrial) -> int:
    """The number of a trial in its storage, of all studies; `trial.number` is that in its own."""
    return int(trial._trial_id)


def numbered(trial: FrozenTrial, number: int) -> None:
    """Give a trial this number, in its study and in a storage that holds one study alone."""
    trial.number = trial._trial_id = number


def holds(distribution: BaseDistribution, value: Any) -> bool:
    """Whether a value lies in the range of a distribution, as Optuna checks it."""
    return bool(distribution._contains(distribution.to_internal_repr(value)))


def as_stored(column: Any) -> ColumnElement[Any]:
    """What the database has in a column, whatever the column's type makes of it."""
    return type_coerce(column, String()).label(None)
