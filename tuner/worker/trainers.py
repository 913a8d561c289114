"""What trains for a worker: its own process, or one beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from tuner.data.prepare import PreparedData
from tuner.devices import CpuCores, Gpu
from tuner.storage.records import TrialResult
from tuner.trial.job import TrialJob, TrialRunner
from tuner.trial.uncollected import nothing_collected

PrepareData = Callable[[], Mapping[str, PreparedData]]


class Trainer(Protocol):
    """A `TrialRunner` with its data on its device."""

    @property
    def lanes(self) -> int:
        """How many jobs the worker has at a time: 2 where one is made ready while one trains."""

    def load(
        self,
        prepare: PrepareData,
        give_up: Callable[[], bool],
        on_phase: Callable[[str], None],
    ) -> bool:
        """Have the data on the device; False when `give_up` said so while another one had that.

        `prepare` gives the data by data hash; `on_phase` is told what is waited for.

        Raises:
            TunerError: the device does not take it.
            DeviceLockError: devices cannot be locked.
        """

    def __call__(self, job: TrialJob) -> TrialResult | None:
        """The job's result; None when it was interrupted."""

    def close(self) -> None:
        """Nothing more is to be trained."""


class InThisProcess:
    """Trains in the worker's own process: on a CPU, what is no code of the user's."""

    lanes = 1

    def __init__(self, device: Gpu | CpuCores) -> None:
        self._device = device
        self._run: TrialRunner | None = None

    def load(
        self,
        prepare: PrepareData,
        give_up: Callable[[], bool],
        on_phase: Callable[[str], None],
    ) -> bool:
        with nothing_collected():
            from tuner.worker.trainer.on_device import load_onto  # torch
        self._run = load_onto(self._device, prepare, give_up, on_phase)
        return self._run is not None

    def __call__(self, job: TrialJob) -> TrialResult | None:
        assert self._run is not None, "loaded before"
        return self._run(job)

    def close(self) -> None:
        self._run = None
