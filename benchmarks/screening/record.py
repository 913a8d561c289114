"""Record one variant's trainings at the same configurations on an eighth, a quarter, half and all of the windows.

    python benchmarks/screening/record.py --device cuda:0 --part 0/2 --output OUT/part-0.jsonl.xz

200 configurations of the variant's space: its default, 24 learning rates beside it, 25 in which another hyperparameter alone is
changed, 150 drawn over the whole space (Sobol). Each is trained once on every 8th, 4th, 2nd and each of the windows, of training
and of validation, with a seed of its own each time; after `--cap` (1.5) times the default's median time on that share a training is
cut off. Then what converges sooner than the default within 4 % of its MQL is trained on all windows with `--more` (4) further
seeds, and the default with `--default-runs` (20).

A line of JSON for each: configuration, share, seed, how it ended, epochs, seconds (training and validation; set-up and evaluation
apart), validation loss by epoch, validation and test MQL. What OUTPUT has already is not run again. `--quick`: a dry run, a few
configurations on the CPU.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import lzma
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import qmc

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.shared.circumstances import circumstances
from benchmarks.shared.data_folder import add_data_dir
from tuner.api import load_data
from tuner.config import Hyperparameters, RunConfig
from tuner.data.windows import DeviceData, DeviceSplit
from tuner.spec.study_file import StudyFile, load_study_file
from tuner.training import evaluate, fit
from tuner.training.engines.pool import EnginePool

STEPS = (8, 4, 2, 1)
"""Each so-many-th window."""
COUNT, RATES = 200, 24
WITHIN = 1.04
"""Of the default's MQL, for what is worth more seeds."""
FIRST_SEED = 5_000_000


def configurations(file: StudyFile, count: int = COUNT) -> list[dict[str, Any]]:
    """The default first; the same ones on every call."""
    default = file.default_hyperparameters().as_dict()
    found = [default]
    rates = file.space.ranges["learning_rate"]
    for place in np.linspace(0.0, 1.0, RATES):
        found.append(default | {"learning_rate": rates.at([float(place)])})
    for name, places in [
        ("dropout", np.linspace(0.0, 1.0, 8)),
        ("hidden_size", np.linspace(0.0, 1.0, 4)),
        ("batch_size", np.linspace(0.0, 1.0, 5)),
        ("weight_decay", np.linspace(0.0, 1.0, 8)),
    ]:
        for place in places:
            found.append(default | {name: file.space.ranges[name].at([float(place)])})
    drawn = qmc.Sobol(len(file.space.ranges), seed=63).random(256)
    for row in drawn:
        found.append(
            {
                name: each.at([float(place)])
                for (name, each), place in zip(file.space.ranges.items(), row, strict=True)
            }
        )
    return found[:count]


def thinned(data: DeviceData, step: int) -> DeviceData:
    """Of the windows to train and to validate on each `step`-th; those to test on are all there."""
    if step == 1:
        return data
    parts: dict[str, Any] = {}
    for name in ("train", "val"):
        split: DeviceSplit = getattr(data, name)
        kept = {each: getattr(split, each)[::step].clone() for each in ("starts", "series_index")}
        parts[name] = dataclasses.replace(split, **kept)
    return dataclasses.replace(data, **parts)


