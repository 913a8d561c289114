"""Which forecast wins on series in which it is known: see README.md.

python benchmarks/worth/planted.py --each 50 --output benchmarks/worth/planted.json
python benchmarks/worth/planted.py --each 6 --kinds truth --output benchmarks/worth/planted.json
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

from tuner.config import Architecture, Hyperparameters, RunConfig, TrainingSettings
from tuner.data.prepare import prepare
from tuner.data.source_kinds import CsvSource
from tuner.data.task import Task
from tuner.data.windows import DeviceData, to_device
from tuner.study.baselines import Scored, worth
from tuner.training import evaluate, fit
from tuner.training.baselines.libraries import Statistical
from tuner.training.baselines.plain import score_baselines

LEVELS = (0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95)
NONE, NETWORK, TRUTH = "none", "network", "truth"
"""The last is the first with a test split so long that it says how good each forecast really is."""
SEED = 62
"""Of all series: others were seen while they were planted."""
ROWS, LONG = 6_000, 12_000
WANDERS = 0.225
"""Deviation of the logarithm of the noise's size."""
FAMILY = {
    "last_value": "naive",
    "seasonal_naive": "naive",
    "rows_ago_12": "naive",
    "auto_ets": "ets",
    "last_lags": "linear",
    "nlinear": "linear",
}
NETWORKS = ((32, 5e-3, 0.0),)
"""Hidden size, learning rate and dropout: the lower validation loss is taken."""


def series(kind: str, rng: np.random.Generator) -> np.ndarray:
    """Monthly rows in which one kind of forecast is the best, or none is."""
    if kind == "naive":  # a random walk, or one of each month
        lag, rows = (1, 2000) if rng.random() < 0.5 else (12, 1500)
        y = rng.normal(size=rows) + 0.3
        for row in range(lag, rows):
            y[row] += y[row - lag]
        return y
    if kind == "ets":  # level, growth and months multiply, and so does the noise
        rows, level, growth, months = (
            1500,
            100.0,
            1.0012 + 0.0005 * rng.random(),
            1 + 0.3 * rng.normal(size=12).clip(-2, 2),
        )
        y = np.empty(rows)
        for row in range(rows):
            noise = 0.06 * rng.normal()
            y[row] = level * months[row % 12] * (1 + noise)
            level *= growth * (1 + 0.3 * noise)
        return y
    if kind == "linear":  # two lags that swing
        rows, radius, angle = 1500, 0.85 + 0.05 * rng.random(), 2 * np.pi / rng.uniform(5.3, 9.7)
        y = rng.normal(size=rows)
        for row in range(2, rows):
            y[row] += 2 * radius * np.cos(angle) * y[row - 1] - radius**2 * y[row - 2]
        return y
    if kind == NETWORK:  # a tent: no line through the past says anything
        rows, x, y = 1500, rng.random(), np.empty(1500)
        for row in range(rows):
            x = 1.9 * min(x, 1 - x) + 1e-3 * rng.random()
            y[row] = x + 0.01 * rng.normal()
        return y
    # A level under noise, a seventh of which stays in it: smoothing forecasts that best. What a
    # network loses by scaling each window by itself, it wins as the noise's size wanders.
    y, level, size = rng.normal(size=ROWS + (LONG if kind == TRUTH else 0)), 0.0, 0.0
    moves = rng.normal(size=len(y)) * WANDERS * np.sqrt(1 - 0.98**2)
    for row, move in enumerate(moves):
        size = 0.98 * size + move
        noise = y[row] * np.exp(size)
        y[row] = level + noise
        level += 0.15 * noise
    return y


def prepared(y: np.ndarray, folder: Path, kind: str) -> DeviceData:
    none = kind in (NONE, TRUTH)
    frequency, searched = "D" if none else "MS", (ROWS if none else len(y)) / len(y)
    # Test windows enough to show a network that is 5 % worse, or, where none wins, as few as of a
    # usual study; where a network wins, it has most to learn from.
    train, val = (0.75, 0.2) if none else (0.6, 0.2) if kind == NETWORK else (0.4, 0.1)
    rows = pd.date_range("1750-01-01", periods=len(y), freq=frequency)
    file = folder / "planted.csv"
    pd.DataFrame({"ds": rows, "y": y}).to_csv(file, index=False)
    task = Task(
        name="planted",
        source=CsvSource(kind="csv", path=file),
        target_columns=("y",),
        frequency=frequency,
        input_size=48 if none else 24,
        horizon=2,
        quantiles=LEVELS,
        split=(train * searched, val * searched, 1 - (train + val) * searched),
    )
    return to_device(prepare(task, cache_dir=folder), "cpu")


