"""A worker from its order to its exit code: database, studies, device and data; then its loop."""

from __future__ import annotations

import contextlib
import functools
import logging
import platform
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.devices import CpuCores, Gpu
from tuner.devices.group import as_group
from tuner.devices.lock import DeviceLockError, lock_folder, signed_in
from tuner.devices.watch import stops
from tuner.display.terminal import log_to_stderr
from tuner.errors import DataGoneError, TunerError
from tuner.files.environment import nothing_collected
from tuner.storage.database import open_database
from tuner.storage.queue.device_leases import DeviceLeases
from tuner.storage.retry import RETRY_S
from tuner.storage.sqlite import cautions
from tuner.storage.url import absolute, parse_url
from tuner.study.code import require_trust, with_code
from tuner.study.data_file import data_of
from tuner.study.open import OpenStudy, devices_of_trials
from tuner.study.snapshot import opened_patiently
from tuner.trial.job import TrainerLostError, TrialRunner
from tuner.worker.device_lease import DeviceLease
from tuner.worker.loop import Worker, new_name
from tuner.worker.paths import Retry, WorkerPaths, working_folder
from tuner.worker.process import (
    MAX_RESTARTS,
    ContextLostError,
    Heartbeat,
    Orphan,
    StopFlag,
    end_on_signals,
    stop_on_signals,
)
from tuner.worker.trainer import GiveUp, OnPhase, Prepare, TrainerProcess, load_onto
from tuner.worker.trial_source import TrialSource, VerificationSource

# What trains for a worker: its own process, or one beside it.


class InThisProcess:
    """Trains in the worker's own process: on a CPU, what is no code of the user's."""

    lanes = 1

    def __init__(self, device: Gpu | CpuCores) -> None:
        self._device = device

    def load(self, prepare: Prepare, give_up: GiveUp, on_phase: OnPhase) -> TrialRunner | None:
        """What runs jobs, with the data on the device; None when `give_up` said so while another
        one had that.

        `prepare` gives the data by data hash; `on_phase` is told what is waited for.

        Raises:
            TunerError: the device does not take it.
            DeviceLockError: devices cannot be locked.
        """
        with nothing_collected():
            import tuner.trial.seeds_and_reruns  # noqa: F401 - torch
        return load_onto(self._device, prepare, give_up, on_phase)

    def close(self) -> None:
        """It ends with its process."""


Trainer = InThisProcess | TrainerProcess
"""Runs jobs with its data on its device. A worker has as many at a time as it has `lanes`: 2 where
one is made ready while one trains."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkOrder:
    """What one worker is to do."""

    studies: str
    """Names, or `group:NAME`, with commas."""
    storage: str
    verify: bool = False
    """The planned verification runs of the studies instead of trials."""
    name: str | None = None
    """The worker's; None: it gets one."""
    heartbeat: int | None = None
    """The file descriptor for life signs."""
    trust: bool = False
    trusted_code: Collection[str] = ()
    """SHA-256 of files that may run although only the database has them."""
    data_dir: Path | None = None
    task: str | None = None
    """The task file, where a study's data is a CSV."""


