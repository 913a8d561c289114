"""`tuner worker`: one more worker, on any machine that reaches the database."""

from __future__ import annotations

import functools
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tuner.cli.command import option, switch, takes
from tuner.cli.device import ONE_DEVICE, assignment_at, own_device, own_gpu
from tuner.cli.options import (
    Cpu,
    DataDir,
    HangLimit,
    Storage,
    Trust,
    data_folder,
    named_as,
    storage_url,
    studies,
)
from tuner.cli.output import note
from tuner.errors import UsageError
from tuner.settings import duration_s

if TYPE_CHECKING:
    from tuner.devices import CpuCores, Gpu
    from tuner.worker.session import Trainer, WorkOrder


STUDIES_FOLLOW = "-"
"""In place of their names, to a supervised worker: they come on standard input."""
PREDECESSOR_S = 90.0
"""So long a worker that was placed waits for one before it to hand back what it ran, and to go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """The options of `tuner worker`; the hidden ones are for its supervisor."""

    study: str = studies(default=...)
    gpu: str | None = option(
        "INDEX|free",
        "The GPU this worker owns (0,1: both, where a trial takes two); free: one that no other "
        "worker here has.",
    )
    cpu: Cpu = False
    cores: str | None = option(
        "0,1|free:N",
        "With --cpu: the cores to own (all); free:N: so many that no other worker has.",
    )
    keep_alive: bool = switch("Start the worker again when it dies or hangs, as a launch does.")
    hang_limit: HangLimit = None
    storage: Storage = None
    data_dir: DataDir = None
    task: str | None = option(
        "FILE", "Task file of a study on your own CSV, where --data-dir is not enough."
    )
    verify: bool = switch("Make the runs that 'tuner verify' planned, not trials.")
    trust: Trust = False
    trust_code: str | None = option(
        "SHA256[,SHA256]",
        "Let code run that only the database names, by its hash ('tuner study code').",
    )
    supervised_by: int | None = option(hidden=True)
    name: str | None = option(hidden=True)
    heartbeat: int | None = option(hidden=True)


@takes(WorkerOptions)
def worker(options: WorkerOptions) -> int:
    """Run trials of a study on one device until its budget is filled."""
    from tuner.worker.process import FRESH_PROCESS, ContextLostError, Orphan, end_at_once

    orphan = Orphan(options.supervised_by) if options.supervised_by is not None else None
    if options.cpu == (options.gpu is not None):
        raise UsageError(ONE_DEVICE)
    patience_s = PREDECESSOR_S if options.keep_alive else 0.0
    device: Gpu | CpuCores
    if options.gpu is not None:
        device = own_gpu(assignment_at(options.gpu, patience_s=patience_s).gpu)
    else:
        device = own_device(gpu=None, cpu=True, cores=options.cores, patience_s=patience_s)
    make_trainer = functools.partial(_trainer, device, options.heartbeat)
    trainer = None if options.keep_alive else make_trainer()
    from tuner.worker.session import (  # takes a second, in which torch is imported
        WorkOrder,
        work,
        work_alone,
    )

    own = {
        "studies": options.study if orphan is None else _named(options.study),
        "storage": storage_url(options.storage),
        "trusted_code": sorted(_hashes(options.trust_code)),
        "data_dir": data_folder(options.data_dir),
    }
    order = WorkOrder(**named_as(options, WorkOrder) | own)
    if trainer is None:
        return _kept(order, device, options.hang_limit)
    if orphan is None:
        return work_alone(order, device, trainer, make_trainer, note=note)
    try:
        code = work(order, device, trainer, orphan=orphan, note=note)
    except ContextLostError:
        code = FRESH_PROCESS
    return end_at_once(code)


def _kept(order: WorkOrder, device: Gpu | CpuCores, hang_limit: str | None) -> int:
    """The exit code of a worker that is kept alive."""
    from tuner.cli.foreground import EXIT_CODES, stopped_by_signals
    from tuner.display.terminal import log_to_stderr
    from tuner.launch import StopRequests
    from tuner.launch.crew import keep

    log_to_stderr()
    stop, limit_s = StopRequests(), duration_s(hang_limit, "--hang-limit")
    with stopped_by_signals(stop):
        ended = keep(order, device, hang_limit_s=limit_s, stop=stop, note=note)
    return EXIT_CODES.get(ended, 0)


def _named(studies: str) -> str:
    """The names as given, or those that a supervisor gives who did not know them at the start."""
    if studies != STUDIES_FOLLOW:
        return studies
    if not (line := sys.stdin.readline().strip()):
        raise UsageError("--study -: standard input ended before it named a study")
    return line


def _hashes(named: str | None) -> tuple[str, ...]:
    """Of `--trust-code`. Raises UsageError for anything else than SHA-256 in hexadecimal digits."""
    hashes = tuple(each.strip().lower() for each in (named or "").split(",") if each.strip())
    for each in hashes:
        if re.fullmatch(r"[0-9a-f]{64}", each) is None:
            raise UsageError(
                f"--trust-code: {each!r} is no SHA-256; expected the 64 hexadecimal digits that "
                "'tuner study code NAME' prints"
            )
    return hashes


def _trainer(device: Gpu | CpuCores, heartbeat: int | None) -> Trainer:
    """What trains there: beside this process on a GPU, in it on a CPU.

    Either imports torch from now on: beside, while this process opens the database.
    """
    from tuner.devices import Gpu

    if isinstance(device, Gpu):
        from tuner.worker.trainer import TrainerProcess

        return TrainerProcess(device, heartbeat)
    from tuner.worker.session import InThisProcess

    return InThisProcess(device)
