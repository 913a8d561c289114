"""Are forecasts of what comes next better from a model that was trained once more on all rows? See refit.md, which this makes.

python benchmarks/worth/refit.py --output benchmarks/worth/refit
"""

import argparse
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.shared.circumstances import circumstances, heading, write
from tuner import load_model
from tuner.config import Architecture, Hyperparameters, TrainingSettings
from tuner.data.prepare import prepare
from tuner.data.task import Task
from tuner.data.windows import to_device
from tuner.export.train import Recipe, Trained, refit, save_trained, train_seeds

ROWS, INPUT, HORIZON, NEXT = 900, 48, 12, 4
LEVELS, KINDS = [0.1, 0.25, 0.5, 0.75, 0.9], ("level", "season")
WHEN = ("before", "steps", "epochs", "grown")
CHOSEN: dict[str, Any] = {"learning_rate": 3e-3, "weight_decay": 0.0, "batch_size": 64}
OWN = Hyperparameters(**CHOSEN, dropout=0.1, hidden_size=16)
HOW: dict[str, Any] = {"architecture": Architecture(model="rmsnorm"), "hyperparameters": OWN}
HOW |= {"training": TrainingSettings(max_epochs=30, patience=5)}
SIZES = {"input_size": INPUT, "horizon": HORIZON, "quantiles": LEVELS, "frequency": "h"}
QUESTION = "# Does a last training on all rows forecast better what comes next?"
PAGE = f"""
{ROWS} hours each, a season and noise; after 70 to 90 % of them comes another level, or another phase and size of the season. Generator, seeds and configuration
were fixed first. A small network sees {INPUT} hours and forecasts {HORIZON}. Losses are mean quantile losses of the {NEXT} windows after the last row, before the last
training and after one of as many steps, of as many epochs, or of epochs that grow with the rows. With as many steps each window is seen less often than it was.
As many epochs are `--refit`. That was chosen after these counts were seen, in place of growing epochs; so the count in the first line is a little lucky.

| change | sets | better: steps | epochs | grown | loss before | steps | epochs | grown |
|---|---|---|---|---|---|---|---|---|"""


def rows_of(number: int) -> tuple[np.ndarray, float]:
    """A day's season and one lag's noise; late, even numbers have another level, and odd ones another season."""
    rng = np.random.default_rng([62, number])
    change, steps = rng.uniform(0.7, 0.9), np.arange(ROWS + NEXT * HORIZON)
    late, noise = steps >= change * ROWS, rng.normal(0, 0.3, len(steps))
    for row in steps[1:]:
        noise[row] += 0.6 * noise[row - 1]
    level = late * rng.choice((-1, 1)) * rng.uniform(1, 3) * (number % 2 == 0)
    phase, size = rng.integers(4, 9), np.where(late, rng.uniform(1.3, 2), 1)
    hours, size = (steps + phase * late, size) if number % 2 else (steps, np.ones(len(steps)))
    return 10 + level + size * np.sin(2 * np.pi * hours / 24) + noise, change


def error(path: Path, table: pd.DataFrame) -> float:
    """Mean quantile loss of a saved model's forecasts of the next windows, each with the rows before it."""
    model, levels, lost = load_model(path), np.array(LEVELS), []
    for first in range(ROWS, len(table), HORIZON):
        forecast = model.predict(table.iloc[:first])[[str(each) for each in LEVELS]].to_numpy()
        missed = table["y"].to_numpy()[first : first + HORIZON, None] - forecast
        lost.append(2 * np.maximum((levels - 1) * missed, levels * missed).mean())
    return float(np.mean(lost))


def one(number: int, folder: Path) -> dict[str, Any]:
    """Of one set, errors of the model before, and of the one trained again for as many epochs, or for as many steps."""
    y, change = rows_of(number)
    table = pd.DataFrame({"ds": pd.date_range("2024-01-01", periods=len(y), freq="h"), "y": y})
    table.iloc[:ROWS].to_csv(folder / "set.csv", index=False)
    named = {"name": "set", "source": {"kind": "csv", "path": folder / "set.csv"}}
    task = Task.model_validate({**named, "target_columns": ["y"], **SIZES})
    part, whole = (prepare(task, cache_dir=folder, whole=each) for each in (False, True))
    data, everything = to_device(part, "cpu"), to_device(whole, "cpu")
    recipe = Recipe(task="set", **HOW, origin={})
    [first] = train_seeds(recipe, data, [0])
    assert isinstance(first, Trained)
    best = first.result.best_epoch
    found = {"set": number, "kind": KINDS[number % 2], "change": change, "best_epoch": best}
    steps = [-(-len(each.train) // OWN.batch_size) for each in (data, everything)]
    epochs = (0, max(1, round(best * steps[0] / steps[1])), best, round(best / 0.6))
    for when, count in zip(WHEN, epochs, strict=True):
        asked = replace(first, result=replace(first.result, best_epoch=count))
        again = refit(recipe, whole, everything, [asked], asked) if count else None
        save_trained(folder / "m.safetensors", recipe, part, [first], "", {}, refitted=again)
        found[when] = error(folder / "m.safetensors", table)
    return found


def page(sets: list[dict[str, Any]], found: dict[str, Any]) -> list[str]:
    """The question, the answer, and the table."""
    lines = []
    for kind in KINDS:
        mine = [each for each in sets if each["kind"] == kind]
        counts = [sum(each[w] < each["before"] for each in mine) for w in WHEN[1:]]
        means = [f"{np.mean([each[w] for each in mine]):.3f}" for w in WHEN]
        lines.append(f"| {' | '.join(map(str, [kind, len(mine), *counts, *means]))} |")
    better = sum(each["epochs"] < each["before"] for each in sets)
    answer = f"**Of {len(sets)} sets with a late change, {better} are forecast better after it.**"
    head = [QUESTION, "", answer, "", *heading(found)[:3], "```", found["command"], "```"]
    return [*head, *PAGE.splitlines(), *lines]


def main() -> None:
    told = argparse.ArgumentParser(description=__doc__)
    told.add_argument("--first", type=int, default=0)
    told.add_argument("--sets", type=int, default=20)
    told.add_argument("--output", type=Path, required=True)
    asked, sets = told.parse_args(), []
    torch.set_num_threads(1)
    for number in range(asked.first, asked.first + asked.sets):
        with tempfile.TemporaryDirectory() as folder:
            sets.append(one(number, Path(folder)))
    write(asked.output, {**(found := circumstances("Two cores")), "sets": sets}, page(sets, found))


if __name__ == "__main__":
    main()
