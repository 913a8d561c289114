"""Plants five changes in rewrites of a small network, trains them, and asks `tuner compare --steps`
which step carries what.

    python benchmarks/steps/run.py --output OUT/cpu

Twice, on two disjoint sets of seeds. Beside each planted change stands a step that changes nothing.
Seconds are those of the processor, in one thread, so that it may run beside other work.
"""

from __future__ import annotations

import argparse
import functools
import json
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.shared.circumstances import circumstances, heading, tuner, write
from tuner.data.prepare import prepare
from tuner.data.task import load_task
from tuner.data.windows import DeviceData, to_device
from tuner.devices import CpuCores
from tuner.record import Recorded
from tuner.spec.definition import StudyDefinition
from tuner.spec.study_file import load_study_file
from tuner.storage.database import open_database
from tuner.storage.records import TrialResult
from tuner.storage.url import parse_url
from tuner.study.open import create_or_resume
from tuner.training import evaluate, fit
from tuner.training.clock import Clock
from tuner.trial.job import TrialJob, on_device
from tuner.trial.run import run_config, valued, with_scores
from tuner.verdict.verification_plan import plan_verification
from tuner.worker.loop import Worker
from tuner.worker.trial_source import VerificationSource

NETWORKS = Path(__file__).with_name("networks.py")


@dataclass(frozen=True)
class Planted:
    """A chain of classes; the step to `step` is the one that was changed, and is to carry one of
    `figures` at least.
    """

    change: str
    chain: tuple[str, str, str]
    step: str
    figures: tuple[str, ...]


PLANTED = (
    Planted("permutes removed", ("Permuted", "Network", "Rewritten"), "Network", ("s_per_epoch",)),
    Planted("wrong gain", ("Network", "Rewritten", "WrongGain"), "WrongGain", ("epochs",)),
    Planted(
        "another norm", ("Network", "Rewritten", "OtherNorm"), "OtherNorm", ("test_mql", "epochs")
    ),
    Planted(
        "slower kernel", ("Network", "Rewritten", "SlowKernel"), "SlowKernel", ("s_per_epoch",)
    ),
    Planted(
        "dropout lost",
        ("Network", "Rewritten", "LostDropout"),
        "LostDropout",
        ("test_mql", "epochs"),
    ),
)
CLASSES = sorted({name for planted in PLANTED for name in planted.chain})
SETS = ("one", "two")
FACTORS = ("s_per_epoch", "epochs", "total_time_s")
TASK = """name = "{name}"
target_columns = ["a", "b"]
frequency = "h"
input_size = 24
horizon = 6
calendar = ["hour"]
static_id = true
quantiles = [0.1, 0.5, 0.9]
eval_quantiles = [0.1, 0.5, 0.9]

[source]
kind = "demo"
rows = 300
"""
STUDY = """name = "{name}"
core_change = "{name}"
model = "{model}"

[defaults]
learning_rate = 1e-3
dropout = 0.7
hidden_size = 64
batch_size = 64

[space]
learning_rate = {{ low = 1e-4, high = 1e-2, scale = "log" }}

[training]
max_epochs = 400
patience = 10
min_delta = 1e-4
backend = "eager"
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--output", type=Path, required=True, help="writes OUTPUT.json and .md")
    parser.add_argument("--seeds", type=int, default=20, help="of each class and set")
    options = parser.parse_args()
    torch.set_num_threads(1)
    clock = functools.partial(Clock, now=time.process_time)
    vars(sys.modules["tuner.training.fit"])["Clock"] = clock
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for each in CLASSES:
            text = STUDY.format(name=each, model=f"{NETWORKS}:{each}")
            (folder / f"{each}.toml").write_text(text, encoding="utf-8")
        for seeds in SETS:
            found += run_set(folder, seeds, options)
    right = sum(each["right"] for each in found)
    document = circumstances("CPU") | {"seeds": options.seeds, "found": found}
    lines = [*heading(document), f"The right step in {right} of {len(found)}.", "", *table(found)]
    write(options.output, document, lines)
    print("\n".join(lines))


def run_set(folder: Path, seeds: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Train all classes on fresh seeds, and ask of each planted change."""
    file = folder / f"{seeds}.toml"
    file.write_text(TASK.format(name=seeds), encoding="utf-8")
    at = ("--task", str(file), "--storage", f"sqlite:///{folder}/tuner.db")
    train_all(folder, file, at[-1], options.seeds)
    found = []
    for planted in PLANTED:
        chain = [str(folder / f"{each}.toml") for each in planted.chain]
        report = json.loads(tuner("compare", *chain, "--steps", *at, "--json", output=True))
        found.append(judged(planted, seeds, report))
    return found


