"""Actors, workers and launches on Ray, killed at random: what is lost, what counts twice?

    PYTHONPATH=. python benchmarks/chaos/on_ray.py --kills 200

A Ray cluster of one node runs on loopback. A launch places two workers there; every few seconds something is
killed with -9, drawn from a seed: an actor, what keeps its worker alive, the worker, or the launch itself, which is
then given again. Once a budget is full it is raised, until so many were killed. It writes chaos-ray.json and README.md
beside this file.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import ray
from report import write_report

from tests.support.cli_processes import Bench, kill
from tests.support.ray_cluster import RayCluster, ray_cluster
from tests.support.small_study import write_paced
from tuner.storage.queue.leased_queue import LEASE_S
from tuner.version import __version__

ABOUT = (
    "2 workers on Ray, in actors on loopback, on SQLite; actors, what keeps their workers alive, workers and "
    "launches are killed with -9."
)
STEP = 40
"""Trials that the budget grows by."""
WEIGHTS = {"actor": 3, "keeper": 2, "worker": 4, "launch": 1}
BATCH_S = "0.02"


def launch(bench: Bench, trials: int) -> subprocess.Popen[str]:
    words = (
        "launch --variant=small.toml --task=tiny.toml --cpu --workers=2 --on=ray --max-epochs=40 "
        f"--sampler=random --reruns=0 --trials={trials}"
    )
    return bench.start(*words.split())


def victims(cluster: RayCluster, what: str) -> list[psutil.Process]:
    return {"actor": cluster.actors, "keeper": cluster.kept, "worker": cluster.workers}[what]()


def strike(cluster: RayCluster, process: subprocess.Popen[str], draw: random.Random) -> str | None:
    """Kill something; None where there was nothing of the kind."""
    what = draw.choices(list(WEIGHTS), list(WEIGHTS.values()))[0]
    if what == "launch":
        kill([process])
        process.communicate()
        return what
    there = victims(cluster, what)
    if not there:
        return None
    kill([draw.choice(there)])
    return what


def broken_in(bench: Bench, trials: int) -> list[str]:
    """The promises that do not hold of a full budget."""
    claims = bench.claims()
    finished = Counter(number for state, number in claims if state == "finished")
    found = []
    if len(finished) != trials:
        found.append(f"{len(finished)} trials have a result, {trials} were asked for")
    if set(finished.values()) != {1}:
        found.append("a trial has two results")
    if any(state == "running" for state, _ in claims):
        found.append("something is left running")
    checked = bench.run("db", "check")
    if checked.code != 0:
        found.append(f"tuner db check: {checked.out}{checked.err}")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--every", type=float, default=3.0, help="seconds between two of them")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path(__file__).parent)
    options = parser.parse_args()
    folders = [Path(tempfile.mkdtemp(prefix="ray-")) for _ in range(2)]
    try:
        with ray_cluster(folders[0]) as cluster:
            found = harassed(cluster, folders[1], options)
    finally:
        for folder in folders:
            shutil.rmtree(folder, ignore_errors=True)
    about = {"scenario": "ray", "about": ABOUT, "seed": options.seed, "tuner": __version__}
    about |= {"cores": len(os.sched_getaffinity(0)), "python": platform.python_version()}
    about |= {"date": time.strftime("%Y-%m-%d"), "lease_s": LEASE_S, "ray": ray.__version__}
    text = json.dumps(about | found, indent=1)
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "chaos-ray.json").write_text(text + "\n", encoding="utf-8")
    write_report(options.output)
    print(text)
    return 1 if found["broken"] else 0


def harassed(cluster: RayCluster, folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    bench = Bench(folder, f"sqlite:///{folder}/storage/tuner.db", dict(cluster.environment))
    write_paced(folder).write_text(BATCH_S)
    draw, killed, broken = random.Random(options.seed), Counter[str](), []
    began, trials, filled = time.monotonic(), STEP, 0
    process = launch(bench, trials)
    next_strike = began + 4 * options.every
    while True:
        time.sleep(0.2)
        code = process.poll()
        if code == 0:
            process.communicate()
            filled += 1
            broken += broken_in(bench, trials)
            print(f"{time.monotonic() - began:6.0f} s: {trials} trials, {dict(killed)}", flush=True)
            if killed.total() >= options.kills or broken:
                break
            trials += STEP
            process = launch(bench, trials)
        elif code is not None:
            _, errors = process.communicate()
            broken.append(f"a launch ended with exit code {code}: {errors[-400:]}")
            break
        if time.monotonic() >= next_strike and killed.total() < options.kills:
            next_strike = time.monotonic() + options.every
            if (what := strike(cluster, process, draw)) is not None:
                killed[what] += 1
                if what == "launch":
                    process = launch(bench, trials)
    states = Counter(state for state, _ in bench.claims())
    figures = {
        "killed": dict(killed),
        "kills": killed.total(),
        "budget": trials,
        "budgets_filled_on_the_way": filled,
        "claims_by_state": dict(states),
        "minutes": round((time.monotonic() - began) / 60, 1),
    }
    return {"figures": figures, "broken": broken}


if __name__ == "__main__":
    sys.exit(main())
