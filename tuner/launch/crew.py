"""What the workers of a launch are started with, and their work from the first to the last."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.data.sources import told_to_others
from tuner.data.task import task_file
from tuner.devices import CpuCores, Gpu
from tuner.devices.group import as_group, grouped, refuse_placed
from tuner.devices.lock import check_folder
from tuner.files.environment import DATA_VARIABLE, STORAGE_VARIABLE
from tuner.launch.background import compiled_in_background, order_for
from tuner.launch.child import EarlyWorkers
from tuner.launch.engines.placement import Engine, PlacedWorkers, WorkerCommand, worker_options
from tuner.launch.request import Notes, Outcome, Progress, Quiet, StopRequests
from tuner.launch.supervisor import WORKER_COMMAND, Supervisor
from tuner.settings import changes
from tuner.spec.policy import SearchPolicy
from tuner.storage.database import initialisation_lock, open_database
from tuner.storage.queue.leased_queue import Queue
from tuner.storage.retry import RETRY_S, in_one_sentence
from tuner.storage.url import DatabaseUrl, absolute, parse_url
from tuner.study.code import require_trust, with_code
from tuner.study.open import OpenStudy, devices_of_trials
from tuner.study.own_file import OwnFile, programs_of
from tuner.study.relaunch import share_launched_hours
from tuner.study.snapshot import opened_patiently
from tuner.verdict.verified import limits_of, verifications_of
from tuner.worker.paths import WorkerPaths, deliver, working_folder

if TYPE_CHECKING:
    from tuner.worker.session import WorkOrder


def deadline(timeout_s: float | None) -> float | None:
    """When work that is given so long from now is to stop; None: not before it is done."""
    return None if timeout_s is None else time.monotonic() + timeout_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """What workers are started with, whatever they work at."""

    devices: Sequence[Gpu | CpuCores]
    """Of this host; none where an engine places them."""
    task: str | None
    """Its name or file; None: studies on a CSV are not meant."""
    data_dir: Path | None
    deadline: float | None
    """When work is to stop, by `time.monotonic()`: what came before it counts."""
    hang_limit_s: float | None = None
    trusted_code: Sequence[str] = ()
    """Hashes of files that may run though only the database has them here."""
    verify: bool = False
    """They make verification runs, not trials."""
    engine: Engine | None = None
    """What places them elsewhere."""

    def early(self, address: DatabaseUrl, together: int = 1) -> EarlyWorkers:
        """The first worker of each GPU, started as soon as its context is entered; it hears what to
        work at in `work`. None on a CPU, whose cores may be timing what others train. So many
        devices are `together` for one trial.
        """
        gpus = [device for device in self.devices if isinstance(device, Gpu)]
        return EarlyWorkers(
            devices=grouped(gpus, together),
            command=WORKER_COMMAND,
            options=self._worker_options(),
            environment=self._environment(address),
            log_folder=_logs(address),
        )

    def work(
        self,
        studies: Sequence[OpenStudy],
        progress: Progress,
        stop: StopRequests,
        early: EarlyWorkers | None = None,
    ) -> Outcome:
        """Have workers run until the queues of these studies are empty; all their verification
        runs, which are interleaved, are in one.
        """
        address = studies[0].database.address
        devices = self.devices_for(studies)
        queues: Sequence[Queue[Any]] = [each.ledger for each in studies]
        if self.verify:
            queues = [verifications_of(studies)]
        if self.engine is not None:
            placed = PlacedWorkers(
                queues=queues,
                engine=self.engine,
                command=self.command(self.engine, studies),
                stop=stop,
                note=progress.note,
            )
            with progress.watching(studies) as tick:
                return placed.run(tick, timeout_s=self._left_s())
        idle = len(self.devices) - sum(len(each.devices) for each in devices)
        if idle > 0:
            progress.note(
                f"{idle} of {len(self.devices)} devices stay idle: a trial takes "
                f"{devices_of_trials(studies)} at a time"
            )
        environment, early = self._environment(address), early or EarlyWorkers()
        early.keep(devices)
        supervisor = Supervisor(
            studies=studies,
            queues=queues,
            devices=devices,
            worker_options=self._worker_options(),
            environment=environment,
            log_folder=_logs(address),
            hang_limit_s=self.hang_limit_s,
            deliver=functools.partial(deliver, studies, WorkerPaths(working_folder(address))),
            stop=stop,
            early=early,
        )
        order = order_for(
            [each.definition for each in studies],
            devices,
            task=self.task,
            data_dir=self.data_dir,
            environment=environment,
        )
        log = _logs(address) / "kernels.log"
        with (
            progress.watching(studies) as tick,
            compiled_in_background(order, environment, log, progress.note) as look,
        ):
            return supervisor.run(lambda: _both(tick, look), timeout_s=self._left_s())

    def devices_for(self, studies: Sequence[OpenStudy]) -> Sequence[Gpu | CpuCores]:
        """Those of this host, so many together as a trial of these studies takes.

        Raises:
            UsageError: there are fewer, the studies take different numbers, or an engine places the
                workers.
        """
        together = devices_of_trials(studies)
        if self.engine is not None:
            refuse_placed(self.engine.label, together)
            return ()
        return grouped(self.devices, together)

    def _left_s(self) -> float | None:
        return None if self.deadline is None else max(0.0, self.deadline - time.monotonic())

    def in_words(self, studies: Sequence[OpenStudy]) -> str | Mapping[str, str]:
        """What the engine would be told to place workers of these studies."""
        assert self.engine is not None, "nothing is printed of workers on this host"
        return self.engine.in_words(self.command(self.engine, studies))

    def command(self, engine: Engine, studies: Sequence[OpenStudy]) -> WorkerCommand:
        """What the workers of these studies are told that `engine` places.

        Raises:
            UsageError: a trial of theirs takes several devices.
        """
        refuse_placed(engine.label, devices_of_trials(studies))
        return WorkerCommand(
            studies=",".join(each.name for each in studies),
            address=studies[0].database.address,
            cores=engine.cores,
            verify=self.verify,
            task=self._task_to_name(studies),
            data_dir=told_to_others(self.data_dir) if self.data_dir is not None else None,
            hang_limit_s=self.hang_limit_s,
            trusted_code=(*_own_code(studies), *programs_of(each.definition for each in studies)),
        )

    def _task_to_name(self, studies: Sequence[OpenStudy]) -> Path | None:
        """The task file, where workers elsewhere need it: with a place for the data, or without a
        CSV, what the study says of its task is enough.
        """
        on_csv = any(each.definition.task["source"]["kind"] == "csv" for each in studies)
        if self.task is None or self.data_dir is not None or not on_csv:
            return None
        return task_file(self.task)

    def _worker_options(self) -> list[str]:
        data_dir = None if self.data_dir is None else told_to_others(self.data_dir)
        return worker_options(self.verify, self.task, data_dir, self.trusted_code)

    def _environment(self, address: DatabaseUrl) -> dict[str, str]:
        environment = {**os.environ, STORAGE_VARIABLE: address.full()}
        if self.data_dir is None:  # as here, where nobody asked the environment
            environment.pop(DATA_VARIABLE, None)
        return environment


def _own_code(studies: Sequence[OpenStudy]) -> tuple[str, ...]:
    """The hashes of users' own files that these studies run, each once."""
    files = [own for each in studies for own in OwnFile.all_of(each.definition)]
    return tuple(dict.fromkeys(each.sha256 for each in files))


