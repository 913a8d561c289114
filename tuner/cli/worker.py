"""`tuner worker`: one more worker, on any machine that reaches the database."""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.afresh import go_on_afresh
from tuner.cli.device import ONE_DEVICE, own_device, own_gpu, seat_at
from tuner.cli.options import DataDir, Storage, data_folder, note, storage_url, working_folder
from tuner.errors import TERMINATED, TunerError, UsageError, first_line

if TYPE_CHECKING:
    from tuner.devices import CpuCores, Gpu
    from tuner.job import TrialRunner
    from tuner.study import OpenStudy
    from tuner.worker import StopFlag

PR_SET_PDEATHSIG = 1
SAME_SIGNAL_S = 1.0
ORPHAN_LOOK_S = 0.25
ORPHAN_GRACE_S = 3.25
"""For a worker without its supervisor to hand back what it runs."""

ORPHAN_WILL_S = 1.0
"""For handing back in its stead."""


def worker(
    study: Annotated[str, typer.Option(metavar="NAME[,NAME]", help="Studies to pull trials from.")],
    gpu: Annotated[
        str | None,
        typer.Option(metavar="INDEX|free", help="The GPU this worker owns; free: one that no other worker here has."),
    ] = None,
    cpu: Annotated[bool, typer.Option("--cpu", help="Run on the CPU.")] = False,
    cores: Annotated[str | None, typer.Option(metavar="0,1", help="With --cpu: the cores to own (all).")] = None,
    storage: Storage = None,
    data_dir: DataDir = None,
    task: Annotated[
        str | None, typer.Option(metavar="FILE", help="Task file, where the study's data is a CSV of your own.")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Make the runs that 'tuner verify' planned, not trials.")
    ] = False,
    supervised_by: Annotated[int | None, typer.Option(hidden=True)] = None,
    name: Annotated[str | None, typer.Option(hidden=True)] = None,
    pulse: Annotated[int | None, typer.Option(hidden=True)] = None,
    failures: Annotated[int, typer.Option(hidden=True)] = 0,
    kept_seat: Annotated[int | None, typer.Option("--seat", hidden=True)] = None,
) -> int:
    """Run trials of a study on one device until its budget is filled."""

    def make_runner(studies: Sequence[OpenStudy], device: Gpu | CpuCores) -> TrialRunner:
        from tuner.runs import run_job
        from tuner.worker_data import load_data

        return functools.partial(run_job, data=load_data(studies, device, data_dir=data_folder(data_dir), task=task))

    orphan = Orphan(supervised_by) if supervised_by is not None else None
    if cpu == (gpu is not None):
        raise UsageError(ONE_DEVICE)
    seat = seat_at(gpu, kept=kept_seat) if gpu is not None else None
    device = own_gpu(seat.gpu) if seat is not None else own_device(gpu=None, cpu=True, cores=cores)
    from tuner.worker import FRESH_PROCESS, ContextLostError

    try:
        code = work(study, device, make_runner, storage=storage, name=name, verify=verify, pulse=pulse, orphan=orphan)
    except ContextLostError as lost:
        if orphan is None:
            go_on_afresh(lost, device, seat, failures=failures)
        code = FRESH_PROCESS
    if orphan is not None:
        # Everything is stored and closed; taking torch apart would only keep the supervisor waiting.
        logging.shutdown()
        os._exit(code)
    return code


