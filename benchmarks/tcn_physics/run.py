"""A search over the weight of physics in the loss of a TCN, from simulated folders to figures.

    python -m benchmarks.tcn_physics.run OUTPUT_FOLDER [--trials 24] [--runs 24] [--rows 400] [--max-epochs 100] [--work FOLDER] [--backend graph] [--cpu]

Simulates the data, searches studies/physics/tcn-physics.toml, and writes nine files: the study (study.json.gz), four figures (.html), the
configuration of lowest MQL (best.toml) and its script (best.py), and result.json with result.md: every trial, and what the best configuration comes to with
weights from 0 to 5: test MQL, and the residual of the physics in its forecasts of test files. On one H200 it takes some four minutes.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.shared.circumstances import circumstances, heading
from benchmarks.tcn_physics.simulate import simulate
from tuner import RunConfig, evaluate, fit, load_best, load_data, load_study
from tuner.config import TrainingSettings
from tuner.data.windows import DeviceData
from tuner.training.own_term import tried_term

STUDY_FILE = Path(__file__).parents[2] / "studies" / "physics" / "tcn-physics.toml"
NAME = "tcn-physics"
FIGURES = ("front", "curves", "importances")
WEIGHTS = (0.0, 0.05, 0.5, 5.0)


def main() -> None:
    given = _arguments()
    began = time.perf_counter()
    folder: Path = given.folder
    folder.mkdir(parents=True, exist_ok=True)
    work = (given.work or Path(tempfile.mkdtemp(prefix="tcn-physics-"))).absolute()
    task = simulate(work / "data", runs=given.runs, rows=given.rows)
    storage = f"sqlite:///{work / 'tuner.db'}"
    study = ("--study", NAME, "--storage", storage)
    device = ("--cpu",) if given.cpu else ("--gpus", "0")
    backend = ("--backend", given.backend) if given.backend else ()
    limit = () if given.max_epochs is None else ("--max-epochs", str(given.max_epochs))
    _tuner("variants", "--check", str(STUDY_FILE), "--task", str(task))
    launched = ("--variant", str(STUDY_FILE), "--task", str(task), "--trials", str(given.trials))
    _tuner("launch", *launched, *study, *device, *limit, *backend, "--sampler", "qmc")
    searched_s = time.perf_counter() - began
    _tuner(
        "study",
        "export",
        NAME,
        "--storage",
        storage,
        "--output",
        str(folder / "study.json.gz"),
        "--force",
    )
    for kind in FIGURES:
        _tuner("plot", kind, *study, "--output", str(folder / f"{kind}.html"), "--force")
    best = load_best(study=NAME, pick="mql", values="single", task=str(task), storage=storage)
    for form in ("toml", "python"):
        suffix = "py" if form == "python" else form
        _tuner(
            *(
                "best",
                *study,
                "--task",
                str(task),
                "--pick",
                "mql",
                "--values",
                "single",
                "--format",
                form,
            ),
            into=folder / f"best.{suffix}",
        )
    data = load_data(str(task), device="cpu" if given.cpu else "cuda")
    swept = [_trained(best, data, weight, given.max_epochs) for weight in WEIGHTS]
    found = circumstances("CPU" if given.cpu else torch.cuda.get_device_name()) | {
        "seconds": {"search": round(searched_s, 1), "all": round(time.perf_counter() - began, 1)},
        "best": {"params": best.params, "values": best.values},
        "weights": swept,
        "trials": [_row(record) for record in load_study(NAME, storage=storage).records],
    }
    (folder / "result.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    lines = [*heading(found), *table(found)]
    (folder / "result.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    print("\n".join(lines))


def table(found: dict[str, Any]) -> list[str]:
    """The weights, then the trials by MQL, in Markdown."""
    lines = ["The best configuration, trained again with other weights, one seed each:", ""]
    lines += ["| weight | residual | test MQL | epochs | seconds |", "|---|---|---|---|---|"]
    for row in found["weights"]:
        lines.append(
            f"| {row['weight']:g} | {row['residual']:.5f} | {row['test_mql']:.4f} | "
            f"{row['epochs']} | {row['wall_clock_s']:.1f} |"
        )
    lines += ["", f"The {len(found['trials'])} trials, the search took "]
    lines[-1] += f"{found['seconds']['search']:.0f} s:"
    lines += ["", "| trial | weight | rate | dropout | hidden | batch | validation MQL | seconds |"]
    lines.append("|---" * 8 + "|")
    ended = (row for row in found["trials"] if row["values"])
    for row in sorted(ended, key=lambda row: float(row["values"]["val_mql"])):
        params, values = row["params"], row["values"]
        lines.append(
            f"| {row['number']} | {params['lambda_physics']:.4g} | {params['learning_rate']:.2g} | "
            f"{params['dropout']:.2f} | {params['hidden_size']} | {params['batch_size']} | "
            f"{values['val_mql']:.4f} | {values['wall_clock_s']:.1f} |"
        )
    return lines


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Search the weight of physics in a loss.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--trials", type=int, default=24)
    parser.add_argument("--runs", type=int, default=24)
    parser.add_argument("--rows", type=int, default=400)
    parser.add_argument("--max-epochs", type=int, default=None)
    parser.add_argument(
        "--work", type=Path, default=None, help="for data and database; a temporary folder"
    )
    parser.add_argument("--backend", default=None, help="of the trials; else what auto measures")
    parser.add_argument("--cpu", action="store_true")
    return parser.parse_args()


def _tuner(*words: str, into: Path | None = None) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tuner", *words],
        check=True,
        stdout=subprocess.PIPE if into else None,
        text=True,
    )
    if into is not None:
        into.write_text(done.stdout, encoding="utf-8")


def _trained(best: Any, data: DeviceData, weight: float, max_epochs: int | None) -> dict[str, Any]:
    """The best configuration with this weight: how good it is, and how far from the physics."""
    hyperparameters = best.hyperparameters
    training: TrainingSettings = best.training
    if max_epochs is not None:
        training = training.but(max_epochs=max_epochs)
    own = {**hyperparameters.own, "lambda_physics": weight}
    config = RunConfig(
        architecture=best.definition.architecture,
        hyperparameters=dataclasses.replace(hyperparameters, own=own),
        training=training,
    )
    result = fit(config, data)
    assert result.model is not None, result.message
    assert training.loss is not None
    term = tried_term(training.loss.term, 1.0, data, torch.float32)
    index = torch.arange(len(data.test), device=data.minimum.device)
    batch = data.test.gather(index, with_series=True)
    with torch.no_grad():
        residual = float(term.value(result.model(batch.past, batch.future, batch.static), batch))
    return {
        "weight": weight,
        "residual": residual,
        "test_mql": evaluate(result.model, data).test_mql_mean,
        "val_loss": result.best_val_loss,
        "epochs": result.epochs,
        "wall_clock_s": result.wall_clock_s,
        "backend": result.backend.value,
        "backend_fallback": result.backend_fallback,
    }


def _row(record: Any) -> dict[str, Any]:
    told = record.recorded
    return {
        "number": record.number,
        "params": record.params,
        "values": record.named_values,
        "test_mql": told.test_mql_mean,
        "stopped_by": told.stopped_by,
        "epochs": told.epochs,
        "backend": told.backend,
        "backend_fallback": told.backend_fallback,
        "failure": told.failure,
    }


if __name__ == "__main__":
    main()
