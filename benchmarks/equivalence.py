"""Whole trainings of `original` on the reference job, ten seeds a backend: do the backends train the same model?

    python benchmarks/equivalence.py --data-dir DIR --seeds 10 --output benchmarks/equivalence

Accuracy only: the runs share the GPU, several at a time, and their times mean nothing.
"""

from __future__ import annotations

import argparse
import datetime
import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

TASK = "etth"


def child(data_dir: str, backend: str, seeds: list[int]) -> None:
    """Train these seeds and print a line each."""
    from protocol import run

    from tuner.config import Backend
    from tuner.data.prepare import prepare
    from tuner.data.task import load_task
    from tuner.data.windows import to_device

    data = to_device(prepare(load_task(TASK), data_dir=Path(data_dir)), "cuda")
    for seed in seeds:
        print(json.dumps(run("original", seed, Backend(backend), data)), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--backends", default="eager,graph,compile")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--processes", type=int, default=5, help="per backend, at the same time")
    parser.add_argument("--output", type=Path)
    parser.add_argument("--child", nargs=2, metavar=("BACKEND", "SEEDS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.data_dir, options.child[0], [int(seed) for seed in options.child[1].split(",")])
        return
    running = []
    for backend in options.backends.split(","):
        for share in range(options.processes):
            seeds = ",".join(map(str, range(share, options.seeds, options.processes)))
            command = [sys.executable, __file__, "--data-dir", options.data_dir, "--child", backend, seeds]
            running.append((backend, subprocess.Popen(command, stdout=subprocess.PIPE, text=True)))
    runs: dict[str, list[dict[str, Any]]] = {}
    for backend, process in running:
        out, _ = process.communicate()
        if process.returncode:
            raise SystemExit(f"a {backend} training failed")
        runs.setdefault(backend, []).extend(json.loads(line) for line in out.splitlines() if line.startswith("{"))
    document = {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "command": " ".join(["python", *sys.argv]),
        "runs": runs,
        "summary": {backend: summary(found) for backend, found in runs.items()},
    }
    print(json.dumps(document["summary"], indent=1))
    if options.output:
        options.output.with_suffix(".json").write_text(json.dumps(document, indent=1) + "\n")


def summary(runs: list[dict[str, Any]]) -> dict[str, float]:
    """Means over seeds, and the standard errors of these means."""
    result: dict[str, float] = {"runs": len(runs)}
    for name, values in (
        ("val_loss", [r["val_loss"] for r in runs]),
        ("ETTh1 MQL", [r["test_mql"]["ETTh1"] for r in runs]),
        ("epochs", [float(r["epochs"]) for r in runs]),
    ):
        result[name] = statistics.fmean(values)
        result[f"{name} standard error"] = statistics.stdev(values) / len(values) ** 0.5
    return result


if __name__ == "__main__":
    main()
