"""The process that trains for a worker on a GPU, or code of the user's own: it knows torch and the
device, no database. The worker gives it jobs and hears how they go.
"""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import functools
import gc
import mmap
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any

from tuner.config import EpochRecord, StopReason
from tuner.data.prepare import PreparedData
from tuner.devices import CpuCores, Gpu
from tuner.devices.gpu import nvml
from tuner.devices.lock import DeviceLockError, lock_folder, signed_in
from tuner.devices.watch import stops
from tuner.display.terminal import log_to_stderr
from tuner.errors import DataGoneError, TunerError, first_line
from tuner.files.child import ChildProcess, end_with
from tuner.search.pruning import Verdict
from tuner.spec.membership import seed_of_trial
from tuner.storage.records import TrialResult
from tuner.trial.job import TrainerLostError, TrialJob, TrialRunner, lost_context, survived, turn_on
from tuner.worker.process import IDLE, STARTING, TRAINER, WAITING, Heartbeat

if TYPE_CHECKING:
    from tuner.data.windows import DeviceData

GiveUp = Callable[[], bool]
Prepare = Callable[[], Mapping[str, PreparedData]]
"""Gives the data, by its hash."""
OnPhase = Callable[[str], None]
Load = Callable[[Gpu | CpuCores, Prepare, GiveUp, OnPhase], TrialRunner | None]
"""What trains on the data: None when it was to give up before that was on the device.

Raises TunerError where the device cannot be used."""


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


_ENTRY = "from tuner.worker.trainer import main; main()"
"""Of a process whose objects go by the names that they have here, unlike those of `-m`."""
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
        command: what starts it, if not this; descriptors and a process id follow.
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
            *(command or (sys.executable, "-c", _ENTRY)),
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

    def load(self, prepare: Prepare, give_up: GiveUp, on_phase: OnPhase) -> TrainerProcess | None:
        """This, with the data on the device; None when `give_up` said so while another had that.

        Raises:
            DeviceLockError: devices cannot be locked.
            TrainerLostError: the device does not take it, or the process has ended.
        """
        turn: AbstractContextManager[bool] = contextlib.nullcontext(enter_result=True)
        if isinstance(self._device, CpuCores):  # to read it uses the device too
            turn = turn_on(self._device, on_phase, give_up)
        with turn as mine:
            if not mine:
                return None
            prepared = prepare()
        with self._talking():
            self._line.send((prepared, self._device))
            given_up: bool = self._heard(_Regularly(give_up, on_phase))
        self._stop.clear()
        return None if given_up else self

    def __call__(self, job: TrialJob) -> TrialResult | None:
        """The job's result; None when it was interrupted. See `TrialRunner`.

        Raises:
            DeviceLockError: devices cannot be locked.
            TrainerLostError: it can train nothing more, or the process has ended.
            DataGoneError: the data is there no more.
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
                            if job.watched is not None:  # of the same epochs
                                job.watched.verdicts = list(verdicts)
                            return result
            finally:
                self._stop.clear()

    def close(self) -> None:
        """End it, at once: whatever is to be kept is stored."""
        self._line.close()
        self._child.end()

    def _heard(self, give_up: Callable[[], bool]) -> Any:
        """What the process says next; it is told to stop once `give_up` says so."""
        heard = False
        while not heard:
            heard = self._line.poll(LOOK_S[type(self._device)])
            if give_up():  # also of one that tells an epoch within each look
                self._stop.set()
        said = self._line.recv()
        if isinstance(said, DeviceLockError | TrainerLostError | DataGoneError):
            raise said
        return said

    @contextlib.contextmanager
    def _talking(self) -> Iterator[None]:
        try:
            yield
        except (EOFError, ConnectionError):
            raise TrainerLostError(self._child.how_it_ended()) from None


# What trains on a device, once the data is there. It imports torch.


def on_device(
    prepared: Mapping[str, PreparedData], device: Gpu | CpuCores
) -> dict[str, DeviceData]:
    """All of it, by data hash; a CPU's trainings take as many threads as they have cores."""
    from tuner.data.windows import to_device  # torch

    if isinstance(device, CpuCores):
        import torch

        torch.set_num_threads(len(device.devices[0].cores))
    target = "cpu" if isinstance(device, CpuCores) else "cuda:0"
    return {name: to_device(each, target) for name, each in prepared.items()}


def load_onto(
    device: Gpu | CpuCores, prepare: Prepare, give_up: GiveUp, on_phase: OnPhase
) -> TrialRunner | None:
    """What trains on the data, once that is on the device; None when it was told to give up.

    `prepare` gives the data by data hash. What reads it uses the device too, where that is a CPU:
    it is not done beside somebody's timed training.

    Raises:
        TunerError: the device does not even take the data.
        DeviceLockError: devices cannot be locked.
    """
    with turn_on(device, on_phase, give_up) as held:
        return _runner(prepare(), device) if held else None