def train_all(folder: Path, file: Path, storage: str, seeds: int) -> None:
    """A study a class: its default once, and again on fresh seeds, interleaved."""
    task = load_task(str(file))
    prepared = prepare(task)
    database = open_database(parse_url(storage))
    opened = []
    for each in CLASSES:
        study_file = load_study_file(str(folder / f"{each}.toml"))
        definition = StudyDefinition.of(
            study_file,
            task=task.definition(),
            data_hash=prepared.data_hash,
            training=study_file.training_settings(),
        )
        name = f"{task.name}-{each}"
        opened.append(create_or_resume(database, name, definition, trials=1))
    run = functools.partial(trained, to_device(prepared, "cpu"))
    Worker(opened, CpuCores((0,)), run, name="steps").run()
    plan_verification(opened, top=1, seeds=seeds)
    Worker(opened, CpuCores((0,)), run, source=VerificationSource, name="steps").run()
    database.close()


def trained(data: DeviceData, job: TrialJob) -> TrialResult:
    """A training with its figures, by the processor's seconds; what else runs here is not on them."""
    result = fit(run_config(job.definition, job.hyperparameters, job.seed or 0), data)
    assert result.model is not None, "a training of this size ends"
    recorded = Recorded(
        stopped_by=result.stopped_by.value,
        converged=result.stopped_by.value == "converged",
        wall_clock_s=result.wall_clock_s,
        epochs=result.epochs,
        s_per_epoch=result.s_per_epoch,
        val_loss=result.best_val_loss,
        backend=result.backend.value,
        seed=job.seed,
        contaminated=False,
    )
    recorded = with_scores(recorded, evaluate(result.model, data), job.definition)
    return valued(on_device(recorded, job.device), job.definition)


def judged(planted: Planted, seeds: str, report: dict[str, Any]) -> dict[str, Any]:
    """Which figures the planted step carries, and whether one of them was to be it."""
    carried = [figure for figure, step in report["carried_by"].items() if step == planted.step]
    right = any(figure in planted.figures for figure in carried)
    return {"set": seeds, "change": planted.change, "right": right, "carries": carried} | report


def table(found: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| set | planted | step | s/epoch | epochs | total time | test MQL | right |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for each in found:
        for row in each["rows"]:
            cells = [_cell(row["changes"].get(name), ".2f") for name in FACTORS]
            cells.append(_cell(row["changes"].get("test_mql"), "+.3f"))
            label = "the whole" if row["kind"] == "whole" else row["after"]
            first = row is each["rows"][0]
            names = [each["set"], each["change"]] if first else ["", ""]
            right = ("yes" if each["right"] else "NO") if first else ""
            lines.append(f"| {' | '.join([*names, label, *cells, right])} |")
    return [*lines, "", *(f"- {each['set']}, {each['change']}: {each['answer']}" for each in found)]


def _cell(change: dict[str, Any] | None, form: str) -> str:
    if change is None:
        return "-"
    ends = f"{change['estimate']:{form}} [{change['low']:{form}}, {change['high']:{form}}]"
    return f"{change['bound']} {ends}".strip()


if __name__ == "__main__":
    main()