def work(
    order: WorkOrder,
    device: Gpu | CpuCores,
    trainer: Trainer,
    *,
    orphan: Orphan | None = None,
    note: Callable[[str], None] = _log.warning,
) -> int:
    """Pull trials of the studies and have `trainer` run them, then close it; the exit code.

    `orphan` is there in a supervised worker, which waits for a database that is down at the start:
    it was there a moment ago. One on its own says with `note` what to know.

    Raises:
        ContextLostError: the device needs a fresh process, and nobody told this one to stop.
        TrainerLostError: what trains has ended; what it trained is taken back.
        DataGoneError: the data is there no more; what it trained is handed back.
    """
    log_to_stderr()
    stop = StopFlag()
    received: list[int] = []
    retry_s = RETRY_S if orphan is not None else 0.0
    with contextlib.ExitStack() as closed:
        closed.callback(trainer.close)
        address = absolute(parse_url(order.storage))
        database = open_database(address, create=False, retry_s=retry_s)
        closed.callback(database.close)
        studies = opened_patiently(database, order.studies, retry_s=retry_s)
        device = as_group(device, devices_of_trials(studies))
        own_code = [require_trust(each, trust=order.trust) for each in studies]
        if orphan is None:  # on its own: otherwise the launch has said it
            for each in studies:  # before the device is waited for
                each.refuse_other_device(device.model)
            others = {row.worker for each in studies for row in each.roster.working()}
            for line in [*filter(None, own_code), *cautions(address, workers=len(others) + 1)]:
                note(line)
        studies = _with_code(order, studies)
        received = stop_on_signals(stop, supervised=orphan is not None)
        stops().count()
        try:
            _run(order, studies, device, trainer, stop, orphan)
        except ContextLostError as error:
            _log.warning("this process can use its device no more (%s)", error)
            end_on_signals()
            if not received:
                raise
    return 128 + received[0] if received else 0


def work_alone(
    order: WorkOrder,
    device: Gpu | CpuCores,
    trainer: Trainer,
    make_trainer: Callable[[], Trainer],
    *,
    note: Callable[[str], None],
) -> int:
    """The same of a worker without a supervisor: where the device's context is lost it goes on with
    another trainer.

    Raises:
        TunerError: the device is given up, as a supervisor would: so many trainers in a row had no
            result, but that they lost it, and each would take another trial and fail it.
    """
    failures = 0
    while True:
        try:
            return work(order, device, trainer, note=note)
        except ContextLostError as lost:
            failures = lost.failures(failures)
            if failures >= MAX_RESTARTS:
                raise TunerError(
                    f"{device.label} is left alone: {failures} processes in a row lost it with "
                    f"their first trial, the last to '{lost}'; check the device, and start the "
                    "worker again"
                ) from None
        trainer = make_trainer()


def _with_code(order: WorkOrder, studies: Sequence[OpenStudy]) -> list[OpenStudy]:
    return [with_code(each, trust=order.trust, trusted=order.trusted_code) for each in studies]


def _run(
    order: WorkOrder,
    studies: Sequence[OpenStudy],
    device: Gpu | CpuCores,
    trainer: Trainer,
    stop: StopFlag,
    orphan: Orphan | None,
) -> None:
    beat, name = Heartbeat(order.heartbeat), order.name or new_name()
    networks = [each for each in studies if each.definition.program is None]
    data = functools.partial(data_of, networks, data_dir=order.data_dir, task=order.task)
    leases = DeviceLeases(
        engine=studies[0].database.engine,
        keys=device.lease_keys,
        worker=name,
        host=platform.node()[:120],
    )
    lease = DeviceLease(leases, device.label, Retry(studies, name, stop, beat))
    own = any(each.definition.own_code for each in networks)  # the user's code sees no secret there
    several = networks and len(device.devices) > 1  # of which one may end that process
    if isinstance(device, CpuCores) and (own or several):
        trainer = TrainerProcess(device, order.heartbeat)
    with contextlib.closing(trainer), contextlib.closing(lease):
        with lease.taken(stop.is_set) as mine:
            run_trial = trainer.load(data, stop.is_set, beat.phase) if mine else None
        if run_trial is None:
            return
        _with_code(order, studies)  # its files may have been edited while the device was waited for
        paths = WorkerPaths(working_folder(studies[0].database.address))
        worker = Worker(
            studies,
            device,
            run_trial,
            source=VerificationSource if order.verify else TrialSource,
            name=name,
            stop=stop,
            heartbeat=beat,
            paths=paths,
            lanes=trainer.lanes,
            lease=lease,
        )
        if orphan is not None:
            orphan.will = worker.hand_back
        try:
            with signed_in(lock_folder()):
                worker.run()
        except (DeviceLockError, TrainerLostError, DataGoneError):
            worker.hand_back()
            raise
