"""Trials written for MLflow, Weights & Biases or TensorBoard, each once, from what is stored: after
the workers are gone, so no clock hears of it. Nothing leaves this machine.
"""

from __future__ import annotations

import importlib.util
import math
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import filelock

from tuner.config import Value
from tuner.errors import UsageError, first_line, unknown_name
from tuner.storage.database import open_database
from tuner.storage.url import absolute, parse_url
from tuner.study.open import OpenStudy
from tuner.study.snapshot import open_group, snapshot
from tuner.verdict.confirmation import confirmation_of
from tuner.worker.paths import working_folder

CURVES = ("train_loss", "val_loss", "learning_rate", "elapsed_s")


@dataclass(frozen=True, slots=True)
class Run:
    """What a tracker calls one: a trial, or what is recommended."""

    study: str
    name: str
    params: Mapping[str, Value]
    values: Mapping[str, float]
    curves: Sequence[tuple[int, Mapping[str, float]]]
    """Numbers by what they are, by epoch."""


def check_tracker(kind: str | None) -> None:
    """Raises UsageError where there is no such tracker, or its library is not installed."""
    if kind is not None and kind not in TRACKERS:
        raise unknown_name("tracker", kind, TRACKERS)
    if kind is not None and importlib.util.find_spec(TRACKERS[kind][0]) is None:
        raise UsageError(f"--track {kind}: not installed here; run: pip install 'tuner[{kind}]'")


def tracked(
    kind: str | None, storage: str, groups: Iterable[str], note: Callable[[str], None]
) -> None:
    """Write what a tracker lacks of these groups, where one was named. What fails there fails
    nothing else.
    """
    if kind is None:
        return
    try:
        with closing(open_database(absolute(parse_url(storage)), create=False)) as database:
            for group in groups:
                track(kind, open_group(database, group).members)
            note(f"written for {kind}: {working_folder(database.address) / kind}")
    except Exception as error:  # noqa: BLE001 - a library's own, whatever it is
        note(f"--track {kind}: {first_line(error)}; the same command writes what is missing")


def track(kind: str, studies: Sequence[OpenStudy]) -> None:
    """Write the runs that are not there yet, each into a folder that is there once it is whole."""
    silent = {"MLFLOW_DISABLE_TELEMETRY": "true", "WANDB_ERROR_REPORTING": "false"}
    os.environ |= {"DO_NOT_TRACK": "true", **silent}
    folder = working_folder(studies[0].database.address) / kind
    folder.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(folder / ".lock"):
        for study, run in ((each, run) for each in studies for run in runs_of(each)):
            place, part = (
                folder / re.sub(r"[^\w.-]", "_", f"{study.key()}-{run.name}"),
                folder / ".part",
            )
            if not place.exists():
                shutil.rmtree(part, ignore_errors=True)
                part.mkdir()
                TRACKERS[kind][1](part, place.name, run)
                part.rename(place)


def runs_of(opened: OpenStudy) -> Iterator[Run]:
    """Its trials that have ended, and what its confirmation recommends."""
    study = snapshot(opened)
    there = confirmation_of(study)
    best = there.trial if there is not None and there.holds else None
    records = [each for each in study.results.records if each.state.is_finished()]
    curves = opened.epochs.of_trials([each.number for each in records])
    for record in records:
        by_epoch: dict[int, dict[str, float]] = {}
        for row in curves.get(record.number, ()):
            seed = f"seed-{row.repeat}/" if row.repeat else ""
            told = _finite({seed + name: getattr(row, name) for name in CURVES})
            by_epoch.setdefault(row.epoch, {}).update(told)
        values = _finite(dict(zip(study.definition.objectives, record.values or (), strict=False)))
        for name in ("trial", *(["recommended-trial"] if record.number == best else [])):
            named = f"{name}-{record.number}"
            yield Run(opened.name, named, record.params, values, sorted(by_epoch.items()))


def _finite(told: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(v) for name, v in told.items() if v is not None and math.isfinite(v)}


def _mlflow(part: Path, key: str, run: Run) -> None:
    from mlflow import MlflowClient
    from mlflow.entities import Metric, Param

    client = MlflowClient(f"sqlite:///{part.parent}/mlflow.db")
    found = client.get_experiment_by_name(run.study)
    at = found.experiment_id if found else client.create_experiment(run.study, str(part.parent))
    for cut_short in client.search_runs([at], f"tags.tuner = '{key}'"):
        client.delete_run(cut_short.info.run_id)
    made = client.create_run(at, run_name=run.name, tags={"tuner": key}).info.run_id
    steps = [*run.curves, (0, run.values)]
    metrics = [Metric(name, v, 0, epoch) for epoch, told in steps for name, v in told.items()]
    client.log_batch(made, params=[Param(name, str(v)) for name, v in run.params.items()])
    for first in range(0, len(metrics), 1000):  # more it does not take at once
        client.log_batch(made, metrics=metrics[first : first + 1000])
    client.set_terminated(made)


def _wandb(part: Path, _key: str, run: Run) -> None:
    import wandb

    quiet = wandb.Settings(console="off", silent=True, x_disable_stats=True, x_disable_meta=True)
    named = {"project": "tuner", "group": run.study, "name": run.name, "config": dict(run.params)}
    with wandb.init(mode="offline", dir=part, settings=quiet, **named) as made:
        for epoch, told in run.curves:
            made.log(dict(told), step=epoch)
        made.summary.update(dict(run.values))


def _tensorboard(part: Path, _key: str, run: Run) -> None:
    from tensorboardX import SummaryWriter
    from tensorboardX.summary import hparams

    with SummaryWriter(str(part)) as writer:
        for epoch, told in (*run.curves, (0, run.values)):
            for name, value in told.items():
                writer.add_scalar(name, value, epoch)
        for summary in hparams(dict(run.params), dict(run.values)):
            writer.file_writer.add_summary(summary)


TRACKERS: Mapping[str, tuple[str, Callable[[Path, str, Run], None]]] = {
    "mlflow": ("mlflow", _mlflow),
    "wandb": ("wandb", _wandb),
    "tensorboard": ("tensorboardX", _tensorboard),
}
"""The library of each, and what writes a run."""
