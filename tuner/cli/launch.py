"""`tuner launch`: from a variant's name to a study with its front."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tuner.cli.options import (
    MANY,
    DataDir,
    Json,
    Storage,
    TaskName,
    above_zero,
    data_folder,
    duration_s,
    note,
    storage_url,
    working_folder,
)
from tuner.cli.output import print_json
from tuner.config import Backend, Precision
from tuner.errors import INTERRUPTED, TERMINATED, TunerError, UsageError

if TYPE_CHECKING:
    from tuner.launch import Plan
    from tuner.storage import Database
    from tuner.study import OpenStudy
    from tuner.study.launched import Launched


class TimeObjective(StrEnum):
    """What counts as a configuration's time."""

    WALL_CLOCK = "wall_clock_s"
    TOTAL = "total_s"
    TO_BEST = "time_to_best_s"
    TO_TARGET = "time_to_target_s"


class MqlSplit(StrEnum):
    """Whose MQL is minimised."""

    TEST = "test"
    VAL = "val"


def launch(
    variant: Annotated[str, typer.Option(metavar="NAME[,NAME]", help="Variants or study files (.toml) to retune.")],
    gpus: Annotated[str | None, typer.Option(metavar="0,1|all", help="GPUs, one worker each.")] = None,
    cpu: Annotated[bool, typer.Option("--cpu", help="Run on the CPU.")] = False,
    workers: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="CPU workers, sharing out the cores (up to 4).")
    ] = None,
    task: TaskName = "etth",
    data_dir: DataDir = None,
    trials: Annotated[
        int | None,
        typer.Option(
            min=1, max=MANY, metavar="N", help="Until each study holds this many finished trials (a new one: 50)."
        ),
    ] = None,
    timeout: Annotated[str | None, typer.Option(metavar="2h", help="Stop cleanly after this long.")] = None,
    max_epochs: Annotated[
        int | None, typer.Option(min=1, max=MANY, metavar="N", help="Epoch limit of a trial (the variant's: 200).")
    ] = None,
    storage: Storage = None,
    study: Annotated[str | None, typer.Option(metavar="NAME", help="Study name (default: <task>-<variant>).")] = None,
    time_objective: Annotated[
        TimeObjective | None, typer.Option(help="Which time is minimised (a new study: wall_clock_s).")
    ] = None,
    target_val_loss: Annotated[
        str | None, typer.Option(metavar="X", help="The validation loss of --time-objective time_to_target_s.")
    ] = None,
    mql_split: Annotated[MqlSplit | None, typer.Option(help="Which split's MQL is minimised (test).")] = None,
    max_time: Annotated[
        str | None, typer.Option(metavar="S|none", help="Configurations must take at most S seconds.")
    ] = None,
    max_mql: Annotated[str | None, typer.Option(metavar="Q|none", help="Configurations must have at most Q.")] = None,
    max_memory: Annotated[
        str | None, typer.Option(metavar="8GB|none", help="Configurations must need at most this (GPU: allocated).")
    ] = None,
    sampler: Annotated[
        str | None, typer.Option(metavar="NAME", help="auto, gp, tpe, nsga2, random or qmc (a new study: auto).")
    ] = None,
    sampler_seed: Annotated[
        str | None,
        typer.Option(
            metavar="N|none", help="Of the search, which one worker then repeats exactly (none: from its name)."
        ),
    ] = None,
    warm_start: Annotated[
        str | None, typer.Option(metavar="STUDY[,STUDY]", help="Studies, or exported ones, whose fronts go first.")
    ] = None,
    prune: Annotated[
        bool | None,
        typer.Option("--prune/--no-prune", help="End trials early whose best possible end is dominated (--prune)."),
    ] = None,
    backend: Annotated[Backend | None, typer.Option(help="How the mathematics is executed (auto).")] = None,
    precision: Annotated[Precision | None, typer.Option(help="Arithmetic of the matrix products (fp32).")] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            min=1, max=MANY, metavar="N", help="Train each configuration with so many seeds; medians count (1)."
        ),
    ] = None,
    reruns: Annotated[
        int | None, typer.Option(min=0, max=MANY, metavar="N", help="How often a contaminated timing is run again (1).")
    ] = None,
    checkpoint_every: Annotated[
        str | None, typer.Option(metavar="30s|none", help="Time between two checkpoints of a training (30s).")
    ] = None,
    hang_limit: Annotated[
        str | None,
        typer.Option(
            metavar="10m",
            help="Kill a worker without a sign of life for this long (30m before a trial's first epoch, then 1m), "
            "or for ten of its trial's epochs if those take longer.",
        ),
    ] = None,
    json: Json = False,
) -> int:
    """Retune variants: one study each, workers on every device, until the studies hold --trials finished trials.

    Running the same command again resumes; when there is nothing left to do it says so. A study keeps what a later
    launch does not say: in brackets is what a new one gets. 'none' lifts a limit.
    """
    from tuner.cli.policy import said_policy
    from tuner.launch import make_plan
    from tuner.storage import absolute, open_database, parse_url
    from tuner.storage.place import cautions
    from tuner.study.launched import Said, open_studies

    policy = said_policy(
        sampler=sampler,
        sampler_seed=sampler_seed,
        prune=prune,
        max_time=max_time,
        max_mql=max_mql,
        max_memory=max_memory,
        reruns=reruns,
        checkpoint_every=checkpoint_every,
    )
    timeout_s = duration_s(timeout, "--timeout")
    hang_limit_s = duration_s(hang_limit, "--hang-limit")
    address = absolute(parse_url(storage_url(storage)))
    definition: dict[str, Any] = {
        "max_epochs": max_epochs,
        "backend": backend,
        "precision": precision,
        "time_objective": time_objective.value if time_objective else None,
        "mql_split": mql_split.value if mql_split else None,
        "target_val_loss": _target(target_val_loss, time_objective),
        "seeds": seeds,
    }
    definition = {name: value for name, value in definition.items() if value is not None}
    plan = make_plan(
        variants=variant,
        task=task,
        data_dir=data_folder(data_dir),
        cache_dir=None,
        gpus=gpus,
        cpu=cpu,
        workers=workers,
        study=study,
        environment=os.environ,
        **definition,
    )
    if plan.notice:
        note(plan.notice)
    for line in cautions(address, workers=len(plan.devices)):
        note(line)
    database = open_database(address)
    try:
        opened = open_studies(
            database,
            plan.definitions,
            Said(trials=trials, definition=definition, policy=policy),
            device_model=plan.devices[0].model,
            warm_start=warm_start,
        )
        for line in itertools.chain.from_iterable(each.notes for each in opened):
            note(line)
        options = ["--task", task]
        if (folder := data_folder(data_dir)) is not None:
            options += ["--data-dir", str(folder.absolute())]
        return _run(opened, plan, database, options=options, timeout_s=timeout_s, hang_limit_s=hang_limit_s, json=json)
    finally:
        database.close()


