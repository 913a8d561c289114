"""Scripts as `tuner best` writes them, loaded as modules."""

from __future__ import annotations

import dataclasses
import sys
from types import ModuleType
from typing import Any

import pytest

from tests.support.recorded_studies import record_study
from tuner.config import RunConfig, TrainingSettings
from tuner.data.task import load_task
from tuner.export import BestConfig, load_best, render
from tuner.spec.definition import StudyDefinition
from tuner.spec.study_file import load_study_file

EPOCHS = 2


def recorded_best(url: str) -> BestConfig:
    """What a small study of `rmsnorm` recommends."""
    record_study(url, variant="rmsnorm", trials=1, max_epochs=EPOCHS)
    found = load_best("rmsnorm", pick="knee", task="demo", storage=url)
    return dataclasses.replace(
        found, provenance=found.provenance | {"device": "Example CPU, 1 core"}
    )


def of_variant(
    best: BestConfig, variant: str, task: str = "demo", data_hash: str = "", **params: Any
) -> BestConfig:
    """The same, of another variant or task."""
    definition = StudyDefinition.of(
        load_study_file(variant),
        task=load_task(task).definition(),
        data_hash=data_hash or best.definition.data_hash,
        training=TrainingSettings(max_epochs=EPOCHS),
    )
    return dataclasses.replace(
        best,
        variant=variant,
        task=definition.task_name,
        definition=definition,
        params=best.params | params,
    )


def loaded(config: BestConfig, monkeypatch: pytest.MonkeyPatch, form: str = "python") -> Any:
    """The script as a module, its training not begun."""
    module = ModuleType("exported_script")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(render(config, form), "best.py", "exec"), module.__dict__)
    return module


def run_config(config: BestConfig) -> RunConfig:
    return RunConfig(
        architecture=config.architecture,
        hyperparameters=config.hyperparameters,
        training=config.training,
        seed=config.provenance["seed"],
    )
