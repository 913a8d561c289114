"""A worker's trainer, as the worker has it: a process that is given jobs and tells how they go."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any

from tuner.data.prepare import PreparedData
from tuner.devices import CpuCores, Gpu, exclusive
from tuner.devices.lock import DeviceLockError, giving_up, logs_waiting
from tuner.display.text import signal_name
from tuner.files.environment import without_secrets
from tuner.storage.records import TrialResult
from tuner.trial.job import TrainerLostError, TrialJob
from tuner.worker.heartbeat import WAITING
from tuner.worker.trainer.messages import (
    Data,
    Ended,
    Ready,
    Refused,
    StopByte,
    Told,
    order_of,
)

MODULE = "tuner.worker.trainer.trainer_main"
LOOK_S = {Gpu: 0.02, CpuCores: 0.2}
"""How often the worker looks whether the training shall stop: a look takes of the cores' time."""
BEAT_S = 1.0
END_S = 10.0
"""For a process that was killed to be gone: a GPU's memory is given back first."""


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
            # From the main thread: the kernel ends it with the thread that started it.
            self._process = subprocess.Popen(
                words,
                env=without_secrets(os.environ),
                stdin=subprocess.DEVNULL,
                pass_fds=passed,
            )
        finally:
            theirs.close()
            os.close(shared)

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

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
            self._line.send(Data(prepared, self._device))
            ready = self._heard(_Regularly(give_up, on_phase))
        assert isinstance(ready, Ready), "nothing else is said before"
        self._stop.clear()
        return not ready.given_up

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
        self._process.kill()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)

    def _heard(self, give_up: Callable[[], bool]) -> Any:
        """What the process says next; it is told to stop once `give_up` says so."""
        while not self._line.poll(LOOK_S[type(self._device)]):
            if give_up():
                self._stop.set()
        said = self._line.recv()
        if isinstance(said, Refused):
            raise (DeviceLockError if said.locks else TrainerLostError)(said.message)
        return said

    @contextlib.contextmanager
    def _talking(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, ConnectionError):
            raise TrainerLostError(self._how_it_ended()) from None

    def _how_it_ended(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        code = self._process.returncode
        what = f"the process that trains on {self._device.label}"
        if code is None:
            return f"{what} says nothing more"
        if code >= 0:
            return f"{what} ended with exit code {code}; what it said last stands above"
        killed = code == -signal.SIGKILL
        why = "; the kernel does that where the machine's memory is full" if killed else ""
        return f"{what} was ended by {signal_name(-code)}{why}"
