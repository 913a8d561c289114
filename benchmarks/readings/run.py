"""Trains the readings of the team's rewrites, and says how near each comes to their figures.

    python benchmarks/readings/run.py --data-dir DIR --workers 6 --budget 500
    python benchmarks/readings/run.py --table

Every finished training is a line of --out at once. The same command again goes on with what is missing; nothing is
begun that would not end within the budget, and what the budget cuts short is trained again. Several trainings share the
device: epochs and errors need no quiet clock, and the seconds an epoch mean nothing here.
"""

from __future__ import annotations

import argparse
import copy
import dataclasses
import json
import math
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.readings.distance import Row, missing, read, table
from benchmarks.readings.tried import TRIED, Tried
from benchmarks.shared.data_folder import add_data_dir
from benchmarks.shared.marked_sections import replaced

if TYPE_CHECKING:
    from tuner.config import EpochRecord, RunConfig
    from tuner.data.windows import DeviceData
    from tuner.training.run_state import FitResult

HERE = Path(__file__).parent
NEAREST = 5
"""Readings that the page tells of, beside today's."""
USUAL_S = 60.0
"""A training that is begun may take this, sharing the device; where its reading's trainings are known, 1.3 times the
longest."""

_held: dict[str, Any] = {}
"""Of a worker's process: its data and its options."""


