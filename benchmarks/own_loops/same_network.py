"""The small network in tuner's loop, in a plain loop, in Lightning and, where it is installed, under
Hugging Face's Trainer, on the same seeds and the same hyperparameters: is its MQL the same, up to the luck of a seed? Times are not held against each other:
they are by clocks of their own.

    python benchmarks/own_loops/same_network.py [--seeds 8] [--max-epochs 40]
"""

from __future__ import annotations

import argparse
import importlib.util
import statistics
from pathlib import Path

from tuner.config import EpochRecord
from tuner.data.prepare import prepare
from tuner.data.task import load_task
from tuner.data.windows import to_device
from tuner.devices import CpuCores
from tuner.spec.definition import StudyDefinition
from tuner.spec.policy import SearchPolicy
from tuner.spec.study_file import load_study_file
from tuner.trial.job import TrialJob
from tuner.trial.seeds_and_reruns import run_job

HERE = Path(__file__).resolve().parent
LOOPS = {"own-small": "tuner's loop", "plain-small": "a plain loop", "lightning-small": "Lightning"}
if importlib.util.find_spec("transformers") is not None:
    LOOPS["huggingface-small"] = "Hugging Face"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--max-epochs", type=int, default=40)
    asked = parser.parse_args()
    prepared = prepare(load_task("demo"))
    data = {prepared.data_hash: to_device(prepared, "cpu")}
    found: dict[str, list[float]] = {}
    for name, loop in LOOPS.items():
        file = load_study_file(str(HERE / f"{name}.toml"))
        file = file.model_copy(
            update={"training": file.training.model_copy(update={"max_epochs": asked.max_epochs})}
        )
        definition = StudyDefinition.of(
            file,
            task=prepared.task.definition(),
            data_hash=prepared.data_hash,
            training=file.training,
        )
        for seed in range(asked.seeds):
            result = run_job(job(name, definition, seed), data)
            assert result is not None, "nobody interrupts it"
            assert result.recorded.test_mql is not None, result.recorded.failure
            found.setdefault(name, []).append(result.recorded.test_mql)
            print(
                f"{loop}, seed {seed}: MQL {result.recorded.test_mql:.4f}, clock "
                f"{result.recorded.clock}",
                flush=True,
            )
    reference = found["own-small"]
    noise = statistics.stdev(reference) * (2 / asked.seeds) ** 0.5
    print(f"{'':14} mean MQL  sd over seeds  from tuner's loop, in standard errors")
    for name, values in found.items():
        apart = (statistics.mean(values) - statistics.mean(reference)) / noise
        print(
            f"{LOOPS[name]:14} {statistics.mean(values):8.4f}  {statistics.stdev(values):13.4f}  "
            f"{apart:+.1f}"
        )


def job(name: str, definition: StudyDefinition, seed: int) -> TrialJob:
    def on_epoch(_record: EpochRecord, _repeat: int) -> None:
        pass

    return TrialJob(
        study=name,
        definition=definition,
        policy=SearchPolicy(reruns=0),
        number=0,
        hyperparameters=definition.defaults,
        device=CpuCores((0,)),
        on_epoch=on_epoch,
        should_stop=lambda: None,
        seed=seed,
    )


if __name__ == "__main__":
    main()
