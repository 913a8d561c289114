"""A training step under each captured backend and arithmetic, beside one another: in one run, interleaved.

    python benchmarks/training_step/captured_step.py --data-dir DIR --output OUT/captured-step

`original` on the reference job at the team's hyperparameters, one GPU, some two minutes. Every contender trains the same
epochs from the same seed, and the table says how far its losses are from the first one's: dropout masks differ between
backends. `tuner bench` has more sizes, other libraries, and no losses.

Writes OUTPUT.md and OUTPUT.json. `--quick`: on a CPU, where nothing is captured, the eager engine twice.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import math
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.shared.circumstances import QUICK, circumstances, heading, write
from benchmarks.shared.data_folder import add_data_dir
from tuner.config import Backend, Precision, RunConfig, TrainingSettings
from tuner.data.prepare import prepare
from tuner.data.task import load_task
from tuner.data.windows import DeviceData, to_device
from tuner.models.registry import build_model
from tuner.spec.study_file import load_study_file
from tuner.training.clock import arithmetic, seeded, synchronizer
from tuner.training.engines.choose import make_engine


def contenders(*, cuda: bool) -> dict[str, TrainingSettings]:
    """By name. The first is the one that the others are held against."""
    if not cuda:
        return dict.fromkeys(("eager", "eager again"), TrainingSettings(backend=Backend.EAGER))
    asked = itertools.product(
        (Precision.FP32, Precision.TF32), (Backend.GRAPH, Backend.COMPILE, Backend.TRITON)
    )
    return {
        f"{backend.value} {precision.value}": TrainingSettings(backend=backend, precision=precision)
        for precision, backend in asked
    }


@dataclasses.dataclass
class Turn:
    """A contender under way."""

    config: RunConfig
    data: DeviceData
    setup_s: float = 0.0
    steps_us: list[float] = dataclasses.field(default_factory=list)
    epochs_s: list[float] = dataclasses.field(default_factory=list)
    losses: list[float] = dataclasses.field(default_factory=list)

    def run(self, epochs: int, *, count: bool) -> None:
        """Set up from nothing, train one epoch that is not timed and so many that are; the last turn's losses stay."""
        device = self.data.minimum.device
        synchronize = synchronizer(device)
        h = self.config.hyperparameters
        n_steps = math.ceil(len(self.data.train) / h.batch_size)
        with (
            arithmetic(self.config.training.precision),
            seeded(self.config.seed, device) as shuffles,
        ):
            began = time.perf_counter()
            model = build_model(self.config.architecture, self.data.shapes, h).to(device)
            engine = make_engine(self.config, self.data, model)
            if engine.fallback:
                raise RuntimeError(f"would run as {engine.backend.value}: {engine.fallback}")
            engine.warm_up()
            synchronize()
            self.setup_s = time.perf_counter() - began
            self.losses = []
            for number in range(epochs + 1):
                order = torch.randperm(len(self.data.train), generator=shuffles, device=device)
                synchronize()
                first = time.perf_counter()
                trained = engine.train_epoch(order, h.learning_rate, lambda: None)
                synchronize()
                middle = time.perf_counter()
                validated = engine.validation_loss()
                self.losses += [float(trained.loss_sum), float(validated)]
                last = time.perf_counter()
                if number and count:
                    self.steps_us.append(1e6 * (middle - first) / n_steps)
                    self.epochs_s.append(last - first)
            engine.close()


def measure(turns: dict[str, Turn], rounds: int, epochs: int) -> dict[str, Any]:
    """Everyone in turn, for some rounds; the first round only settles. One that fails says why, and drops out."""
    failures: dict[str, str] = {}
    for number in range(rounds + 1):
        for name, turn in turns.items():
            if name in failures:
                continue
            try:
                turn.run(epochs, count=number > 0)
            except Exception as error:  # noqa: BLE001 - a contender's own; it is reported
                failures[name] = f"{type(error).__name__}: {error}".splitlines()[0]
    base = next(iter(turns.values()))
    found: dict[str, Any] = {}
    for name, turn in turns.items():
        if name in failures:
            found[name] = {"failure": failures[name]}
            continue
        found[name] = {
            "us_per_step": statistics.median(turn.steps_us),
            "least_us": min(turn.steps_us),
            "s_per_epoch": statistics.median(turn.epochs_s),
            "setup_s": turn.setup_s,
            "same_bits": turn.losses == base.losses,
            "furthest": max(abs(a / b - 1) for a, b in zip(turn.losses, base.losses, strict=True)),
            "saved_us": statistics.median(base.steps_us) - statistics.median(turn.steps_us),
        }
    return found


def table(found: dict[str, Any]) -> list[str]:
    """The result in Markdown."""
    lines = [
        "| step | us, median | us, least | saved us | s/epoch | set-up s | losses |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, f in found.items():
        if "failure" in f:
            lines.append(f"| {name} | {f['failure']} | | | | | |")
            continue
        same = "the same bits" if f["same_bits"] else f"differ by up to {f['furthest']:.1e}"
        times = f"{f['us_per_step']:.0f} | {f['least_us']:.0f} | {f['saved_us']:.0f} | {f['s_per_epoch']:.4f}"
        lines.append(f"| {name} | {times} | {f['setup_s']:.2f} | {same} |")
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_data_dir(parser)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=5, help="timed ones, in a turn")
    parser.add_argument(
        "--only", help="contenders, with commas between them; the first is always there"
    )
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--quick", action="store_true", help="a dry run on the CPU")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.epochs = 1, 1
    device = "cpu" if options.quick else "cuda"
    file = load_study_file(str(QUICK / "small-original.toml") if options.quick else "original")
    task = load_task(str(QUICK / "quick.toml") if options.quick else "etth")
    data = to_device(prepare(task, data_dir=options.data_dir), device)
    entered = contenders(cuda=not options.quick)
    wanted = {next(iter(entered)), *(options.only.split(",") if options.only else entered)}
    turns = {
        name: Turn(
            RunConfig(
                architecture=file.architecture(),
                hyperparameters=file.default_hyperparameters(),
                training=settings,
                seed=0,
            ),
            data,
        )
        for name, settings in entered.items()
        if name in wanted
    }
    found = measure(turns, options.rounds, options.epochs)
    where = circumstances("CPU" if options.quick else torch.cuda.get_device_name())
    lines = [*heading(where), *table(found)]
    write(options.output, where | {"steps": found}, lines)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