def of_network(data: DeviceData) -> tuple[float, tuple[float, ...]]:
    """Test MQL, and that of runs of windows, of what validation chooses."""
    training = TrainingSettings(max_epochs=60, patience=8)
    found = []
    for hidden, rate, dropout in NETWORKS:
        own = Hyperparameters(
            learning_rate=rate,
            weight_decay=0.0,
            dropout=dropout,
            hidden_size=hidden,
            batch_size=128,
        )
        config = RunConfig(
            architecture=Architecture(model="original", settings={"n_blocks": 1}),
            hyperparameters=own,
            training=training,
            seed=0,
        )
        found.append(fit(config, data))
    best = min(found, key=lambda each: each.best_val_loss)
    scores = evaluate(best.model, data)
    return scores.test_mql_mean, scores.test_runs


def one(asked: tuple[str, int]) -> dict[str, Any]:
    """What is named of one series."""
    kind, number = asked
    torch.set_num_threads(1)
    y = series(kind, np.random.default_rng([SEED, number, *map(ord, kind)]))
    with tempfile.TemporaryDirectory() as folder:
        data = prepared(y, Path(folder), kind)
        scored = [
            Scored(name=name, test_mql=each.scores.test_mql_mean, test_runs=each.scores.test_runs)
            for name, each in score_baselines(data).items()
        ]
        ets = Statistical(data, "auto_ets")
        ets.set_up()
        ets.fit()
        # As at a launch's end: nobody asks how it does on the validation split.
        none = replace(data.val, starts=data.val.starts[:0], series_index=data.val.series_index[:0])
        scores = evaluate(ets, replace(data, val=none))
        scored.append(
            Scored(name="auto_ets", test_mql=scores.test_mql_mean, test_runs=scores.test_runs)
        )
        mql, runs = of_network(data)
    found = worth(mql, runs, scored, "the network")
    named = {True: NETWORK, False: FAMILY.get(found.named, "naive"), None: NONE}[found.better]
    return {
        "kind": kind,
        "number": number,
        "named": named,
        "network": mql,
        "sentence": found.sentence,
    } | {each.name: each.test_mql for each in scored}


def main() -> None:
    told = argparse.ArgumentParser(description=__doc__)
    told.add_argument("--each", type=int, default=50, help="series of a kind")
    told.add_argument("--kinds", default="naive,ets,linear,network,none")
    told.add_argument("--workers", type=int, default=2)
    told.add_argument("--output", type=Path, required=True, help="goes on with what it holds")
    asked = told.parse_args()
    found = json.loads(asked.output.read_text(encoding="utf-8")) if asked.output.exists() else []
    there = {(each["kind"], each["number"]) for each in found}
    work = [(kind, number) for number in range(asked.each) for kind in asked.kinds.split(",")]
    work = [each for each in work if each not in there]
    with multiprocessing.get_context("spawn").Pool(asked.workers) as pool:
        for each in pool.imap_unordered(one, work):
            found.append(each)
            asked.output.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print("\n".join(table(found)))


WINS = {
    "naive": "a value of the past",
    "ets": "exponential smoothing",
    "linear": "a line",
    NETWORK: "only a network",
    NONE: "none",
}


def table(found: Sequence[dict[str, Any]]) -> list[str]:
    """What README.md says of the result."""
    lines = ["| what wins | series | named | else |", "|---|---|---|---|"]
    for kind, words in WINS.items():
        named = Counter(each["named"] for each in found if each["kind"] == kind)
        right, series = named.pop(kind, 0), sum(named.values())
        others = ", ".join(f"{other} {count}" for other, count in named.most_common())
        lines.append(f"| {words} | {series + right} | {right} | {others or '-'} |")
    apart = []
    for each in found:
        if each["kind"] == TRUTH:
            told = ("kind", "number", "named", "network", "sentence")
            best = min(mql for name, mql in each.items() if name not in told)
            apart.append(100 * (each["network"] / best - 1))
    if apart:
        size = f"{np.mean(apart):+.2f} % on average ({min(apart):+.2f} to {max(apart):+.2f})"
        lines.append(f"\nIn truth, where none wins: the network's MQL is {size} off the best.")
    packages = ", ".join(f"{name} {version(name)}" for name in ("torch", "statsforecast", "numpy"))
    return [*lines, f"\n{time.strftime('%Y-%m-%d')}, {packages}"]


if __name__ == "__main__":
    main()