def work(
    study: str,
    device: Gpu | CpuCores,
    make_runner: Callable[[Sequence[OpenStudy], Gpu | CpuCores], TrialRunner],
    *,
    storage: str | None,
    name: str | None,
    verify: bool = False,
    pulse: int | None = None,
    orphan: Orphan | None = None,
) -> int:
    """Pull trials of the studies that `study` lists and run them by what `make_runner` makes; the exit code.

    With `verify` the planned verification runs of those studies instead. `pulse` is the file descriptor for life
    signs; `orphan` is there in a supervised worker, which waits for a database that is down at the start: it was there
    a moment ago.

    Raises:
        ContextLostError: the device needs a fresh process, and nobody told this one to stop.
    """
    from tuner.devices import exclusive
    from tuner.devices.lock import lock_folder
    from tuner.devices.neighbours import signed_in
    from tuner.storage import absolute, open_database, parse_url
    from tuner.storage.place import cautions
    from tuner.storage.retry import PATIENCE_S, persistently
    from tuner.study import open_study
    from tuner.verifier import Verifier
    from tuner.worker import ContextLostError, Places, Pulse, StopFlag, Worker

    stop, beat = StopFlag(), Pulse(pulse)
    patience_s = PATIENCE_S if orphan is not None else 0.0

    def waiting() -> bool:
        beat.phase("waiting")
        return stop.is_set()

    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s", force=True
    )
    address = absolute(parse_url(storage_url(storage)))
    database = open_database(address, create=False, patience_s=patience_s)
    try:
        opened = [functools.partial(open_study, database, each.strip()) for each in study.split(",")]
        studies = [persistently(each, "a study", patience_s=patience_s) for each in opened]
        if orphan is None:  # on its own: otherwise the launch has said it
            others = {row.worker for each in studies for row in each.roster.working()}
            for line in cautions(database.address, workers=len(others) + 1):
                note(line)
        received = _set_on_signals(stop)
        # Reading the data uses the device too: not beside somebody's timed training.
        with exclusive(device.lock_names, give_up=waiting) as held:
            runner = _made(make_runner, studies, device) if held else None
        if runner is not None:
            kind, places = Verifier if verify else Worker, Places(working_folder(address))
            worker = kind(studies, device, runner, name=name, stop=stop, pulse=beat, places=places)
            if orphan is not None:
                orphan.will = worker.hand_back
            with signed_in(lock_folder()):
                worker.run()
    except ContextLostError as error:
        logging.getLogger(__name__).warning("this process can use its device no more (%s)", error)
        for number in (signal.SIGTERM, signal.SIGINT):  # nothing is claimed: from here on a signal ends this process
            signal.signal(number, signal.SIG_DFL)
        if not received:
            raise
    finally:
        database.close()
    return 128 + received[0] if received else 0


def _made(
    make_runner: Callable[[Sequence[OpenStudy], Gpu | CpuCores], TrialRunner],
    studies: Sequence[OpenStudy],
    device: Gpu | CpuCores,
) -> TrialRunner:
    """Raises TunerError when the device does not even take the data."""
    from tuner.worker import lost_context

    try:
        return make_runner(studies, device)
    except Exception as error:
        if not lost_context(error):
            raise
        raise TunerError(f"{device.label} cannot be used: {first_line(error)}; see 'tuner doctor'") from error


def _set_on_signals(stop: StopFlag) -> list[int]:
    """First SIGTERM or SIGINT: stop after this step and hand back. A second one ends the process at once.

    What follows within `SAME_SIGNAL_S` is the first one still: the kernel says more than once that a supervisor with
    several threads has died.
    """
    received: list[int] = []
    first_at = 0.0

    def note(number: int, frame: FrameType | None) -> None:
        nonlocal first_at
        del frame
        if not received:
            first_at = time.monotonic()
            received.append(number)
            stop.set()
        elif time.monotonic() - first_at > SAME_SIGNAL_S:
            os._exit(128 + number)

    signal.signal(signal.SIGTERM, note)
    signal.signal(signal.SIGINT, note)
    return received


class Orphan:
    """Ends this process with its supervisor, however that dies: no worker is left behind.

    The kernel is asked for SIGTERM then, upon which the trial is handed back. A worker that cannot do so soon, in a
    long step or waiting for a database, is ended by a thread, which first tries to hand back in its stead: `will`.
    One that was stopped goes on, since it has no session of its own (see `Supervisor`): SIGHUP, which the kernel sends
    it on that occasion, must not end it before.
    """

    def __init__(self, parent: int) -> None:
        self.will: Callable[[], None] = lambda: None
        if sys.platform != "linux":
            return
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died before we asked
            sys.exit(TERMINATED)
        threading.Thread(target=self._watch, args=(parent,), name="parent", daemon=True).start()

    def _watch(self, parent: int) -> None:
        while os.getppid() == parent:
            time.sleep(ORPHAN_LOOK_S)
        time.sleep(ORPHAN_GRACE_S)
        last = threading.Thread(target=self.will, name="will", daemon=True)
        last.start()
        last.join(ORPHAN_WILL_S)
        os._exit(TERMINATED)