def _run(
    launched: Sequence[Launched],
    plan: Plan,
    database: Database,
    *,
    options: list[str],
    timeout_s: float | None,
    hang_limit_s: float | None,
    json: bool,
) -> int:
    from tuner.launch import Outcome, Supervisor
    from tuner.study.status import status_of
    from tuner.view import live_view, print_summary
    from tuner.worker import Places, deliver, tidy_up

    opened = [each.study for each in launched]
    address = database.address
    folder = working_folder(address)
    for each in opened:
        tidy_up(each, Places(folder))
        each.ledger.return_strays()
        each.ledger.reap()
    if not any(each.ledger.counts().left for each in opened):
        for each in opened:
            counts = each.ledger.counts()
            held = f"{counts.finished} of {counts.budget} finished trials"
            if counts.finished > counts.budget:
                held = f"{counts.finished} finished trials, and {counts.budget} were asked for"
            note(f"nothing to do: {each.name} holds {held}")
        outcome = Outcome.FILLED
    else:
        for each in opened:
            each.bind_device_model(plan.devices[0].model)
        supervisor = Supervisor(
            studies=opened,
            devices=plan.devices,
            worker_options=options,
            environment={**os.environ, "TUNER_STORAGE": address.full()},
            log_folder=folder / "logs",
            hang_limit_s=hang_limit_s,
            deliver=functools.partial(deliver, opened, Places(folder)),
        )
        with live_view(opened) as view:
            outcome = supervisor.run(view.refresh, timeout_s=timeout_s)
    if not json:
        print_summary(opened, ended=outcome.value)
    if outcome is Outcome.FILLED:
        _fail_if_all_failed(opened)
    if json:
        studies = [status_of(each.study) | {"changed": each.changed} for each in launched]
        print_json({"outcome": outcome.value, "studies": studies})
    return {Outcome.INTERRUPTED: INTERRUPTED, Outcome.TERMINATED: TERMINATED}.get(outcome, 0)


def _target(text: str | None, time_objective: TimeObjective | None) -> float | None:
    """The registered validation loss, which the time to a target needs and nothing else takes."""
    if (text is not None) != (time_objective is TimeObjective.TO_TARGET):
        raise UsageError(
            f"--target-val-loss and --time-objective {TimeObjective.TO_TARGET.value} belong together; give both or none"
        )
    return above_zero(text, "--target-val-loss")


def _fail_if_all_failed(opened: list[OpenStudy]) -> None:
    from tuner.study.results import read_results

    for each in opened:
        failures = [record for record in read_results(each).records if record.state.name == "FAIL"]
        if failures and len(failures) == each.ledger.counts().finished:
            reason = failures[0].attributes.get("failure", "no reason was recorded")
            raise TunerError(f"every trial of {each.name} failed, the first with: {reason}")
