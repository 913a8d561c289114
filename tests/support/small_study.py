"""A study small enough for tests: its definition for the database, its files for the command
line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tuner.config import TrainingSettings
from tuner.data.task import load_task
from tuner.spec.definition import StudyDefinition
from tuner.spec.study_file import load_study_file

TASK_TOML = """
name = "tiny"
target_columns = ["a", "b"]
frequency = "h"
input_size = 12
horizon = 3
calendar = ["hour"]
static_id = true
quantiles = [0.1, 0.5, 0.9]
eval_quantiles = [0.1, 0.5, 0.9]

[source]
kind = "demo"
rows = 200
"""

STUDY_TOML = """
name = "small"
core_change = "small enough for a test"
model = "rmsnorm"

[model_settings]
n_blocks = 1

[defaults]
learning_rate = 1e-3
weight_decay = 0.0
dropout = 0.1
hidden_size = 8
batch_size = 256

[space]
learning_rate = { low = 1e-4, high = 1e-2, scale = "log" }
weight_decay = { low = 1e-6, high = 1e-2, scale = "log", zero = true }
dropout = { low = 0.0, high = 0.3 }
hidden_size = { low = 8, high = 16 }
batch_size = { low = 256, high = 256 }

[training]
patience = 100000
"""

LOUD = """
from tuner.models.tsmixer import DESIGNS, TSMixer

class Loud(TSMixer):
    def __init__(self, shapes, **sizes):
        print("hello from __init__")
        super().__init__(shapes, DESIGNS["rmsnorm"], **sizes)
        self.said = False

    def forward(self, *given):
        if not self.said:
            print("hello from forward")
            self.said = True
        return super().forward(*given)
"""

PACED = """
import time
from pathlib import Path

from tuner.models.tsmixer import DESIGNS, TSMixer

class Paced(TSMixer):
    def __init__(self, shapes, **sizes):
        super().__init__(shapes, DESIGNS["rmsnorm"], **sizes)
        self.quick = QUICK

    def forward(self, *given):
        slow = Path(__file__).parent / "slow"
        try:
            said = slow.read_text()
        except FileNotFoundError:
            return super().forward(*given)
        if not said and self.quick > 0:
            self.quick -= 1
            return super().forward(*given)
        until = time.monotonic() + float(said or 0.5)
        while slow.exists() and time.monotonic() < until:
            time.sleep(0.02)
        return super().forward(*given)
""".replace("QUICK", "6")
"""The network rmsnorm; while there is a file `slow` beside it, a batch takes half a second, or as
long as that file says. Half a second only from the second epoch on: nobody waits for a network to
be checked, and for somebody to train."""


TASK = load_task("demo").model_copy(update={"name": "tiny"}).definition()


def definition(**changes: Any) -> StudyDefinition:
    """The definition of a study that no test trains: the variant rmsnorm on data that is
    nowhere."""
    file = load_study_file("rmsnorm")
    training = TrainingSettings(max_epochs=changes.pop("max_epochs", 3))
    given: dict[str, Any] = {"task": TASK, "data_hash": "0" * 64, "training": training} | changes
    return StudyDefinition.of(file, **given)


def write_files(folder: Path) -> tuple[Path, Path]:
    """A study file and a task file whose trials take as many milliseconds as they have epochs,
    about."""
    study, task = folder / "small.toml", folder / "tiny.toml"
    study.write_text(STUDY_TOML, encoding="utf-8")
    task.write_text(TASK_TOML, encoding="utf-8")
    return study, task


def write_printing(folder: Path) -> None:
    """Have the study file name a network that prints when it is made and when it is called."""
    (folder / "loud.py").write_text(LOUD, encoding="utf-8")
    (folder / "small.toml").write_text(
        STUDY_TOML.replace('"rmsnorm"', '"loud.py:Loud"'), encoding="utf-8"
    )


def write_paced(folder: Path) -> Path:
    """Have the study file name the paced network; the file whose presence slows it down."""
    (folder / "paced.py").write_text(PACED, encoding="utf-8")
    (folder / "small.toml").write_text(
        STUDY_TOML.replace('"rmsnorm"', '"paced.py:Paced"'), encoding="utf-8"
    )
    return folder / "slow"
