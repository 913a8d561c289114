"""A worker's trainer, as the worker has it: a process that is given jobs and tells how they go."""

from __future__ import annotations

import contextlib
import dataclasses
import mmap
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from tuner.data.prepare import PreparedData
from tuner.devices import CpuCores, Gpu, exclusive
from tuner.devices.lock import DeviceLockError, giving_up, logs_waiting
from tuner.files.child import ChildProcess
from tuner.search.pruning import Verdict
from tuner.storage.records import TrialResult
from tuner.trial.job import TrainerLostError, TrialJob
from tuner.worker.heartbeat import WAITING

# What the two tell each other, through a pipe between them alone. The worker gives the data, by its
# hash, and the device; it hears whether that was given up, or as an error why nothing can be
# trained. Then, for each training, it gives an order and hears of its epochs, until it has ended.
# Only a backend that was measured is answered.


def order_of(job: TrialJob) -> TrialJob:
    """The job as one that tells nobody: those whom it told are on the other side."""
    told = ("on_epoch", "on_curve", "on_begun", "on_phase", "on_wait", "on_backend")
    nobody: dict[str, Any] = dict.fromkeys((*told, "should_stop"), _nobody)
    return dataclasses.replace(job, **nobody)


def _nobody(*_: object) -> None:
    """Unlike a lambda, it has a name by which another process finds it."""


@dataclass(frozen=True, slots=True)
class Told:
    """What `TrialJob.on_epoch` and its sisters are told, by the name of that.

    It `waits` for an answer: of a measured backend for the choice that counts, of an epoch on a CPU
    until the worker has stored it.
    """

    name: str
    given: tuple[Any, ...]
    waits: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """The result, None of one that was interrupted, and the verdicts on its epochs."""

    result: TrialResult | None
    verdicts: Sequence[Verdict]


# A flag that one process sets and another reads between two training steps: a byte they share.


class StopByte:
    """Reading it is reading memory: no call of the kernel, nothing that the clock would notice."""

    def __init__(self, descriptor: int) -> None:
        """Shares the byte of `descriptor`, a file of one byte, which stays the caller's."""
        self._shared = mmap.mmap(descriptor, 1)

    @staticmethod
    def file() -> int:
        """A descriptor of a new one that has no name, for the two to share."""
        with tempfile.TemporaryFile() as file:
            file.write(b"\0")
            file.flush()
            return os.dup(file.fileno())

    def set(self) -> None:
        self._shared[0] = 1

    def clear(self) -> None:
        self._shared[0] = 0

    def is_set(self) -> bool:
        return self._shared[0] != 0


# The worker's own side.


MODULE = "tuner.worker.trainer.trainer_main"
LOOK_S = {Gpu: 0.02, CpuCores: 0.2}
"""How often the worker looks whether the training shall stop: a look takes of the cores' time."""
BEAT_S = 1.0


@dataclass(slots=True)
class _Regularly:
    """Whether to give up, with a life sign of the worker that waits."""

    give_up: Callable[[], bool]
    on_phase: Callable[[str], None]
    _last: float = 0.0

    def __call__(self) -> bool:
        if time.monotonic() > self._last + BEAT_S:
            self._last = time.monotonic()
            self.on_phase(WAITING)
        return self.give_up()


class TrainerProcess:
    """Trains one job at a time in a process of its own, which is started at once.

    Args:
        device: all of its trainings run there. The environment says which GPU the process sees. On
            a CPU nothing is made ready beside a training: the cores are all there is to think with.
        heartbeat: the descriptor for its life signs, if anybody reads them.
        command: what starts it, if not this module; descriptors and a process id follow.
    """

    def __init__(
        self, device: Gpu | CpuCores, heartbeat: int | None, command: Sequence[str] = ()
    ) -> None:
        self._device = device
        self.lanes = 1 if isinstance(device, CpuCores) else 2
        ours, theirs = Pipe()
        self._line: Connection = ours
        shared = StopByte.file()
        self._stop = StopByte(shared)
        beating = -1 if heartbeat is None else heartbeat
        words = [
            *(command or (sys.executable, "-m", MODULE)),
            *map(str, (theirs.fileno(), shared, beating, os.getpid())),
        ]
        passed = [theirs.fileno(), shared, *([] if heartbeat is None else [heartbeat])]
        try:
            # In the worker's group: who kills that kills both.
            what = f"the process that trains on {device.label}"
            self._child = ChildProcess(what, words, passed=passed, group=False)
        finally:
            theirs.close()
            os.close(shared)

    def load(
        self,
        prepare: Callable[[], Mapping[str, PreparedData]],
        give_up: Callable[[], bool],
        on_phase: Callable[[str], None],
    ) -> bool:
        """Have the data on the device; False when `give_up` said so while another one had that.

        Raises:
            DeviceLockError: devices cannot be locked.
            TrainerLostError: the device does not take it, or the process has ended.
        """
        with contextlib.ExitStack() as alone:
            if isinstance(self._device, CpuCores):  # to read it uses the device too
                gives_up = giving_up(on_phase, give_up)
                waiting = logs_waiting(self._device.label)
                mine = exclusive(self._device.lock_names, give_up=gives_up, waiting=waiting)
                if not alone.enter_context(mine):
                    return False
            prepared = prepare()
        with self._talking():
            self._line.send((prepared, self._device))
            given_up: bool = self._heard(_Regularly(give_up, on_phase))
        self._stop.clear()
        return not given_up

    def __call__(self, job: TrialJob) -> TrialResult | None:
        """The job's result; None when it was interrupted. See `TrialRunner`.

        Raises:
            DeviceLockError: devices cannot be locked.
            TrainerLostError: it can train nothing more, or the process has ended.
        """
        stopping = _Regularly(lambda: job.should_stop() is not None, job.on_phase)
        with self._talking():
            self._line.send(order_of(job))
            job.on_begun()
            try:
                while True:
                    match self._heard(stopping):
                        case Told(name, given, waits):
                            answer = getattr(job, name)(*given)
                            if waits:
                                self._line.send(answer)
                        case Ended(result, verdicts):
                            if job.watched is not None:
                                job.watched.take_over(verdicts)
                            return result
            finally:
                self._stop.clear()

    def close(self) -> None:
        """End it, at once: whatever is to be kept is stored."""
        self._line.close()
        self._child.end()

    def _heard(self, give_up: Callable[[], bool]) -> Any:
        """What the process says next; it is told to stop once `give_up` says so."""
        while not self._line.poll(LOOK_S[type(self._device)]):
            if give_up():
                self._stop.set()
        said = self._line.recv()
        if isinstance(said, DeviceLockError | TrainerLostError):
            raise said
        return said

    @contextlib.contextmanager
    def _talking(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, ConnectionError):
            raise TrainerLostError(self._child.how_it_ended()) from None
