"""The reference protocol for every variant at the team's hyperparameters, beside the team's own table.

    python benchmarks/reference_protocol/protocol.py --data-dir DIR --device cuda --seeds 3 --output OUT/h200

Writes OUTPUT.json (every run, with device and versions) and OUTPUT.md (the table). Runs are one after the other on
the device, each alone on it.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import sys
from pathlib import Path
from typing import Any

import torch

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.shared.data_folder import add_data_dir
from tuner.config import Backend, RunConfig
from tuner.data.prepare import prepare
from tuner.data.task import load_task
from tuner.data.windows import DeviceData, to_device
from tuner.models.names import builtin_names
from tuner.spec.study_file import load_study_file
from tuner.training import evaluate, fit
from tuner.trial.run import versions

TEAM = {
    "original": (47, 88.0, 1.87, 0.226, 0.809),
    "rmsnorm": (95, 139.0, 1.46, 0.224, 0.835),
    "layernorm": (112, 163.0, 1.45, 0.224, 0.839),
    "simple": (60, 109.0, 1.81, 0.228, 0.848),
}
"""epochs, total time (s), s/epoch, validation loss, test MQL (ETTh1), as the team reported them."""


def run(variant: str, seed: int, backend: Backend, data: DeviceData) -> dict[str, Any]:
    """One training to convergence at the study's default hyperparameters."""
    file = load_study_file(variant)
    config = RunConfig(
        architecture=file.architecture(),
        hyperparameters=file.default_hyperparameters(),
        training=file.training.but(backend=backend),
        seed=seed,
    )
    result = fit(config, data)
    scores = evaluate(result.model, data)
    return {
        "variant": variant,
        "seed": seed,
        "backend": result.backend.value,
        "stopped_by": result.stopped_by.value,
        "epochs": result.epochs,
        "best_epoch": result.best_epoch,
        "wall_clock_s": result.wall_clock_s,
        "setup_s": result.setup_s,
        "s_per_epoch": result.s_per_epoch,
        "val_loss": result.best_val_loss,
        "test_mql": dict(scores.test_mql),
        "val_mql": dict(scores.val_mql),
        "n_parameters": result.n_parameters,
        "peak_memory_bytes": result.peak_memory_bytes,
    }


def table(runs: list[dict[str, Any]]) -> str:
    """Markdown: the team's row, then ours, for each variant."""
    lines = [
        "| variant | who | seed | epochs | total time (s) | s/epoch | val loss | ETTh1 MQL | ETTh2 MQL |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for variant in dict.fromkeys(run["variant"] for run in runs):
        if variant in TEAM:
            epochs, total, per_epoch, val, mql = TEAM[variant]
            lines.append(
                f"| {variant} | the team | | {epochs} | {total:.0f} | {per_epoch:.2f} | {val:.3f} | {mql:.3f} | |"
            )
        for r in (run for run in runs if run["variant"] == variant):
            lines.append(
                f"| {variant} | tuner, {r['backend']} | {r['seed']} | {r['epochs']} | {r['wall_clock_s']:.2f} "
                f"| {r['s_per_epoch']:.3f} | {r['val_loss']:.4f} | {r['test_mql']['ETTh1']:.4f} | {r['test_mql']['ETTh2']:.4f} |"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_data_dir(parser)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--variants",
        default=",".join(["original", *(v for v in builtin_names() if v != "original")]),
    )
    parser.add_argument(
        "--seeds",
        type=int,
        default=3,
        help="seeds of original; every other variant gets --other-seeds",
    )
    parser.add_argument("--other-seeds", type=int, default=1)
    parser.add_argument("--backend", type=Backend, default=Backend.AUTO)
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    data = to_device(prepare(load_task("etth"), data_dir=options.data_dir), options.device)
    runs = []
    for variant in options.variants.split(","):
        for seed in range(options.seeds if variant == "original" else options.other_seeds):
            runs.append(run(variant, seed, options.backend, data))
            print(json.dumps(runs[-1]), flush=True)
    device = (
        torch.cuda.get_device_name() if options.device.startswith("cuda") else platform.processor()
    )
    document = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "device": device,
        "command": " ".join(["python", *sys.argv]),
        "versions": versions(),
        "runs": runs,
    }
    options.output.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")
    options.output.with_suffix(".md").write_text(table(runs) + "\n")
    print(table(runs))


if __name__ == "__main__":
    main()
