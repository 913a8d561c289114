"""What a sampler of Optuna reads in place of a study: trials that it is shown, translated."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from optuna.storages import InMemoryStorage
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from tuner.storage.optuna.private import trial_id_of

NAME = "history"


class HistoryStorage(InMemoryStorage):
    """What a sampler reads: the trials it is shown, and the one that it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.create_new_study([StudyDirection.MINIMIZE, StudyDirection.MINIMIZE], NAME)
        self._shown: list[FrozenTrial] = []
        self._asked: FrozenTrial | None = None

    def show(
        self, finished: Sequence[FrozenTrial], pending: Sequence[FrozenTrial], asked: FrozenTrial
    ) -> None:
        self._shown = [*finished, *pending, asked]
        self._asked = asked

    def get_all_trials(
        self, study_id: int, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        del study_id, deepcopy
        return [trial for trial in self._shown if states is None or trial.state in states]

    def set_trial_system_attr(self, trial_id: int, key: str, value: Any) -> None:
        assert self._asked is not None
        assert trial_id == trial_id_of(self._asked), "a sampler writes to the trial it is asked for"
        self._asked.system_attrs[key] = value
