"""A trial's job as a worker hands it on, for a study that is in no database."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from tuner.config import Architecture, Hyperparameters, TrainingSettings
from tuner.devices import CpuCores
from tuner.spec.definition import StudyDefinition
from tuner.spec.policy import SearchPolicy
from tuner.spec.study_file import load_study_file
from tuner.trial.job import TrialJob


def job_of(*, seeds: int = 1, folder: Path | None = None, reruns: int = 1, **more: Any) -> TrialJob:
    file = load_study_file("rmsnorm")
    definition = StudyDefinition.of(
        file,
        task={"name": "tiny"},
        data_hash="0" * 64,
        training=TrainingSettings(max_epochs=3),
        seeds_per_trial=seeds,
    )
    definition = replace(
        definition, architecture=Architecture(model="rmsnorm", settings={"n_blocks": 1})
    )
    given: dict[str, Any] = {
        "study": "tiny-rmsnorm",
        "definition": definition,
        "policy": SearchPolicy(reruns=reruns),
        "number": 4,
        "hyperparameters": Hyperparameters(
            learning_rate=1e-3, weight_decay=0.0, dropout=0.1, hidden_size=8, batch_size=64
        ),
        "device": CpuCores((0,)),
        "on_epoch": lambda record, repeat: None,
        "should_stop": lambda: None,
        "study_key": "tiny-rmsnorm@1.5",
        "checkpoints": folder,
    }
    return TrialJob(**given | more)