def _runner(prepared: Mapping[str, PreparedData], device: Gpu | CpuCores) -> TrialRunner:
    try:
        data = on_device(prepared, device)
    except Exception as error:
        if not lost_context(error):
            raise
        raise TunerError(
            f"{device.label} cannot be used: {first_line(error)}; see 'tuner doctor'"
        ) from error
    from tuner.trial.seeds_and_reruns import run_job

    run = functools.partial(run_job, data=data)
    if len(device.devices) > 1 and data:
        from tuner.training.engines.ranks import Ranks

        ranks = Ranks(device, prepared)
        ranks.start()
        run = functools.partial(run, ranks=ranks)
    if not isinstance(device, Gpu):
        return run
    from tuner.training.engines.pool import EnginePool
    from tuner.trial.run import git_revision

    # On a CPU it would disturb a timing: git looks through the whole checkout, in seconds.
    threading.Thread(target=git_revision, name="revision", daemon=True).start()
    return functools.partial(run, engines=EnginePool())


# The trainer's own side: data onto the device, then one training after the other, as ordered.


def _trainings() -> Load:
    import tuner.trial.seeds_and_reruns  # noqa: F401 - torch

    return load_onto


def main(words: Sequence[str] = (), make_load: Callable[[], Load] = _trainings) -> None:
    """Serve the worker whose descriptors and process id `words` are, else those of this process.

    `make_load` imports what training needs, which takes seconds: the worker opens its database
    meanwhile.
    """
    line, stop, heartbeat, parent = (int(word) for word in words or sys.argv[1:])
    _ignore_signals_until_end_of(parent)
    stops().count()
    log_to_stderr()
    faulthandler.enable()  # a crash in a library says in the worker's log where it was
    beat = Heartbeat(None if heartbeat < 0 else heartbeat, source=TRAINER)
    beat.phase(STARTING)
    gc.disable()  # nobody searches all of torch for garbage, now or in the middle of a training
    load = make_load()
    gc.freeze()
    gc.enable()
    serve(Connection(line), StopByte(stop), beat, load)


def serve(line: Connection, stop: StopByte, heartbeat: Heartbeat, load: Load) -> None:
    """Until the worker hangs up, or nothing more can be trained."""
    with contextlib.suppress(EOFError, ConnectionError):  # it is gone, or wants no more
        try:
            with signed_in(lock_folder()), nvml():  # held open: each look would open it
                run_job = _loaded(line, stop, heartbeat, load)
                while run_job is not None:
                    heartbeat.phase(IDLE)
                    _train(line.recv(), line, stop, heartbeat, run_job)
        except (DeviceLockError, TrainerLostError, DataGoneError) as error:
            line.send(error)


def _loaded(
    line: Connection, stop: StopByte, heartbeat: Heartbeat, load: Load
) -> TrialRunner | None:
    try:
        prepared, device = line.recv()  # which maps what is too large to be sent
        run_job = load(device, lambda: prepared, stop.is_set, heartbeat.phase)
    except (DeviceLockError, DataGoneError, EOFError, ConnectionError):
        raise
    except Exception as error:
        raise TrainerLostError(str(error)) from error  # the worker is told, and says it
    line.send(run_job is None)
    return run_job


def _train(
    order: TrialJob, line: Connection, stop: StopByte, heartbeat: Heartbeat, run_job: TrialRunner
) -> None:
    heartbeat.new_trial()

    def tell(name: str, *given: Any, waits: bool = False) -> Any:
        line.send(Told(name, given, waits))
        return line.recv() if waits else None

    def on_epoch(record: EpochRecord, repeat: int) -> None:
        # On a CPU it is stored off the clock, which stands meanwhile.
        tell("on_epoch", record, repeat, waits=isinstance(order.device, CpuCores))
        heartbeat.epoch_ended(record.elapsed_s)

    def on_curve(records: Sequence[EpochRecord], repeat: int) -> None:
        tell("on_curve", records, repeat)
        heartbeat.clock_at(records[-1].elapsed_s if records else 0.0)

    def should_stop() -> StopReason | None:
        return StopReason.INTERRUPTED if stop.is_set() else None

    job = dataclasses.replace(
        order,
        on_epoch=on_epoch,
        on_curve=on_curve,
        on_phase=heartbeat.phase,
        on_wait=functools.partial(tell, "on_wait"),
        on_backend=functools.partial(tell, "on_backend", waits=True),
        should_stop=should_stop,
    )
    seed = seed_of_trial(job.number, root=job.seed_root) if job.seed is None else job.seed
    result = survived(run_job, job, seed=seed)
    line.send(Ended(result, () if job.watched is None else job.watched.verdicts))


def _ignore_signals_until_end_of(parent: int) -> None:
    """Ctrl-C reaches all processes of a terminal, and a shutdown all of a service: what becomes of
    the training is for the worker to say.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    end_with(parent, signal.SIGKILL)
