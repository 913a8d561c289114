"""A generated road: speeds at detectors a few hundred metres apart, with jams that travel upstream.

    python benchmarks/social_xlstm/generate.py FOLDER [--detectors 64] [--days 28] [--seed 0]

writes traffic.csv (a column for each detector), positions.csv and traffic.toml. A jam begins at a
detector, grows, and reaches the next one upstream a step later; so what a detector will see soon,
its downstream neighbours see now. Its own past does not tell.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

STEP_MINUTES = 5
A_DAY = 24 * 60 // STEP_MINUTES
START = np.datetime64("2024-01-01T00:00:00")
DECIMALS = 3
"""Values are rounded, so that the last bits of one machine's exponential do not change the hash."""

TASK = """\
name = "{name}"
description = "speeds at {detectors} generated detectors of a road, with jams that travel upstream"
target_columns = [{columns}]
frequency = "5min"
input_size = {input_size}
horizon = {horizon}
calendar = ["hour"]
quantiles = [0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95]
eval_quantiles = [0.1, 0.5, 0.9]
positions = "positions.csv"

[source]
kind = "csv"
path = "traffic.csv"
"""


def positions(detectors: int, random: np.random.Generator) -> Floats:
    """Metres, (N, 2): along a bend, 300 to 700 from each to the next; the first is upstream."""
    along = np.concatenate([[0.0], np.cumsum(random.uniform(300.0, 700.0, detectors - 1))])
    return np.stack([along, 400.0 * np.sin(along / 4000.0)], axis=1)


def speeds(detectors: int, rows: int, random: np.random.Generator) -> Floats:
    """Kilometres an hour, (rows, N)."""
    hours = np.arange(rows) * STEP_MINUTES / 60 % 24
    rush = np.exp(-(((hours - 8) / 1.5) ** 2)) + np.exp(-(((hours - 17.5) / 2) ** 2))
    begins = random.random((rows, detectors)) < (0.0015 + 0.006 * rush)[:, None]
    lasts = random.integers(3, 15, (rows, detectors))
    strength = random.uniform(0.5, 1.0, (rows, detectors))
    jam = np.zeros((rows, detectors))  # 0 flows freely, 1 stands
    left, level = np.zeros(detectors), np.zeros(detectors)
    before = np.zeros(detectors)
    for row in range(rows):
        level = np.where(begins[row], strength[row], level)
        left = np.where(begins[row], lasts[row], np.maximum(left - 1, 0))
        downstream = np.append(before[1:], 0.0)
        before = np.maximum(np.where(left > 0, level, 0.0), 0.94 * downstream)
        jam[row] = before
    free = random.uniform(95.0, 125.0, detectors)
    noise = random.normal(0.0, 2.5, (rows, detectors))
    return np.round(
        np.clip(free * (1 - 0.12 * rush[:, None] - 0.75 * jam) + noise, 3, None), DECIMALS
    )


def write(
    folder: Path,
    *,
    detectors: int,
    rows: int,
    seed: int = 0,
    input_size: int = 24,
    horizon: int = 12,
    name: str = "traffic",
) -> Path:
    """The three files; the task file's path. The same seed writes the same bytes."""
    random = np.random.Generator(np.random.PCG64(seed))
    places = positions(detectors, random)
    values = speeds(detectors, rows, random)
    names = [f"d{number:03d}" for number in range(detectors)]
    folder.mkdir(parents=True, exist_ok=True)
    lines = [",".join(["ds", *names])]
    for row in range(rows):
        time = str(START + np.timedelta64(row * STEP_MINUTES, "m")).replace("T", " ")
        lines.append(",".join([time, *map(str, values[row])]))
    (folder / "traffic.csv").write_text("\n".join(lines) + "\n")
    lines = ["series,x,y"]
    for each, place in zip(names, places, strict=True):
        lines.append(f"{each},{place[0]:.1f},{place[1]:.1f}")
    (folder / "positions.csv").write_text("\n".join(lines) + "\n")
    task = folder / "traffic.toml"
    columns = ", ".join(f'"{each}"' for each in names)
    sizes = {"input_size": input_size, "horizon": horizon}
    task.write_text(TASK.format(name=name, detectors=detectors, columns=columns, **sizes))
    return task


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--detectors", type=int, default=64)
    parser.add_argument("--days", type=int, default=28)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.detectors < 2 or options.days < 1:
        parser.error("at least 2 detectors and 1 day are needed")
    task = write(
        options.folder, detectors=options.detectors, rows=options.days * A_DAY, seed=options.seed
    )
    print(f"{task}: {options.detectors} detectors, {options.days * A_DAY:,} rows")


if __name__ == "__main__":
    main()
