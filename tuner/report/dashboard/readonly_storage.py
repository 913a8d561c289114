"""The storage as the dashboard sees it: Optuna's own, which nobody can write to, with what tuner
adds to each study.

What optuna-dashboard shows beside the trials (a note, figures, files, the objectives' names) it
reads from a study's system attributes. tuner does not store these: a figure is a hundred attributes
that would be written again with every trial that ends, and a reader between two of them would get
half a picture. They are made when somebody looks, so a role that may only read sees them too, and a
search pays nothing for them.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any, NoReturn

from optuna.distributions import BaseDistribution
from optuna.storages import BaseStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tuner.errors import StorageError
from tuner.storage.optuna.private import FrozenStudy, study_id_of
from tuner.study.open import OpenStudy

Additions = Callable[[int], Mapping[str, Any]]
"""What is added to the system attributes of the study with that number."""
_OURS = ("dashboard:", "artifacts:", "study:metric_names")


class ShownStorage(BaseStorage):
    """Reads `storage`, refuses every write, and adds `additions` to what each study says of itself.

    Of a study that `opened` knows, it shows the study's own trials, and none that another program
    made.
    """

    def __init__(
        self,
        storage: BaseStorage,
        additions: Additions,
        opened: Callable[[int], OpenStudy | None] = lambda _: None,
    ) -> None:
        self._storage = storage
        self._additions = additions
        self._opened = opened

    def get_all_studies(self) -> list[FrozenStudy]:
        studies = sorted(self._storage.get_all_studies(), key=study_id_of)
        return [self._extended(study) for study in studies]

    def _extended(self, study: FrozenStudy) -> FrozenStudy:
        number = study_id_of(study)
        return FrozenStudy(
            study_name=study.study_name,
            direction=None,
            directions=study.directions,
            user_attrs=study.user_attrs,
            system_attrs=_Extended(study.system_attrs, lambda: self._additions(number)),  # type: ignore[arg-type]
            study_id=number,
        )

    def get_study_system_attrs(self, study_id: int) -> dict[str, Any]:
        return self._storage.get_study_system_attrs(study_id) | dict(self._additions(study_id))

    # -- reading, passed on ------------------------------------------------------------------------

    def get_study_id_from_name(self, study_name: str) -> int:
        return self._storage.get_study_id_from_name(study_name)

    def get_study_name_from_id(self, study_id: int) -> str:
        return self._storage.get_study_name_from_id(study_id)

    def get_study_directions(self, study_id: int) -> list[StudyDirection]:
        return self._storage.get_study_directions(study_id)

    def get_study_user_attrs(self, study_id: int) -> dict[str, Any]:
        return self._storage.get_study_user_attrs(study_id)

    def get_trial(self, trial_id: int) -> FrozenTrial:
        return self._storage.get_trial(trial_id)

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        if (own := self._opened(study_id)) is not None:
            return own.optuna.get_trials(deepcopy=deepcopy, states=states)
        return self._storage.get_all_trials(study_id, deepcopy=deepcopy, states=states)

    def remove_session(self) -> None:
        self._storage.remove_session()

    # -- writing, refused --------------------------------------------------------------------------

    def create_new_study(
        self, directions: Sequence[StudyDirection], study_name: str | None = None
    ) -> NoReturn:
        _refuse(directions, study_name)

    def delete_study(self, study_id: int) -> NoReturn:
        _refuse(study_id)

    def set_study_user_attr(self, study_id: int, key: str, value: Any) -> NoReturn:
        _refuse(study_id, key, value)

    def set_study_system_attr(self, study_id: int, key: str, value: Any) -> NoReturn:
        _refuse(study_id, key, value)

    def create_new_trial(
        self, study_id: int, template_trial: FrozenTrial | None = None
    ) -> NoReturn:
        _refuse(study_id, template_trial)

    def set_trial_param(
        self,
        trial_id: int,
        param_name: str,
        param_value_internal: float,
        distribution: BaseDistribution,
    ) -> NoReturn:
        _refuse(trial_id, param_name, param_value_internal, distribution)

    def set_trial_state_values(
        self, trial_id: int, state: TrialState, values: Sequence[float] | None = None
    ) -> NoReturn:
        _refuse(trial_id, state, values)

    def set_trial_intermediate_value(
        self, trial_id: int, step: int, intermediate_value: float
    ) -> NoReturn:
        _refuse(trial_id, step, intermediate_value)

    def set_trial_user_attr(self, trial_id: int, key: str, value: Any) -> NoReturn:
        _refuse(trial_id, key, value)

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> NoReturn:
        _refuse(trial_id, key, value)


def _refuse(*_unused: object) -> NoReturn:
    raise StorageError("this dashboard is read-only")


class _Extended(Mapping[str, Any]):
    """Attributes with additions that are only made when
    somebody asks for one, not for a mere list of studies.
    """

    def __init__(
        self, stored: Mapping[str, Any], additions: Callable[[], Mapping[str, Any]]
    ) -> None:
        self._stored = stored
        self._additions = additions
        self._merged: dict[str, Any] | None = None

    def _all(self) -> dict[str, Any]:
        if self._merged is None:
            self._merged = {**self._stored, **self._additions()}
        return self._merged

    def __getitem__(self, key: str) -> Any:
        return self._all()[key] if key.startswith(_OURS) else self._stored[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def items(self) -> Any:
        return self._all().items()
