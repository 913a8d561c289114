"""The recorded trainings of a variant, as arrays: what the truths of a simulation are made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.runs.table import archive, exports, without_ablations
from tuner.spec.space import SearchSpace
from tuner.study.snapshot import StudySnapshot, snapshot
from tuner.verdict.known_runs import Run, runs_of

Array = np.ndarray[Any, Any]

STUDIES = {
    "original": (
        "samplers/etth-original",
        "campaign/etth-original",
        "pruning/live-h200.study",
        "study_overhead/1000-trials-h200.study",
    ),
    "rmsnorm": ("campaign/etth-rmsnorm",),
    "simple": ("campaign/etth-simple",),
    "layernorm": ("campaign/etth-layernorm",),
    "batchnorm": ("campaign/etth-batchnorm",),
}
"""Exports in the table of recorded runs, on the same task and the same kind of device, by variant; the reference job's table of 400
trials first."""
RETUNES = {
    "original": "h100",
    "rmsnorm": "h100",
    "layernorm": "h100",
    "simple": "campaign",
    "batchnorm": "campaign",
}
"""Retunes in that table with five long searches of a variant on one GPU model."""


@dataclass(frozen=True, slots=True)
class Recordings:
    """Trainings that converged. Arrays are (trainings,), but for `where`, (trainings, coordinates)."""

    variant: str
    space: SearchSpace
    default_where: Array
    default_params: dict[str, float]
    where: Array
    log_epochs: Array
    log_epoch_s: Array
    """Seconds of an epoch."""
    mql: Array
    default_mql: float
    """The mean of the default's runs, on all their seeds."""
    default_log_epochs: float


def recordings(variant: str, *, retunes: bool = False) -> Recordings:
    """What was recorded of a variant: what ran before it was retuned, or the searches of its retune."""
    if retunes:
        names = exports(f"retune/{RETUNES[variant]}/etth-{variant}*")
    else:
        names = list(STUDIES[variant])
    return recordings_of(variant, [snapshot(without_ablations(archive(name))) for name in names])


def recordings_of(variant: str, studies: Sequence[StudySnapshot]) -> Recordings:
    """The same of these studies of a variant."""
    space = studies[0].definition.space
    default = dict(studies[0].definition.defaults.as_dict())
    runs = [run for study in studies for run in runs_of(study) if run.seconds and run.epochs]
    own = [run for run in runs if run.where == tuple(space.shares(default))]
    # Searches of one architecture train their default on the same seed: it counts once.
    seen = {round(run.mql, 6): run for run in own}
    return Recordings(
        variant,
        space,
        np.array(space.shares(default)),
        default,
        np.array([run.where for run in runs]),
        np.log([epochs_of(run) for run in runs]),
        np.log([(run.seconds or 0.0) / epochs_of(run) for run in runs]),
        np.array([run.mql for run in runs]),
        float(np.mean([run.mql for run in seen.values()])),
        float(np.mean(np.log([epochs_of(run) for run in seen.values()]))),
    )


def epochs_of(run: Run) -> float:
    assert run.epochs, "a training of ours says its epochs"
    return run.epochs
