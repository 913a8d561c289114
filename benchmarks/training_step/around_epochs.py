"""What a training takes around its steps: set-up with a new and with a kept engine, between epochs, evaluation.

    python benchmarks/training_step/around_epochs.py --data-dir DIR --output OUT/around-epochs

`original` on the reference job at the default hyperparameters and hidden sizes 32 to 256, one GPU, about a minute. What
stands between epochs is the difference of a long and a short training off their clocks, with a checkpoint folder and
somebody who is told each epoch, as in a worker.

Writes OUTPUT.md and OUTPUT.json. `--quick`: on a CPU, where no engine is kept.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import nn

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.shared.circumstances import QUICK, circumstances, heading, write
from benchmarks.shared.data_folder import add_data_dir
from tuner.config import Architecture, Hyperparameters, RunConfig, TrainingSettings
from tuner.data.prepare import prepare
from tuner.data.task import load_task
from tuner.data.windows import DeviceData, to_device
from tuner.models.registry import build_model
from tuner.spec.study_file import load_study_file
from tuner.training import FitResult, evaluate, fit
from tuner.training.batching import Shuffles
from tuner.training.checkpoint import CheckpointFiles
from tuner.training.clock import arithmetic, seeded, synchronizer
from tuner.training.engines.choose import make_engine
from tuner.training.engines.pool import EnginePool

HIDDEN_SIZES = (32, 64, 128, 256)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Around:
    """Of one hidden size, in milliseconds; `share` is that of validation and of keeping the best in an epoch."""

    hidden_size: int
    backend: str
    first_setup_ms: float
    reused_setup_ms: float
    between_ms: float
    evaluation_ms: float
    epoch_ms: float
    share: float
    kept_bytes: int


@dataclasses.dataclass(frozen=True, slots=True)
class Job:
    """What is trained, for how many epochs and how often."""

    architecture: Architecture
    hyperparameters: Hyperparameters
    data: DeviceData
    epochs: int
    rounds: int

    def config(self, epochs: int, seed: int) -> RunConfig:
        """A training that ends at its epoch limit, not before."""
        settings = TrainingSettings(max_epochs=epochs, patience=epochs + 1)
        return RunConfig(
            architecture=self.architecture,
            hyperparameters=self.hyperparameters,
            training=settings,
            seed=seed,
        )

    def trained(self, epochs: int, seed: int, pool: EnginePool) -> FitResult:
        """As a worker trains: epochs are told, and an interruption would leave a checkpoint."""
        with tempfile.TemporaryDirectory() as folder:
            files = CheckpointFiles(
                folder=Path(folder), stem="trial", identity={"seed": seed}, every_s=60.0
            )
            return fit(
                self.config(epochs, seed),
                self.data,
                on_epoch=lambda _record: None,
                checkpoints=files,
                engines=pool,
            )


def measure(job: Job) -> Around:
    """Medians over the rounds; the first training of all sets up a new engine, the others take that."""
    pool = EnginePool()
    first = job.trained(1, 0, pool)
    reused, between, epochs_s, evaluations_s = [], [], [], []
    for number in range(job.rounds):
        short = job.trained(2, 1 + number, pool)
        long = job.trained(2 + job.epochs, 1 + number, pool)
        reused += [short.setup_s, long.setup_s]
        between.append((_off_clock(long) - _off_clock(short)) / job.epochs)
        epochs_s.append(long.s_per_epoch)
        assert long.model is not None, "memory sufficed for the shorter one"
        evaluations_s.append(_evaluation_s(long.model, job.data))
    kept_bytes = pool.n_bytes
    pool.empty()
    return Around(
        hidden_size=job.hyperparameters.hidden_size,
        backend=first.backend.value,
        first_setup_ms=1e3 * first.setup_s,
        reused_setup_ms=1e3 * statistics.median(reused),
        between_ms=1e3 * statistics.median(between),
        evaluation_ms=1e3 * statistics.median(evaluations_s),
        epoch_ms=1e3 * statistics.median(epochs_s),
        share=_share(job),
        kept_bytes=kept_bytes,
    )


def _off_clock(result: FitResult) -> float:
    """Seconds after set-up that the clock did not count."""
    return result.total_s - result.setup_s - result.wall_clock_s


def _evaluation_s(model: nn.Module, data: DeviceData) -> float:
    synchronize = synchronizer(data.minimum.device)
    synchronize()
    began = time.perf_counter()
    evaluate(model, data)
    synchronize()
    return time.perf_counter() - began


def _share(job: Job) -> float:
    """Of an epoch: validation, the wait for its loss, and one copy of the weights."""
    config, data = job.config(job.epochs, 0), job.data
    device = data.minimum.device
    now = _reader(synchronizer(device))
    with arithmetic(config.training.precision), seeded(config.seed, device) as generator:
        shuffles = Shuffles(generator, len(data.train), device)
        model = build_model(config.architecture, data.shapes, config.hyperparameters)
        engine = make_engine(config, data, model.to(device))
        engine.warm_up()
        best = engine.snapshot()
        shares = []
        for _ in range(job.epochs + 1):
            began = now()
            engine.train_epoch(shuffles.next(), config.hyperparameters.learning_rate, lambda: None)
            trained = now()
            float(engine.validation_loss())
            best.take(engine.model)
            ended = now()
            shares.append((ended - trained) / (ended - began))
        engine.close()
    return statistics.median(shares[1:])


def _reader(synchronize: Callable[[], None]) -> Callable[[], float]:
    def now() -> float:
        synchronize()
        return time.perf_counter()

    return now


def table(found: Sequence[Around]) -> list[str]:
    """The result in Markdown."""
    lines = [
        "| hidden | backend | set-up, new | reused | between epochs | evaluation | epoch | of it validation and best |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for f in found:
        setups = f"{f.first_setup_ms:.1f} ms | {f.reused_setup_ms:.2f} ms"
        rest = f"{f.between_ms:.2f} ms | {f.evaluation_ms:.1f} ms | {f.epoch_ms:.2f} ms | {f.share:.1%}"
        lines.append(f"| {f.hidden_size} | {f.backend} | {setups} | {rest} |")
    return lines


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_data_dir(parser)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=20, help="of the longer training, beside two")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--quick", action="store_true", help="a dry run on the CPU")
    options = parser.parse_args(arguments)
    if options.quick:
        options.rounds, options.epochs = 1, 1
    file = load_study_file(str(QUICK / "small-original.toml") if options.quick else "original")
    task = load_task(str(QUICK / "quick.toml") if options.quick else "etth")
    data = to_device(prepare(task, data_dir=options.data_dir), "cpu" if options.quick else "cuda")
    default = file.default_hyperparameters()
    sizes = (default.hidden_size,) if options.quick else HIDDEN_SIZES
    found = []
    for hidden_size in sizes:
        job = Job(
            file.architecture(),
            dataclasses.replace(default, hidden_size=hidden_size),
            data,
            options.epochs,
            options.rounds,
        )
        found.append(measure(job))
    where = circumstances("CPU" if options.quick else torch.cuda.get_device_name())
    lines = [*heading(where), *table(found)]
    write(options.output, where | {"sizes": [dataclasses.asdict(each) for each in found]}, lines)
    print("\n".join(lines))


if __name__ == "__main__":
    main()