class Recorder:
    """Trains and writes."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.file = load_study_file(options.variant)
        self.base = RunConfig(
            architecture=self.file.architecture(),
            hyperparameters=self.file.default_hyperparameters(),
            training=self.file.training,
        )
        whole = load_data(options.task, device=options.device, data_dir=options.data_dir)
        self.data = {step: thinned(whole, step) for step in STEPS}
        self.pools = {step: EnginePool() for step in STEPS}
        self.rows: list[dict[str, Any]] = []
        if options.output.exists():
            lines = lzma.decompress(options.output.read_bytes()).decode().splitlines()
            self.rows = [json.loads(each) for each in lines[1:]]
        self.there = {(each["number"], each["step"], each["seed"]): each for each in self.rows}
        self.ends: float = time.monotonic() + options.seconds

    def run(
        self, number: int, values: dict[str, Any], step: int, seed: int, cap_s: float | None
    ) -> dict[str, Any]:
        """One training, and its row; or the one that is there."""
        if (row := self.there.get((number, step, seed))) is not None:
            return row
        training = self.base.training.but(time_limit_s=cap_s)
        if self.options.quick:
            training = training.but(max_epochs=3)
        config = dataclasses.replace(
            self.base, training=training, hyperparameters=Hyperparameters(**values), seed=seed
        )
        data: DeviceData = self.data[step]
        began = time.perf_counter()
        result = fit(config, data, engines=self.pools[step])
        mql: list[float | None] = [None, None]
        if result.model is not None:
            found = evaluate(result.model, self.data[1]).of_series(data.task.objective_series)
            mql = [float(f"{each:.7g}") for each in found]
        losses = [each.val_loss for each in result.history]
        row = {
            "number": number,
            "values": values,
            "step": step,
            "seed": seed,
            "stopped_by": result.stopped_by.value,
            "epochs": result.epochs,
            "wall_clock_s": round(result.wall_clock_s, 5),
            "setup_s": round(result.setup_s, 4),
            "total_s": round(time.perf_counter() - began, 4),
            "val_losses": [None if each is None else float(f"{each:.6g}") for each in losses],
            "test_mql": mql[0],
            "val_mql": mql[1],
        }
        self.rows.append(row)
        return row

    def over(self) -> bool:
        return time.monotonic() > self.ends

    def write(self) -> None:
        """All so far: a call that is cut short has told what it had."""
        name = torch.cuda.get_device_name() if self.options.device != "cpu" else "CPU"
        head = circumstances(name) | {"variant": self.options.variant, "task": self.options.task}
        lines = [json.dumps(each) for each in (head, *self.rows)]
        self.options.output.parent.mkdir(parents=True, exist_ok=True)
        self.options.output.write_bytes(lzma.compress(("\n".join(lines) + "\n").encode()))


def default_runs(recorder: Recorder, count: int) -> dict[int, list[dict[str, Any]]]:
    """Of the default, uncapped, on each share; the first of each warms up and is left out."""
    found: dict[int, list[dict[str, Any]]] = {}
    values = recorder.file.default_hyperparameters().as_dict()
    for step in STEPS:
        recorder.run(0, values, step, FIRST_SEED - 1, None)
        recorder.rows = [each for each in recorder.rows if each["seed"] != FIRST_SEED - 1]
        runs = count if step == 1 else max(3, count // 4)
        found[step] = [
            recorder.run(0, values, step, FIRST_SEED + 1000 * step + n, None) for n in range(runs)
        ]
    return found


def parts(
    numbered: Sequence[tuple[int, dict[str, Any]]], part: str
) -> Iterator[tuple[int, dict[str, Any]]]:
    mine, of = (int(each) for each in part.split("/"))
    for number, values in numbered:
        if number % of == mine:
            yield number, values


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--variant", default="original")
    parser.add_argument("--task", default="etth")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--part", default="0/1", help="I/N: every N-th configuration")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--cap", type=float, default=1.5)
    parser.add_argument("--more", type=int, default=4)
    parser.add_argument("--default-runs", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=480.0, help="begins nothing after them")
    parser.add_argument("--quick", action="store_true")
    add_data_dir(parser)
    options = parser.parse_args()
    recorder = Recorder(options)
    runs = default_runs(recorder, 2 if options.quick else options.default_runs)
    cap_s = {
        step: options.cap * statistics.median(each["wall_clock_s"] for each in runs[step])
        for step in STEPS
    }
    mine = list(parts(list(enumerate(configurations(recorder.file)))[1:], options.part))
    if options.quick:
        mine = mine[:: len(mine) // 3]
    for number, values in mine:
        for step in STEPS:
            if recorder.over():
                break
            recorder.run(number, values, step, FIRST_SEED + 10_000 * number + step, cap_s[step])
        if number % 20 == 0:
            recorder.write()
    level = statistics.median(each["test_mql"] for each in runs[1]) * WITHIN
    first = {each["number"]: each for each in recorder.rows if each["step"] == 1 and each["number"]}
    worth = [
        each
        for each in first.values()
        if each["stopped_by"] == "converged"
        and each["wall_clock_s"] <= cap_s[1] / options.cap
        and each["test_mql"] <= level
    ]
    for n in range(options.more):
        for each in worth:
            if recorder.over():
                break
            seed = FIRST_SEED + 10_000 * each["number"] + 100 + n
            recorder.run(each["number"], each["values"], 1, seed, None)
        recorder.write()
    print(
        f"{len(recorder.rows)} trainings, {len(worth)} configurations with more seeds, "
        f"over before all: {recorder.over()}",
        file=sys.stderr,
    )
    recorder.write()


if __name__ == "__main__":
    main()
