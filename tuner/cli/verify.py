"""`tuner verify`: configurations from the front, and the default one, again on fresh seeds."""

from __future__ import annotations

import functools
import os
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner.cli.options import (
    MANY,
    DataDir,
    Json,
    Storage,
    TaskName,
    data_folder,
    duration_s,
    note,
    storage_url,
    working_folder,
)
from tuner.cli.output import print_json
from tuner.errors import INTERRUPTED, TERMINATED

if TYPE_CHECKING:
    from tuner.launch import Outcome
    from tuner.storage import Database
    from tuner.study import OpenStudy


class FrontChosen(StrEnum):
    """`tuner.study.fronts.Choice`, without its imports."""

    FRONT = "front"
    EXPECTED = "expected"


def verify(
    variant: Annotated[str, typer.Option(metavar="NAME[,NAME]", help="Variants whose studies to verify, together.")],
    task: TaskName = "etth",
    top: Annotated[
        int, typer.Option(min=1, max=MANY, metavar="N", help="Configurations along each front, its knee included.")
    ] = 5,
    choose: Annotated[
        FrontChosen,
        typer.Option(
            "--choose", help="From the front as the search saw it, or from what all trials together expect of each."
        ),
    ] = FrontChosen.FRONT,
    seeds: Annotated[int, typer.Option(min=1, max=MANY, metavar="N", help="Fresh seeds for each configuration.")] = 10,
    gpus: Annotated[str | None, typer.Option(metavar="0,1|all", help="GPUs, one worker each.")] = None,
    cpu: Annotated[bool, typer.Option("--cpu", help="Run on the CPU.")] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="CPU workers, sharing out the cores (up to 4).")
    ] = None,
    stop_early: Annotated[
        bool, typer.Option("--stop-early", help="End at a planned look (60 or 80 % of the seeds) when all is clear.")
    ] = False,
    study: Annotated[
        str | None, typer.Option(metavar="NAME[,NAME]", help="Study names (default: <task>-<variant>).")
    ] = None,
    data_dir: DataDir = None,
    timeout: Annotated[str | None, typer.Option(metavar="2h", help="Stop cleanly after this long.")] = None,
    storage: Storage = None,
    json: Json = False,
) -> int:
    """Run the front's configurations and the default one again on seeds that the search never used.

    Runs are interleaved in random order, each alone on its device. Running the same command again resumes; when there
    is nothing left to do it says so.
    """
    from tuner.launch import choose_devices
    from tuner.storage import absolute, open_database, parse_url
    from tuner.study import open_study
    from tuner.study.fronts import Choice
    from tuner.study.verification import plan_verification, study_names

    timeout_s = duration_s(timeout, "--timeout")
    names = study_names(variant, task=task, studies=study)
    database = open_database(absolute(parse_url(storage_url(storage))), create=False)
    try:
        opened = [open_study(database, name) for name in names]
        devices, notice = choose_devices(gpus=gpus, cpu=cpu, workers=workers, environment=os.environ)
        for each in opened:
            each.refuse_other_device(devices[0].model)
        planned = plan_verification(opened, top=top, seeds=seeds, choice=Choice(choose.value), stop_early=stop_early)
        for line in (*planned.missing, *planned.notes):
            note(line)
        if notice:
            note(notice)
        options = ["--verify", "--task", task]
        if (folder := data_folder(data_dir)) is not None:
            options += ["--data-dir", str(folder.absolute())]
        outcome = _run(opened, devices, database, options, timeout_s)
        return _report(opened, outcome, planned.missing, json=json)
    finally:
        database.close()


def _run(
    opened: list[OpenStudy], devices: Any, database: Database, options: list[str], timeout_s: float | None
) -> Outcome:
    from tuner.launch import Outcome, Supervisor
    from tuner.launch.verification import VerificationWork
    from tuner.view.verification import progress_view
    from tuner.worker import Places, deliver

    work = VerificationWork.of(opened)
    address = database.address
    folder = working_folder(address)
    bring_results = functools.partial(deliver, opened, Places(folder))
    bring_results()
    work.ledger.reap()
    if work.ledger.counts().left == 0:
        counts = work.ledger.counts()
        if counts.budget:
            note(f"nothing to do: {counts.finished} of {counts.budget} verification runs are finished")
        return Outcome.FILLED
    supervisor = Supervisor(
        studies=[work],
        devices=devices,
        worker_options=options,
        environment={**os.environ, "TUNER_STORAGE": address.full()},
        log_folder=folder / "logs",
        deliver=bring_results,
    )
    with progress_view(work.ledger) as view:
        return supervisor.run(view.refresh, timeout_s=timeout_s)


def _report(opened: list[OpenStudy], outcome: Outcome, missing: tuple[str, ...], *, json: bool) -> int:
    from tuner.launch import Outcome as Ended
    from tuner.view.verification import print_verified, verification_document

    if json:
        print_json({"outcome": outcome.value, "missing": list(missing)} | verification_document(opened))
    else:
        print_verified(opened, ended=outcome.value)
    return {Ended.INTERRUPTED: INTERRUPTED, Ended.TERMINATED: TERMINATED}.get(outcome, 0)
