"""`tuner worker`: one more worker, on any machine that reaches the database."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.command import takes
from tuner.cli.device import ONE_DEVICE, assignment_at, own_device, own_gpu
from tuner.cli.options import Cpu, DataDir, Storage, Trust, data_folder, note, storage_url
from tuner.errors import UsageError

if TYPE_CHECKING:
    from tuner.devices import CpuCores, Gpu
    from tuner.worker.trainers import Trainer


STUDIES_FOLLOW = "-"
"""In place of their names, to a supervised worker: they come on standard input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """The options of `tuner worker`; the hidden ones are for its supervisor, and for itself when it
    goes on in a fresh process.
    """

    study: Annotated[
        str,
        typer.Option(
            metavar="NAME[,NAME]",
            help="Studies to pull trials from; group:NAME is all searches of a group.",
        ),
    ]
    gpu: Annotated[
        str | None,
        typer.Option(
            metavar="INDEX|free",
            help="The GPU this worker owns; free: one that no other worker here has.",
        ),
    ] = None
    cpu: Cpu = False
    cores: Annotated[
        str | None, typer.Option(metavar="0,1", help="With --cpu: the cores to own (all).")
    ] = None
    storage: Storage = None
    data_dir: DataDir = None
    task: Annotated[
        str | None,
        typer.Option(
            metavar="FILE", help="Task file, where the study's data is a CSV of your own."
        ),
    ] = None
    verify: Annotated[
        bool,
        typer.Option("--verify", help="Make the runs that 'tuner verify' planned, not trials."),
    ] = False
    trust: Trust = False
    supervised_by: Annotated[int | None, typer.Option(hidden=True)] = None
    name: Annotated[str | None, typer.Option(hidden=True)] = None
    heartbeat: Annotated[int | None, typer.Option(hidden=True)] = None
    failures: Annotated[int, typer.Option(hidden=True)] = 0
    kept_assignment: Annotated[int | None, typer.Option("--gpu-assignment", hidden=True)] = None


@takes(WorkerOptions)
def worker(options: WorkerOptions) -> int:
    """Run trials of a study on one device until its budget is filled."""
    from tuner.worker.heartbeat import FRESH_PROCESS
    from tuner.worker.process import Orphan, end_at_once
    from tuner.worker.restart import ContextLostError, go_on_afresh

    orphan = Orphan(options.supervised_by) if options.supervised_by is not None else None
    if options.cpu == (options.gpu is not None):
        raise UsageError(ONE_DEVICE)
    assignment = (
        assignment_at(options.gpu, kept=options.kept_assignment)
        if options.gpu is not None
        else None
    )
    device = (
        own_gpu(assignment.gpu)
        if assignment is not None
        else own_device(gpu=None, cpu=True, cores=options.cores)
    )
    storage, folder = storage_url(options.storage), data_folder(options.data_dir)
    trainer = _trainer(device, options.heartbeat)
    from tuner.worker.session import WorkOrder, work  # takes a second, in which torch is imported

    order = WorkOrder(
        studies=options.study if orphan is None else _named(options.study),
        storage=storage,
        verify=options.verify,
        name=options.name,
        heartbeat=options.heartbeat,
        trust=options.trust,
        data_dir=folder,
        task=options.task,
    )
    try:
        code = work(order, device, trainer, orphan=orphan, note=note)
    except ContextLostError as lost:
        if orphan is None:
            go_on_afresh(lost, device, assignment, failures=options.failures)
        code = FRESH_PROCESS
    if orphan is not None:
        end_at_once(code)
    return code


def _named(studies: str) -> str:
    """The names as given, or those that a supervisor gives who did not know them at the start."""
    if studies != STUDIES_FOLLOW:
        return studies
    if not (line := sys.stdin.readline().strip()):
        raise UsageError("--study -: standard input ended before it named a study")
    return line


def _trainer(device: Gpu | CpuCores, heartbeat: int | None) -> Trainer:
    """What trains there: beside this process on a GPU, in it on a CPU.

    Either imports torch from now on: beside, while this process opens the database.
    """
    from tuner.devices import Gpu

    if isinstance(device, Gpu):
        from tuner.worker.trainer.trainer_process import TrainerProcess

        return TrainerProcess(device, heartbeat)
    from tuner.worker.trainers import InThisProcess

    return InThisProcess(device)
