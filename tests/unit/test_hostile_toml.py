"""Whatever a stranger writes into a TOML file: it is read or refused in one line, and executes
nothing."""

from __future__ import annotations

import random
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.hostile_data import (
    SOME,
    as_toml,
    beside_code_that_must_not_run,
    changed,
    check_refusal,
)
from tests.support.paths import REPOSITORY
from tuner.config import TrainingSettings
from tuner.data.task import load_task, task_of
from tuner.errors import TunerError
from tuner.export.train import read_recipe
from tuner.spec.definition import StudyDefinition
from tuner.spec.study_file import load_study_file
from tuner.study.create import describe


@pytest.fixture(autouse=True)
def _beside_code_that_must_not_run(tmp_path: Path) -> Iterator[None]:
    with beside_code_that_must_not_run(tmp_path):
        yield


STUDY = tomllib.loads((REPOSITORY / "studies" / "rmsnorm.toml").read_text(encoding="utf-8"))
TASK: dict[str, Any] = {
    "name": "shops",
    "description": "two shops",
    "target_columns": ["y", "z"],
    "past_covariates": ["visitors"],
    "future_covariates": ["price"],
    "calendar": ["month"],
    "frequency": "D",
    "input_size": 8,
    "horizon": 2,
    "split": [0.6, 0.2, 0.2],
    "quantiles": [0.1, 0.5, 0.9],
    "eval_quantiles": [0.1, 0.5],
    "objective_series": "north",
    "source": {
        "kind": "csv",
        "path": "shops.csv",
        "separator": ";",
        "decimal": ",",
        "encoding": "utf-8",
    },
}
CONFIG: dict[str, Any] = {
    "task": "demo",
    "variant": "rmsnorm",
    "study": "demo-rmsnorm",
    "trial": 3,
    "pick": "knee",
    "params": {
        "learning_rate": 1e-3,
        "weight_decay": 0.0,
        "dropout": 0.1,
        "hidden_size": 8,
        "batch_size": 256,
    },
    "architecture": {"model": "rmsnorm", "settings": {"n_blocks": 1}},
    "training": {"max_epochs": 3, "patience": 2, "precision": "fp32"},
    "values": {"wall_clock_s": 1.5, "test_mql": 0.25},
    "provenance": {"data_hash": "0" * 64, "seeds": [1], "versions": {"torch": "2.11"}},
}


def read_study(path: Path) -> None:
    """What is read is what comes back from a database."""
    file = load_study_file(str(path))
    definition = StudyDefinition.of(
        file,
        task=task_of(TASK | {"source": {"kind": "csv"}}).definition(),
        data_hash="0",
        training=TrainingSettings(),
    )
    assert StudyDefinition.from_json(definition.to_json()).identity() == definition.identity()
    assert describe(definition).replace("\n", "").replace("\t", "").encode()


def read_task(path: Path) -> None:
    task = load_task(str(path))
    assert task_of(task.definition()).definition() == task.definition()


READERS: dict[str, tuple[dict[str, Any], Callable[[Path], object]]] = {
    "study": (STUDY, read_study),
    "task": (TASK, read_task),
    "config": (CONFIG, read_recipe),
}


@pytest.mark.parametrize("kind", READERS)
def test_a_toml_file_is_read_or_refused_in_one_line(kind: str, tmp_path: Path) -> None:
    document, read = READERS[kind]
    path, seen = tmp_path / "x.toml", Counter[str]()
    for seed in range(SOME):
        chance = random.Random(f"{kind} {seed}")
        content = changed(document, chance)
        text = "\n".join(
            f"{as_toml(str(key))} = {as_toml(value)}" for key, value in content.items()
        )
        raw = bytearray(text.encode("utf-8", "surrogatepass"))
        if seed % 4 == 0:
            raw[chance.randrange(len(raw))] = chance.randrange(256)
        path.write_bytes(raw)
        try:
            read(path)
        except TunerError as error:
            seen["refused"] += 1
            check_refusal(error)
            continue
        except Exception as error:
            raise AssertionError(f"seed {seed} of {kind}") from error
        seen["read"] += 1
    print(kind, dict(seen))
    assert min(seen["read"], seen["refused"]) > SOME / 100
