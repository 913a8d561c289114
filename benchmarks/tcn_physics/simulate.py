"""Simulated measurements of a damped oscillator under a known force, one folder a run, and their task file.

    python -m benchmarks.tcn_physics.simulate data/oscillator [--runs 24] [--rows 400] [--noise 0.05] [--seed 0]

Each run starts anywhere and is pushed at random; what is written is position and velocity with the noise of a sensor, and the
force without. The law is that of studies/physics/oscillator.py, integrated exactly from row to row: the force is held.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd
from scipy.linalg import expm

STIFFNESS, DAMPING, STEP_S = 4.0, 0.4, 0.1

TASK = """\
name = "oscillator"
description = "a damped oscillator in {runs} simulated runs: {input_size} rows in, {horizon} out"
target_columns = ["position", "velocity"]
future_covariates = ["force"]
frequency = "100ms"
input_size = {input_size}
horizon = {horizon}
quantiles = [0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95]

[source]
kind = "csv"
path = "data_simulation_*/series.csv"  # every file is a run of its own
runs = "by_file"                       # whole files go to training, validation and test
time_column = "time"
"""


def simulate(
    folder: Path,
    *,
    runs: int = 24,
    rows: int = 400,
    noise: float = 0.05,
    seed: int = 0,
    input_size: int = 32,
    horizon: int = 16,
) -> Path:
    """Write `data_simulation_000/series.csv` and so on; the task file beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    for run in range(runs):
        random = np.random.default_rng([seed, run])
        states, force = motion(random, rows)
        measured = states + noise * random.normal(size=states.shape)
        times = pd.date_range("2024-01-01", periods=rows, freq="100ms")
        table = pd.DataFrame({"time": [each.isoformat() for each in times]})
        table["position"], table["velocity"] = measured.round(6).T
        table["force"] = force.round(6)
        place = folder / f"data_simulation_{run:03}"
        place.mkdir(exist_ok=True)
        table.to_csv(place / "series.csv", index=False)
    task = folder / "oscillator.toml"
    task.write_text(
        TASK.format(runs=runs, input_size=input_size, horizon=horizon), encoding="utf-8"
    )
    return task


def motion(
    random: np.random.Generator, rows: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Position and velocity without noise, (R, 2), and the force that is held from each row to the next, (R,)."""
    force = np.zeros(rows)
    for row in range(1, rows):
        force[row] = 0.95 * force[row - 1] + random.normal()
    system = np.zeros((3, 3))
    system[0, 1] = 1.0
    system[1] = [-STIFFNESS, -DAMPING, 1.0]
    step = expm(STEP_S * system)[:2]
    states = np.zeros((rows, 2))
    states[0] = random.normal(size=2)
    for row in range(1, rows):
        states[row] = step @ [*states[row - 1], force[row - 1]]
    return states, force


def main() -> None:
    parser = argparse.ArgumentParser(description="Simulate an oscillator in many folders.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=24)
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--noise", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    given = vars(parser.parse_args())
    print(f"wrote {given['runs']} runs and {simulate(given.pop('folder'), **given)}")


if __name__ == "__main__":
    main()
