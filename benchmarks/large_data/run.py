"""A million rows of 50 columns: memory to prepare them, and steps on rows that are streamed against rows in memory.

    python benchmarks/large_data/run.py --folder /tmp/large --output benchmarks/large_data/cpu

Writes the Parquet file, prepares it in pieces and at once, each in a process of its own whose memory is looked at every 5 ms,
checks that both come to the same bits, and then trains `original` on it in turns: rows in memory, a fourth of them allowed
(streamed from memory, and from the map). Speeds are medians over rounds, with quartiles. `--rows` makes it small.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.shared.circumstances import circumstances, heading, write
from tuner.config import RunConfig, StopReason
from tuner.data import prepare as preparing
from tuner.data.prepare import PreparedData, prepare
from tuner.data.task import load_task
from tuner.data.windows import DeviceData, bytes_on_device, to_device
from tuner.devices import CpuCores
from tuner.models.registry import build_model
from tuner.spec.study_file import load_study_file
from tuner.training.engines.choose import make_engine

COLUMNS = 50
TASK = """
name = "large"
target_columns = [{columns}]
frequency = "min"
input_size = 96
horizon = 24
calendar = ["hour"]
quantiles = [0.1, 0.5, 0.9]

[source]
kind = "parquet"
path = "large.parquet"
"""
MIB = 2**20


def make(folder: Path, rows: int) -> Path:
    """The file, a piece at a time, and its task."""
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir(parents=True, exist_ok=True)
    names = [f"c{n}" for n in range(COLUMNS)]
    schema = pa.schema([("ds", pa.timestamp("us")), *((name, pa.float64()) for name in names)])
    random, at_once = np.random.default_rng(0), 50_000
    with pq.ParquetWriter(folder / "large.parquet", schema) as file:
        for first in range(0, rows, at_once):
            count = min(at_once, rows - first)
            times = pd.Timestamp("2020-01-01") + pd.to_timedelta(
                np.arange(first, first + count), "min"
            )
            cells = {name: random.standard_normal(count) for name in names}
            frame = pd.DataFrame({"ds": times.astype("datetime64[us]")} | cells)
            file.write_table(pa.Table.from_pandas(frame, schema=schema, preserve_index=False))
    columns = ", ".join(f'"{name}"' for name in names)
    (folder / "large.toml").write_text(TASK.format(columns=columns))
    return folder / "large.toml"


def prepared_in(task: Path, way: str) -> PreparedData:
    preparing.LARGE_CELLS = 1 if way == "in pieces" else sys.maxsize
    return prepare(load_task(str(task)), cache_dir=task.parent / way.replace(" ", "-"))


def look_at_memory(work: Callable[[], Any]) -> dict[str, float]:
    """Of this process, beyond what it had before: MiB at the most, and of them what no file backs."""
    import pyarrow.parquet  # noqa: F401 - what is imported is no part of it

    process, over = psutil.Process(), threading.Event()
    before, peak = process.memory_info(), {"resident_mib": 0.0, "anonymous_mib": 0.0}

    def watch() -> None:
        while not over.wait(0.005):
            now = process.memory_info()
            more = now.rss - before.rss, (now.rss - now.shared) - (before.rss - before.shared)
            for name, found in zip(peak, more, strict=True):
                peak[name] = max(peak[name], found / MIB)

    watcher = threading.Thread(target=watch)
    watcher.start()
    began = time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    over.set()
    watcher.join()
    return peak | {"seconds": seconds}


def measured(task: Path, way: str) -> dict[str, float]:
    """In a process of its own, with nothing kept."""
    shutil.rmtree(task.parent / way.replace(" ", "-"), ignore_errors=True)
    command = [sys.executable, __file__, "--folder", str(task.parent), "--prepare", way]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, float] = json.loads(said.splitlines()[-1])
    return found


def steps_of(data: DeviceData, config: RunConfig, steps: int) -> Callable[[], tuple[float, float]]:
    """What gives the seconds of so many steps, gathered in another order each time: by the clock, and of this process."""
    torch.manual_seed(0)
    model = build_model(config.architecture, data.shapes, config.hyperparameters)
    engine = make_engine(config, data, model)
    engine.warm_up()

    def timed() -> tuple[float, float]:
        left = [steps]

        def poll() -> StopReason | None:
            left[0] -= 1
            return StopReason.INTERRUPTED if left[0] <= 0 else None

        order = torch.randperm(len(data.train))
        began, used = time.perf_counter(), time.process_time()
        engine.train_epoch(order, 1e-3, poll)
        return time.perf_counter() - began, time.process_time() - used

    return timed


def raced(
    ways: dict[str, DeviceData], rounds: int, steps: int
) -> dict[str, list[tuple[float, float]]]:
    """Seconds of each round, the ways in turns."""
    file = load_study_file("original")
    chosen = replace(file.default_hyperparameters(), hidden_size=64, batch_size=256)
    config = RunConfig(
        architecture=file.architecture(), hyperparameters=chosen, training=file.training
    )
    runs = {name: steps_of(data, config, steps) for name, data in ways.items()}
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for turn in range(rounds):
        for name in [*ways][:: 1 if turn % 2 else -1]:
            found[name].append(runs[name]())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1, help="one is least disturbed by others")
    parser.add_argument("--prepare", choices=["in pieces", "at once"])
    options = parser.parse_args()
    task = options.folder / "large.toml"
    if options.prepare:
        print(json.dumps(look_at_memory(lambda: prepared_in(task, options.prepare))))
        return
    torch.set_num_threads(options.threads)
    make(options.folder, options.rows)
    memory = {way: measured(task, way) for way in ("in pieces", "at once")}
    pieces, whole = (prepared_in(task, way) for way in ("in pieces", "at once"))
    same = pieces.data_hash == whole.data_hash and all(
        np.array_equal(getattr(pieces, name).rows, getattr(whole, name).rows)
        for name in ("train", "val", "test")
    )
    allowed = bytes_on_device(pieces) // 4
    ways = {
        "rows in memory": to_device(whole, "cpu"),
        "a fourth allowed, streamed from memory": to_device(whole.within(allowed), "cpu"),
        "a fourth allowed, streamed from the map": to_device(pieces.within(allowed), "cpu"),
    }
    seconds = raced(ways, options.rounds, options.steps)
    usual = seconds["rows in memory"]
    lines = [
        "| preparing | seconds | memory at the most, MiB | without mapped files |",
        "|---|---|---|---|",
    ]
    for way, found in memory.items():
        lines.append(
            f"| {way} | {found['seconds']:.1f} | {found['resident_mib']:.0f} | {found['anonymous_mib']:.0f} |"
        )
    lines += [
        "",
        "| training | CPU ms a step | speed by CPU time | by the clock |",
        "|---|---|---|---|",
    ]
    for name, each in seconds.items():
        cells = []
        for kind in (1, 0):
            ratios = sorted(one[kind] / other[kind] for one, other in zip(usual, each, strict=True))
            low, high = ratios[len(ratios) // 4], ratios[-1 - len(ratios) // 4]
            cells.append(f"{statistics.median(ratios):.2f} ({low:.2f} to {high:.2f})")
        step = 1e3 * statistics.median(used for _, used in each) / options.steps
        lines.append(f"| {name} | {step:.1f} | {' | '.join(cells)} |")
    lines += ["", f"Both ways of preparing came to the same bits: {same}."]
    told = circumstances(CpuCores(tuple(range(torch.get_num_threads()))).model)
    sizes = {"rows": options.rows, "file_bytes": (options.folder / "large.parquet").stat().st_size}
    document = told | sizes | {"memory": memory, "seconds": seconds, "same": same}
    print("\n".join(lines))
    if options.output:
        write(options.output, document, [*heading(told), *lines])


if __name__ == "__main__":
    main()
