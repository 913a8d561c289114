"""`python -m tuner.worker.trainer.trainer_main`: what `TrainerProcess` starts."""

from __future__ import annotations

import contextlib
import dataclasses
import faulthandler
import functools
import gc
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from multiprocessing.connection import Connection
from typing import Any

from tuner.config import EpochRecord, StopReason
from tuner.data.prepare import PreparedData
from tuner.devices import CpuCores, Gpu
from tuner.devices.gpu import nvml
from tuner.devices.lock import DeviceLockError, lock_folder, signed_in
from tuner.devices.watch import stops
from tuner.display.terminal import log_to_stderr
from tuner.files.child import end_with
from tuner.spec.membership import seed_of_trial
from tuner.trial.job import TrainerLostError, TrialJob, TrialRunner, survived
from tuner.worker.heartbeat import IDLE, STARTING, TRAINER, Heartbeat
from tuner.worker.trainer.trainer_process import Ended, StopByte, Told

# The trainer's own side: data onto the device, then one training after the other, as ordered.


GiveUp = Callable[[], bool]
Prepare = Callable[[], Mapping[str, PreparedData]]
Load = Callable[[Gpu | CpuCores, Prepare, GiveUp, Callable[[str], None]], TrialRunner | None]
"""What trains on the data: None when it was to give up before that was on the device.

Raises TunerError where the device cannot be used."""


def main(words: Sequence[str], make_load: Callable[[], Load]) -> None:
    """Serve the worker whose descriptors and process id `words` are.

    `make_load` imports what training needs, which takes seconds: the worker opens its database
    meanwhile.
    """
    line, stop, heartbeat, parent = (int(word) for word in words)
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
        except (DeviceLockError, TrainerLostError) as error:
            line.send(error)


def _loaded(
    line: Connection, stop: StopByte, heartbeat: Heartbeat, load: Load
) -> TrialRunner | None:
    prepared, device = line.recv()
    try:
        run_job = load(device, lambda: prepared, stop.is_set, heartbeat.phase)
    except DeviceLockError:
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


def _trainings() -> Load:
    from tuner.worker.trainer.on_device import load_onto  # torch

    return load_onto


if __name__ == "__main__":
    main(sys.argv[1:], _trainings)
