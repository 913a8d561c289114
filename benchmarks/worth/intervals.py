"""What calibrated intervals hold, on sets that stay as they are and on one that does not: see coverage.md.

python benchmarks/worth/intervals.py --output benchmarks/worth/intervals.json
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from tuner.config import Architecture, Hyperparameters, RunConfig, TrainingSettings
from tuner.data.prepare import prepare
from tuner.data.source_kinds import CsvSource
from tuner.data.task import Task
from tuner.data.windows import to_device
from tuner.training import fit
from tuner.training.calibration import calibrate
from tuner.training.evaluate import forecast_quality

LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
ROWS, COLUMNS, INPUT, HORIZON = 12_000, 2, 24, 4


def rows_of(number: int, *, turned: bool) -> np.ndarray:
    """A season, one lag, and noise: of thin or of fat tails, from set to set; where `turned`, the last fifth obeys another rule."""
    rng = np.random.default_rng(number)
    steps = np.arange(ROWS)[:, None]
    noise = (
        rng.normal(size=(ROWS, COLUMNS)) if number % 2 else rng.standard_t(4, size=(ROWS, COLUMNS))
    )
    y = noise
    slope = rng.uniform(0.2, 0.8)
    for row in range(1, ROWS):
        late = turned and row >= 0.8 * ROWS
        y[row] = (2 * y[row] - 0.9 * y[row - 1]) if late else y[row] + slope * y[row - 1]
    return y + rng.uniform(0, 3) * np.sin(steps * 2 * np.pi / 24 + np.arange(COLUMNS))


def one(number: int, *, turned: bool = False) -> dict[str, Any]:
    """Of each interval, what it promises, and what it held before and after."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "set.csv"
        hours = pd.date_range("2000-01-01", periods=ROWS, freq="h")
        y = rows_of(number, turned=turned)
        pd.DataFrame({"ds": hours, **{f"c{n}": y[:, n] for n in range(COLUMNS)}}).to_csv(
            file, index=False
        )
        task = Task(
            name="set",
            source=CsvSource(kind="csv", path=file),
            target_columns=tuple(f"c{n}" for n in range(COLUMNS)),
            frequency="h",
            input_size=INPUT,
            horizon=HORIZON,
            quantiles=LEVELS,
        )
        data = to_device(prepare(task, cache_dir=Path(folder)), "cpu")
    own = Hyperparameters(
        learning_rate=3e-3, weight_decay=0.0, dropout=0.1, hidden_size=16, batch_size=256
    )
    training = TrainingSettings(max_epochs=6, patience=3)
    model = fit(
        RunConfig(
            architecture=Architecture(model="original"),
            hyperparameters=own,
            training=training,
            seed=0,
        ),
        data,
    ).model
    found = calibrate(model, data, forecast_quality(model, data))
    return {
        "set": number,
        "targets": found.after.rows,
        "failed": found.failed,
        "coverage": found.as_dict()["coverage"],
    }


def main() -> None:
    told = argparse.ArgumentParser(description=__doc__)
    told.add_argument("--sets", type=int, default=20)
    told.add_argument("--output", type=Path)
    asked = told.parse_args()
    torch.set_num_threads(1)
    sets = [one(number) for number in range(asked.sets)]
    for place, interval in enumerate(sets[0]["coverage"]):
        off = {
            when: np.array([each["coverage"][place][when] for each in sets]) - interval["nominal"]
            for when in ("before", "after")
        }
        told_off = ", ".join(
            f"{when}: mean {100 * v.mean():+.2f}, from {100 * v.min():+.2f} to {100 * v.max():+.2f} points"
            for when, v in off.items()
        )
        print(f"{interval['nominal']:.0%} interval, {told_off}")
    print(
        f"targets of a set: {min(each['targets'] for each in sets):,} at least; said to have failed: {sum(bool(each['failed']) for each in sets)}"
    )
    shifted = one(0, turned=True)
    print(f"planted shift: {shifted['failed'] or 'nothing said'}")
    if asked.output:
        asked.output.write_text(
            json.dumps({"sets": sets, "shifted": shifted}, indent=1) + "\n", encoding="utf-8"
        )


if __name__ == "__main__":
    main()
