"""What the workers of a launch are started with, and their work from the first to the last."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.devices import CpuCores, Gpu
from tuner.files.environment import DATA_VARIABLE, STORAGE_VARIABLE
from tuner.launch.background import compiled_in_background, order_for
from tuner.launch.early import EarlyWorkers, no_early_workers
from tuner.launch.outcome import Outcome
from tuner.launch.progress import Progress
from tuner.launch.stopping import StopRequests
from tuner.launch.supervisor import WORKER_COMMAND, Supervisor
from tuner.launch.work import Work
from tuner.storage.url import DatabaseUrl
from tuner.study.open import OpenStudy
from tuner.worker.paths import WorkerPaths, deliver, working_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class Crew:
    """What workers are started with, whatever they work at."""

    devices: Sequence[Gpu | CpuCores]
    task: str
    data_dir: Path | None
    timeout_s: float | None
    hang_limit_s: float | None = None
    options: Sequence[str] = ()
    """More for the command line of each."""

    def early(self, address: DatabaseUrl) -> EarlyWorkers:
        """The first worker of each GPU, started as soon as its context is entered; it hears what to
        work at in `work`. None on a CPU, whose cores may be timing what others train.
        """
        return EarlyWorkers(
            devices=[device for device in self.devices if isinstance(device, Gpu)],
            command=WORKER_COMMAND,
            options=self._worker_options(),
            environment=self._environment(address),
            log_folder=_logs(address),
        )

    def work(
        self,
        queues: Sequence[Work],
        studies: Sequence[OpenStudy],
        progress: Progress,
        stop: StopRequests,
        early: EarlyWorkers | None = None,
    ) -> Outcome:
        """Have workers run until the queues of these studies are empty."""
        address = studies[0].database.address
        environment = self._environment(address)
        supervisor = Supervisor(
            studies=queues,
            devices=self.devices,
            worker_options=self._worker_options(),
            environment=environment,
            log_folder=_logs(address),
            hang_limit_s=self.hang_limit_s,
            deliver=functools.partial(deliver, studies, WorkerPaths(working_folder(address))),
            stop=stop,
            early=early or no_early_workers(),
        )
        order = order_for(
            [each.definition for each in studies],
            self.devices,
            task=self.task,
            data_dir=self.data_dir,
            environment=environment,
        )
        log = _logs(address) / "kernels.log"
        with (
            progress.watching(studies) as tick,
            compiled_in_background(order, environment, log, progress.note) as look,
        ):
            return supervisor.run(lambda: _both(tick, look), timeout_s=self.timeout_s)

    def _worker_options(self) -> list[str]:
        options = [*self.options, "--task", self.task]
        if self.data_dir is not None:
            options += ["--data-dir", str(self.data_dir.absolute())]
        return options

    def _environment(self, address: DatabaseUrl) -> dict[str, str]:
        environment = {**os.environ, STORAGE_VARIABLE: address.full()}
        if self.data_dir is None:  # as here, where nobody asked the environment
            environment.pop(DATA_VARIABLE, None)
        return environment


def _logs(address: DatabaseUrl) -> Path:
    return working_folder(address) / "logs"


def _both(first: Callable[[], None], then: Callable[[], None]) -> None:
    first()
    then()
