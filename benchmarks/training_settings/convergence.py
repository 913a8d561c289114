"""Whole trainings to convergence, ten seeds a setting: does a setting cost quality?

    python benchmarks/training_settings/convergence.py --data-dir DIR --minutes 9 --output OUT/h200

`original` on the reference job at the team's hyperparameters, as captured graphs: fp32 first, then one change at a time.
The settings take turns, seed by seed, one training alone on the device, so that what there is when the minutes are over
compares. Each finished training is a line of OUTPUT.runs.jsonl at once; the same command goes on with what is missing, on
the same device with the same torch. OUTPUT.md and OUTPUT.json have means with standard errors, and how far each setting's
mean is from fp32's, with a 95 % interval (Welch). `--quick` is a dry run on the CPU with generated data.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.equal_backends.differences import Run, compare, table
from benchmarks.equal_backends.equivalence import device_model, earlier_runs
from benchmarks.shared.circumstances import circumstances, heading, write
from benchmarks.shared.data_folder import add_data_dir
from tuner.config import Backend, Precision, RunConfig
from tuner.data.prepare import prepare
from tuner.data.task import load_task
from tuner.data.windows import DeviceData, to_device
from tuner.spec.study_file import load_study_file
from tuner.training import evaluate, fit
from tuner.trial.run import git_revision, versions

SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "fp32": {},
    "tf32": {"precision": Precision.TF32},
    "bf16": {"precision": Precision.BF16},
    "fp16": {"precision": Precision.FP16},
    "accumulate 4 x 64": {"accumulate": 4, "batch_size": 64},
    "validate every 5": {"validate_every": 5},
}
"""By what they are called in the table; the first is what the others are compared with."""

LONGEST_S = 30.0
"""That a training may take at first; later ones what the longest took."""


def configuration(name: str, seed: int, backend: Backend, *, quick: bool = False) -> RunConfig:
    """The reference job's, but for one setting; `quick` is small enough for a dry run."""
    file = load_study_file("original")
    changes = dict(SETTINGS[name])
    hyperparameters = file.default_hyperparameters()
    if "batch_size" in changes:
        hyperparameters = dataclasses.replace(hyperparameters, batch_size=changes.pop("batch_size"))
    training = file.training.but(backend=backend, **changes)
    if quick:
        hyperparameters = dataclasses.replace(hyperparameters, hidden_size=8)
        training = training.but(max_epochs=2)
    return RunConfig(
        architecture=file.architecture(),
        hyperparameters=hyperparameters,
        training=training,
        seed=seed,
    )


def trained(name: str, config: RunConfig, data: DeviceData) -> Run:
    """One training to its end, as a line of the file.

    Raises:
        SystemExit: another backend ran in place of the one that was named.
    """
    result = fit(config, data)
    if result.backend is not config.training.backend:
        raise SystemExit(f"{name} ran as {result.backend.value}: {result.backend_fallback}")
    found: Run = {
        "backend": name,  # what `compare` tells apart
        "seed": config.seed,
        "ran_as": result.backend.value,
        "stopped_by": result.stopped_by.value,
        "epochs": result.epochs,
        "best_epoch": result.best_epoch,
        "wall_clock_s": result.wall_clock_s,
        "s_per_epoch": result.s_per_epoch,
        "val_loss": result.best_val_loss,
        "peak_memory_bytes": result.peak_memory_bytes,
        "torch": torch.__version__,
        "git_revision": git_revision(),
        "device": device_model(data.minimum.device.type),
    }
    if result.model is None:
        return found | {"test_mql": float("nan")}
    scores = evaluate(result.model, data)
    return found | {"test_mql": next(iter(scores.test_mql.values()))}  # of ETTh1


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Ten seeds of each setting of training, to convergence."
    )
    add_data_dir(parser)
    parser.add_argument("--settings", default=",".join(SETTINGS), help="names, with commas")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_args(arguments)
    if unknown := set(options.settings.split(",")) - set(SETTINGS):
        parser.error(
            f"--settings: no {', '.join(sorted(unknown))}; expected some of {', '.join(SETTINGS)}"
        )
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    until = time.time() + 60 * options.minutes
    device, task, seeds = "cuda", "etth", options.seeds
    if options.quick:
        device, task, seeds = "cpu", "demo", 2
    backend = Backend.EAGER if options.quick else Backend.GRAPH
    data = to_device(prepare(load_task(task), data_dir=options.data_dir), device)
    file = Path(f"{options.output}.runs.jsonl")
    file.parent.mkdir(parents=True, exist_ok=True)
    runs = earlier_runs(file, {"device": device_model(device), "torch": versions()["torch"]})
    there = {(run["backend"], run["seed"]) for run in runs}
    names = options.settings.split(",")
    longest = 0.0 if options.quick else LONGEST_S
    missing = 0
    for seed in range(seeds):
        for name in names:
            if (name, seed) in there:
                continue
            if time.time() + longest > until:
                missing += 1
                continue
            began = time.time()
            run = trained(name, configuration(name, seed, backend, quick=options.quick), data)
            longest = max(longest if runs else 0.0, time.time() - began)
            runs.append(run)
            with file.open("a", encoding="utf-8") as lines:
                lines.write(json.dumps(run) + "\n")
            print(json.dumps(run), file=sys.stderr, flush=True)
    report(options.output, runs, names, missing, device)


def report(
    output: Path, runs: Sequence[Run], names: Sequence[str], missing: int, device: str
) -> None:
    found = compare(runs, names)
    where = circumstances(device_model(device))
    head, *rows = table(found)
    lines = [*heading(where), head.replace("backend", "setting"), *rows, ""]
    lines += [f"Still missing: {missing} trainings."] if missing else []
    write(output, where | {"settings": found, "missing": missing, "runs": list(runs)}, lines)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
