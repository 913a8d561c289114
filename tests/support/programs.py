"""Programs that tests have trained in place of a network, and a job for one. They import nothing
heavy: one is over within a tenth of a second."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Any

from optuna.trial import TrialState

from tests.support.trial_jobs import job_of
from tuner.config import EpochRecord, TrainingSettings
from tuner.data.task import load_task
from tuner.spec.definition import StudyDefinition
from tuner.spec.study_file import load_study_file
from tuner.storage.records import TrialResult
from tuner.trial.job import TrialJob
from tuner.trial.seeds_and_reruns import run_job

STUDY = """
name = "program"
core_change = "a program of a test"

[process]
command = ["{python}", "train.py"]
{process}

[defaults]
rate = 0.1

[space.rate]
type = "float"
low = 0.01
high = 1.0
scale = "log"

[training]
max_epochs = 5
"""

HEAD = """
import json, os, random, sys, time
told = json.load(open(os.environ["TUNER_TRIAL"]))
report = open(os.environ["TUNER_REPORT"], "a")
def say(**said):
    print(json.dumps(said), file=report, flush=True)
def epoch(number, loss):
    say(epoch=number, train_loss=loss, val_loss=loss)
"""

HONEST = """
say(started=True)
random.seed(told["seed"])
loss = 1.0
for number in range(1, min(4, told["max_epochs"] + 1)):
    time.sleep(0.02)
    loss *= 0.9 - 0.1 * told["hyperparameters"]["rate"] + 0.01 * random.random()
    epoch(number, loss)
say(final={"test_mql": loss})
"""
"""Three epochs of a fiftieth of a second."""


def write_program(folder: Path, text: str = HONEST, process: str = "") -> Path:
    """`train.py` of HEAD and this text, and its study file, which is returned."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "train.py").write_text(HEAD + textwrap.dedent(text), encoding="utf-8")
    study = folder / "study.toml"
    study.write_text(STUDY.format(python=sys.executable, process=process), encoding="utf-8")
    return study


def program_definition(study: Path, **changes: Any) -> StudyDefinition:
    file = load_study_file(str(study))
    given: dict[str, Any] = {
        "task": load_task("demo").definition(),
        "data_hash": "0" * 64,
        "training": file.training,
    }
    return StudyDefinition.of(file, **given | changes)


def program_job(
    where: Path,
    text: str = HONEST,
    *,
    process: str = "",
    max_epochs: int = 5,
    **changes: Any,
) -> TrialJob:
    """A job whose program is HEAD and this text. Nothing is run again: this machine is not ours."""
    definition = program_definition(
        write_program(where, text, process), training=TrainingSettings(max_epochs=max_epochs)
    )
    return job_of(
        reruns=changes.pop("reruns", 0),
        folder=changes.pop("folder", None),
        definition=definition,
        hyperparameters=definition.defaults,
        **changes,
    )


def trained(job: TrialJob) -> TrialResult | None:
    return run_job(job, {})


def failure_of(job: TrialJob) -> str:
    """Why it failed; it did, and said it in one line."""
    result = trained(job)
    assert result is not None
    assert result.state is TrialState.FAIL
    why = result.recorded.failure
    assert why is not None
    assert "\n" not in why
    assert why.startswith("the program failed: ")
    return why.removeprefix("the program failed: ")


def heard_by(epochs: list[EpochRecord]) -> dict[str, Any]:
    """Changes of a job that notes its epochs."""
    return {"on_epoch": lambda record, _repeat: epochs.append(record)}