def begin(options: argparse.Namespace, devices: multiprocessing.Queue[str]) -> None:
    """A worker's process gets ready; the devices are shared out evenly."""
    os.environ["CUDA_VISIBLE_DEVICES"] = devices.get()
    import torch

    from tuner.data.prepare import prepare
    from tuner.data.task import load_task
    from tuner.data.windows import to_device

    torch.set_num_threads(max(1, (os.cpu_count() or 1) // options.workers))
    cache = options.cache  # of this call: the usual folder takes a package that may not be there
    task = load_task("etth")
    data = to_device(prepare(task, data_dir=options.data_dir, cache_dir=cache), options.device)
    _held.update(data=_few(data, options.quick), options=options)


def _few(data: DeviceData, n_windows: int | None) -> DeviceData:
    """The first windows of each split only, for a dry run."""
    if n_windows is None:
        return data

    def cut(split: Any) -> Any:
        return dataclasses.replace(
            split, starts=split.starts[:n_windows], series_index=split.series_index[:n_windows]
        )

    return dataclasses.replace(data, train=cut(data.train), val=cut(data.val))


def configuration(tried: Tried, variant: str, seed: int, options: argparse.Namespace) -> RunConfig:
    """The reference job's protocol, but for what the reading says."""
    from tuner.config import Architecture, Backend, Hyperparameters, RunConfig, TrainingSettings

    usual = {"learning_rate": 1e-4, "weight_decay": 0.0, "dropout": 0.1, "hidden_size": 64}
    training = TrainingSettings(max_epochs=options.max_epochs, backend=Backend(options.backend))
    return RunConfig(
        architecture=Architecture(model=variant, settings={"n_blocks": 2, **tried.network}),
        hyperparameters=Hyperparameters.of({**usual, "batch_size": 256, **tried.hyperparameters}),
        training=training.but(**tried.training),
        seed=seed,
    )


def train(reading: str, variant: str, seed: int, deadline: float) -> dict[str, Any] | None:
    """One training's row; None where the deadline, by the clock on the wall, cut it short."""
    from tuner.config import StopReason
    from tuner.training import evaluate

    options, data, tried = _held["options"], _held["data"], TRIED[reading]
    config = configuration(tried, variant, seed, options)
    until = time.perf_counter() + deadline - time.time()
    result = _fitted(config, tried, data, until)
    if result.stopped_by is StopReason.TIME_LIMIT:
        return None
    figures = {"val_loss": result.best_val_loss, "mql": math.nan, "mql_etth2": math.nan}
    if result.model is not None and result.stopped_by.completed:
        scores = evaluate(result.model, data)
        figures["mql"], figures["mql_etth2"] = scores.test_mql["ETTh1"], scores.test_mql["ETTh2"]
    return {
        "reading": reading,
        "variant": variant,
        "seed": seed,
        "epochs": result.epochs,
        **{name: value if math.isfinite(value) else None for name, value in figures.items()},
        "s_per_epoch": round(result.s_per_epoch, 4),
        "total_s": round(result.total_s, 2),
        "stopped_by": result.stopped_by.value,
        "backend": result.backend.value,
        "fallback": result.backend_fallback,
        "n_parameters": result.n_parameters,
    }


def _fitted(config: RunConfig, tried: Tried, data: DeviceData, until: float) -> FitResult:
    """By `fit`'s own stopping rule, or by this reading's."""
    from tuner.config import StopReason
    from tuner.training import evaluate, fit
    from tuner.training.run_state import EarlyStopping

    if tried.monitor == "val_loss":
        return fit(config, data, deadline=until)
    import torch

    from tuner.models.registry import build_model

    settings = config.training
    stopping = EarlyStopping(settings.patience, settings.min_delta)
    torch.manual_seed(config.seed)
    model = build_model(config.architecture, data.shapes, config.hyperparameters)
    model = model.to(data.minimum.device)
    best, kept = math.inf, {}

    def watched(record: EpochRecord) -> StopReason | None:
        nonlocal best, kept
        if tried.monitor == "val_mql":
            value = evaluate(model, data).val_mql_mean
        else:
            value = getattr(record, tried.monitor)
        if value < best:
            best, kept = value, copy.deepcopy(model.state_dict())
        return StopReason.CONVERGED if stopping.update(value) else None

    settings = settings.but(patience=settings.max_epochs + 1)
    result = fit(
        dataclasses.replace(config, training=settings),
        data,
        on_epoch=watched,
        model=model,
        deadline=until,
    )
    if result.model is not None and kept:
        result.model.load_state_dict(kept)
    return result


def visible(n_devices: int) -> list[str]:
    """What each device is called for a process that shall see it alone."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",") if named else [str(number) for number in range(n_devices)]


def takes_s(rows: Sequence[Row], reading: str) -> float:
    """As far as can be told before."""
    known = [row["total_s"] for row in rows if row["reading"] == reading]
    return 1.3 * max(known) + 10 if known else USUAL_S


def train_missing(options: argparse.Namespace, readings: Sequence[str]) -> int:
    """Trains until the stage, or the budget, is over; 1 where a training failed."""
    deadline = time.time() + options.budget
    if options.out.exists() and not options.out.read_bytes().endswith(b"\n"):
        with options.out.open("a", encoding="utf-8") as file:
            file.write("\n")  # a kill cut its last line short
    failed, done = False, 0
    began: dict[Future[dict[str, Any] | None], tuple[str, str, int]] = {}
    tried_here: set[tuple[str, str, int]] = set()
    spawn = multiprocessing.get_context("spawn")
    devices: multiprocessing.Queue[str] = spawn.Queue()
    for number in range(options.workers):
        devices.put(options.devices[number % len(options.devices)])
    with ProcessPoolExecutor(options.workers, spawn, begin, (options, devices)) as pool:
        while True:
            rows = read(options.out)
            todo = [
                each for each in missing(rows, readings, options.stage) if each not in tried_here
            ]
            takes = {job: 0.0 if options.quick else takes_s(rows, job[0]) for job in todo}
            for job in sorted(todo, key=takes.__getitem__, reverse=True):
                if len(began) < options.workers and time.time() + takes[job] < deadline:
                    tried_here.add(job)
                    began[pool.submit(train, *job, deadline - 2)] = job
            if not began:
                break
            for future in wait(began, return_when=FIRST_COMPLETED).done:
                job = began.pop(future)
                try:
                    row = future.result()
                except Exception as error:  # noqa: BLE001 - the others go on
                    print(f"{' '.join(map(str, job))}: {error!r}", file=sys.stderr, flush=True)
                    failed = True
                    continue
                if row is None:
                    continue
                with options.out.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(row) + "\n")
                done += 1
                print(" ".join(f"{value}" for value in row.values()), flush=True)
    left = len(missing(read(options.out), readings, options.stage))
    print(f"{done} trained; {left} of this stage are left", flush=True)
    return 1 if failed else 0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_data_dir(parser)
    parser.add_argument("--out", type=Path, default=HERE / "h200.jsonl")
    parser.add_argument("--stage", choices=["auto", "one", "eight", "three"], default="auto")
    parser.add_argument("--workers", type=int, default=4, help="trainings at once")
    parser.add_argument("--budget", type=float, default=500.0, metavar="SECONDS")
    parser.add_argument("--device", choices=["cuda", "cpu"], help="else cuda where there is one")
    parser.add_argument("--backend", help="else auto on cuda, eager on cpu")
    parser.add_argument("--max-epochs", type=int, default=200)
    parser.add_argument("--quick", type=int, metavar="N", help="a dry run of N windows a split")
    parser.add_argument("--readings", help="these alone, by comma")
    parser.add_argument(
        "--table",
        action="store_true",
        help="print the whole table and write the nearest into README.md, train nothing",
    )
    options = parser.parse_args()
    readings = options.readings.split(",") if options.readings else list(TRIED)
    if unknown := [each for each in readings if each not in TRIED]:
        parser.error(f"unknown reading {unknown[0]!r}; there are: {', '.join(TRIED)}")
    if options.table:
        page, rows = HERE / "README.md", read(options.out)
        text, lines = page.read_text(encoding="utf-8"), table(rows, readings, NEAREST).splitlines()
        page.write_text(replaced(text, "readings", lines), encoding="utf-8")
        print(table(rows, readings))
        return
    import torch

    if options.device is None:
        options.device = "cuda" if torch.cuda.is_available() else "cpu"
    options.devices = visible(torch.cuda.device_count()) if options.device == "cuda" else [""]
    options.backend = options.backend or ("auto" if options.device == "cuda" else "eager")
    with tempfile.TemporaryDirectory() as folder:
        options.cache = Path(folder)
        failed = train_missing(options, readings)
    raise SystemExit(failed)


if __name__ == "__main__":
    main()