def _logs(address: DatabaseUrl) -> Path:
    return working_folder(address) / "logs"


def _both(first: Callable[[], None], then: Callable[[], None]) -> None:
    first()
    then()


# `--max-gpu-hours`: changing the limit, and whether it ended the work.


def change_gpu_hours(studies: Sequence[OpenStudy], said: SearchPolicy, notes: Notes) -> None:
    """Give these studies the limit that was said, before anything of them is gone on with."""
    with initialisation_lock(studies[0].database.address):  # a launch may be changing it, too
        before = [each.policy() for each in studies]
        lines = share_launched_hours(studies, said.said())
        after = [each.policy() for each in studies]
    for line in lines:
        notes.note(line)
    for each, was, now in zip(studies, before, after, strict=True):
        if now.max_gpu_s != was.max_gpu_s:
            notes.note(f"{each.name} changes from {changes(was, now)[0]}")


def trials_unpaid(studies: Sequence[OpenStudy]) -> bool:
    """Whether a limit keeps trials of these studies from beginning."""
    return any(each.ledger.counts().lacks_hours for each in studies)


def runs_unpaid(studies: Sequence[OpenStudy]) -> bool:
    """Whether it keeps verification runs from beginning that are planned."""
    return verifications_of(studies).counts().lacks_hours


def note_spent(studies: Sequence[OpenStudy], notes: Notes) -> None:
    """Say of the limits that are spent what they were, and what to give."""
    for hours in dict.fromkeys(limits_of(studies).values()):
        with hours.engine.connect() as connection:
            over = hours.is_over(connection)
        if over:
            notes.note(
                f"the {hours.seconds / 3600:g} device hours of {', '.join(hours.names)} are spent "
                f"({hours.spent_s() / 3600:.3g}; what is left pays for no more training); the same "
                "command with a larger --max-gpu-hours goes on"
            )


# One worker of a launch elsewhere, kept alive on its own device: started again when it dies,
# killed when it hangs.


def keep(
    asked: WorkOrder,
    device: Gpu | CpuCores,
    *,
    hang_limit_s: float | None,
    stop: StopRequests,
    note: Callable[[str], None],
) -> Outcome:
    """Have one worker after another work on `device` until nothing is left to do.

    `stop` ends it before. A database that is down at the start is waited for.

    Raises:
        UsageError: a study that is not there, is of another device model, or runs code that nobody
            trusts here.
        StorageError: a database that cannot be used.
        TunerError: the worker could not be kept alive.
    """
    address = absolute(parse_url(asked.storage))
    check_folder()
    opened_there = open_database(address, create=False, retry_s=RETRY_S)
    with in_one_sentence(), closing(opened_there) as database:
        opened = opened_patiently(database, asked.studies, retry_s=RETRY_S)
        device = as_group(device, devices_of_trials(opened))
        for each in opened:
            each.refuse_other_device(device.model)
            if (line := require_trust(each, trust=asked.trust)) is not None:
                note(line)
            with_code(each, trust=asked.trust, trusted=asked.trusted_code)
        crew = Crew(
            devices=(device,),
            task=asked.task,
            data_dir=asked.data_dir,
            deadline=None,
            hang_limit_s=hang_limit_s,
            verify=asked.verify,
            trusted_code=(*asked.trusted_code, *programs_of(each.definition for each in opened)),
        )
        deliver(opened, WorkerPaths(working_folder(address)))
        return crew.work(opened, Quiet(note), stop)
