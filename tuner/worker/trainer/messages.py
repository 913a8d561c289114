"""What a worker and its trainer tell each other, through a pipe between the two alone.

The order of a talk: the worker gives the data, and hears that it is ready or refused. Then, for
each training, it gives an order and hears of its epochs, until it has ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.config import EpochRecord, Hyperparameters
from tuner.data.prepare import PreparedData
from tuner.devices import CpuCores, Gpu
from tuner.search.pruning import Verdict
from tuner.spec.definition import StudyDefinition
from tuner.spec.policy import SearchPolicy
from tuner.storage.records import TrialResult
from tuner.trial.job import TrialJob
from tuner.trial.watched import Watched


@dataclass(frozen=True, slots=True)
class Data:
    """What all trainings to come are on, by data hash, and the device."""

    prepared: Mapping[str, PreparedData]
    device: Gpu | CpuCores


@dataclass(frozen=True, slots=True)
class Ready:
    """The data is on the device; `given_up`: it is not, for the worker was told to stop."""

    given_up: bool = False


@dataclass(frozen=True, slots=True)
class Refused:
    """Why nothing can be trained, in one line. Of the `locks` of devices: nobody can use them."""

    message: str
    locks: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A job, without those whom it tells: they are on the other side."""

    study: str
    definition: StudyDefinition
    policy: SearchPolicy
    number: int
    hyperparameters: Hyperparameters
    device: Gpu | CpuCores
    seed: int | None
    seed_root: int | None
    study_key: str
    checkpoints: Path | None
    watched: Watched | None

    @staticmethod
    def of(job: TrialJob) -> Order:
        return Order(
            study=job.study,
            definition=job.definition,
            policy=job.policy,
            number=job.number,
            hyperparameters=job.hyperparameters,
            device=job.device,
            seed=job.seed,
            seed_root=job.seed_root,
            study_key=job.study_key,
            checkpoints=job.checkpoints,
            watched=job.watched,
        )


@dataclass(frozen=True, slots=True)
class EpochEnded:
    """`TrialJob.on_epoch`, told."""

    record: EpochRecord
    repeat: int


@dataclass(frozen=True, slots=True)
class Curve:
    """`TrialJob.on_curve`, told."""

    records: Sequence[EpochRecord]
    repeat: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The result, None of one that was interrupted, and the verdicts on its epochs."""

    result: TrialResult | None
    verdicts: Sequence[Verdict]
