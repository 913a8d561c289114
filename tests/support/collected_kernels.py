"""The kernels of one tiny training on Hopper, collected where there is no GPU."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tuner.config import RunConfig
from tuner.data.prepare import prepare
from tuner.data.source_kinds import DemoSource
from tuner.data.task import Task
from tuner.data.windows import DeviceData, to_device
from tuner.kernels.compile_only import Kernel
from tuner.models.registry import build_model
from tuner.models.tsmixer import TSMixer
from tuner.spec.study_file import StudyFile
from tuner.trial.ahead.compile_order import Search

ROOT = Path(__file__).parents[2]
HOPPER = (9, 0)
CHEAPEST = "_gather"
"""The kernel that compiles soonest."""

TASK = Task(
    name="tiny",
    source=DemoSource(kind="demo", rows=200),
    target_columns=("a",),
    frequency="h",
    input_size=12,
    horizon=4,
    quantiles=(0.1, 0.5, 0.9),
    eval_quantiles=(0.1, 0.5, 0.9),
)
STUDY = StudyFile.model_validate(
    {
        "name": "small",
        "core_change": "small enough for a test",
        "model": "rmsnorm",
        "model_settings": {"n_blocks": 1},
        "defaults": {
            "learning_rate": 1e-3,
            "weight_decay": 0.0,
            "dropout": 0.1,
            "hidden_size": 16,
            "batch_size": 64,
        },
        "space": {
            "learning_rate": {"low": 1e-4, "high": 1e-2, "scale": "log"},
            "weight_decay": {"low": 1e-6, "high": 1e-2, "scale": "log", "zero": True},
            "dropout": {"low": 0.1, "high": 0.3},
            "hidden_size": {"low": 16, "high": 16},
            "batch_size": {"low": 64, "high": 64},
        },
    }
)


def data() -> DeviceData:
    return to_device(prepare(TASK), "cpu")


def search(**changes: object) -> Search:
    """Of the study above."""
    from tuner.launch.plan import definition_of
    from tuner.spec.policy import StudySettings

    settings = StudySettings(**changes)
    return Search(
        definition=definition_of(STUDY, TASK, prepare(TASK).data_hash, settings), task=TASK
    )


def trained() -> tuple[RunConfig, TSMixer]:
    """The study's default training, and its network."""
    config = RunConfig(
        architecture=STUDY.architecture(),
        hyperparameters=STUDY.default_hyperparameters(),
        training=STUDY.training,
    )
    model = build_model(config.architecture, data().shapes, config.hyperparameters)
    assert isinstance(model, TSMixer)
    return config, model


def kernels() -> dict[str, Kernel]:
    """By key, in the order in which a training launches them."""
    from tuner.training.engines.fused_engine import kernels_of

    config, model = trained()
    return kernels_of(config, data(), model, HOPPER)


class Named(NamedTuple):
    """A kernel as its place in the cache."""

    name: str
    folder: str
    marker: str


def kernels_elsewhere() -> list[Named]:
    """The same, as another process finds them that has compiled nothing.

    What a kernel's key is depends on which other functions Triton has looked at before.
    """
    tell = (
        "import json; from tests.support.collected_kernels import kernels; "
        "print(json.dumps([[k.name, k.folder, str(k.marker)] for k in kernels().values()]))"
    )
    said = subprocess.run(
        [sys.executable, "-c", tell], capture_output=True, text=True, check=True, cwd=ROOT
    )
    return [Named(*each) for each in json.loads(said.stdout)]


def pretend_compiled(kernel: Kernel | Named, cache: Path) -> None:
    """As far as anybody can see without launching it."""
    (cache / kernel.folder).mkdir(parents=True, exist_ok=True)
    (cache / kernel.marker).touch()
