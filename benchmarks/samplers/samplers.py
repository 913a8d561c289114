"""Our samplers against plain Optuna's on one job: hypervolume against trials, many seeds, resumable.

    python benchmarks/samplers/samplers.py --table benchmarks/samplers/etth-original-h200.csv.gz --seeds 20 --output OUT/h200
    python benchmarks/samplers/samplers.py --seeds 20 --output OUT/simulated

Without --table it runs on the simulated job. Finished searches are kept in OUTPUT/results.csv: the same command goes on
where it stopped. It writes OUTPUT/table.md and OUTPUT/hypervolume.svg too. What was chosen by some seeds and rows is confirmed on
others with `--first-seed 20` and `--rows 200-399`.

200 trials proposed by a Gaussian process took 55 s of CPU time on a small virtual machine, those of the other samplers
1 to 2 s: with 20 seeds the two arms of that kind are more than half an hour of one core. `seconds` is the CPU time of the asking alone: what
a suggestion costs a study beside its trainings.

All arms search the same encoded space and begin with the default configuration. `ours …` are the samplers of
`tuner launch --sampler …`, start-up and all; `optuna …` are Optuna's with nothing but a seed. A hypervolume is judged by
the noise-free values of the converged configurations that were tried; `seen` is of the noisy values that the search saw,
which luck improves.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.shared.one_core import one_core_each

one_core_each()  # before numpy: one search a core

import numpy as np
import optuna
from optuna.samplers import BaseSampler, GPSampler, NSGAIISampler, RandomSampler, TPESampler
from optuna.trial import TrialState

from benchmarks.samplers.job import Job, Outcome, reference
from benchmarks.samplers.report import draw, report
from benchmarks.samplers.simulated_job import SimulatedJob
from tuner.config import SAMPLERS
from tuner.search.sampler import EncodedSampler
from tuner.spec.pareto import hypervolume

FIELDS = ("job", "arm", "seed", "trial", "hypervolume", "seen", "seconds")
PLAIN: dict[str, Any] = {
    "optuna tpe": lambda seed: TPESampler(seed=seed),
    "optuna gp": lambda seed: GPSampler(seed=seed),
    "optuna nsga2": lambda seed: NSGAIISampler(seed=seed),
    "random": lambda seed: RandomSampler(seed=seed),
}
OURS = tuple(f"ours {name}" for name in SAMPLERS if name not in ("random", "kg"))
"""`kg` is what `auto` means."""
EVERY = 5


def make_job(table: str | None, surrogate: str, rows: slice = slice(None)) -> Job:
    if table is None:
        return SimulatedJob()
    from benchmarks.samplers.surrogate import SurrogateJob
    from benchmarks.samplers.table import read_table

    whole = read_table(Path(table))
    return SurrogateJob(replace(whole, rows=whole.rows[rows]), kind=surrogate)


def search(job: Job, arm: str, seed: int, trials: int) -> list[dict[str, Any]]:
    """One search: its rows of results.csv."""
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore")
    study, distributions, decode = _study(job, arm, seed)
    noise = np.random.default_rng([seed, 77])
    bound = reference(job)
    true: list[tuple[float, float]] = []
    seen: list[tuple[float, float]] = []
    rows: list[dict[str, Any]] = []
    asking_s = 0.0
    for number in range(1, trials + 1):
        began = time.process_time()
        trial = study.ask(distributions)
        asking_s += time.process_time() - began
        params = decode(trial.params)
        outcome = job.run(params, noise)
        _tell(study, trial, outcome)
        if outcome.values is not None and outcome.converged:
            seen.append(outcome.values)
            truth = job.truth(params)
            if truth.values is not None and truth.converged:
                true.append(truth.values)
        if number % EVERY == 0 or number == trials:
            rows.append(
                {
                    "job": job.name,
                    "arm": arm,
                    "seed": seed,
                    "trial": number,
                    "hypervolume": f"{hypervolume(true, bound):.6g}",
                    "seen": f"{hypervolume(seen, bound):.6g}",
                    "seconds": f"{asking_s:.2f}",
                }
            )
    return rows


def _study(job: Job, arm: str, seed: int) -> tuple[optuna.Study, Any, Any]:
    kind, _, name = arm.partition(" ")
    ours = kind == "ours"
    sampler: BaseSampler = (
        EncodedSampler(job.space, name, seed=seed, default=job.default)
        if ours
        else PLAIN[arm](seed)
    )
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)
    start = job.space.held if ours else job.space.encode
    study.enqueue_trial(start(job.default))
    if ours:
        return study, job.space.stored(), job.space.true
    return study, job.space.encoded(), job.space.decode


def _tell(study: optuna.Study, trial: optuna.Trial, outcome: Outcome) -> None:
    if outcome.values is None:
        trial.set_user_attr("stopped_by", "diverged")
        study.tell(trial, state=TrialState.FAIL)
    else:
        study.tell(trial, outcome.values)


# -- many searches ----------------------------------------------------------------------------------------------------

_job: Job


def rows_of(text: str) -> slice:
    """`200-399`: both included."""
    first, last = (int(part) for part in text.split("-"))
    return slice(first, last + 1)


def _start(table: str | None, surrogate: str, rows: slice) -> None:
    global _job  # noqa: PLW0603 - one job a process, fitted once
    _job = make_job(table, surrogate, rows)


def _one(arm: str, seed: int, trials: int) -> list[dict[str, Any]]:
    return search(_job, arm, seed, trials)


def run(arguments: argparse.Namespace, results: Path) -> None:
    """All searches that `results` does not hold yet."""
    done = {
        (row["arm"], int(row["seed"]))
        for row in read(results)
        if int(row["trial"]) == arguments.trials
    }
    seeds = range(arguments.first_seed, arguments.first_seed + arguments.seeds)
    todo = [(arm, seed) for seed in seeds for arm in arguments.arms if (arm, seed) not in done]
    fresh = not results.exists()
    initial = (arguments.table, arguments.surrogate, arguments.rows)
    with (
        results.open("a", newline="") as file,
        ProcessPoolExecutor(arguments.processes, initializer=_start, initargs=initial) as pool,
    ):
        writer = csv.DictWriter(file, FIELDS)
        if fresh:
            writer.writeheader()
        running = {
            pool.submit(_one, arm, seed, arguments.trials): (arm, seed) for arm, seed in todo
        }
        for count, future in enumerate(as_completed(running), 1):
            rows = future.result()
            writer.writerows(rows)
            file.flush()
            print(
                f"{count}/{len(todo)} {running[future]}: {rows[-1]['hypervolume']} in {rows[-1]['seconds']} s"
            )


def read(results: Path) -> list[dict[str, str]]:
    if not results.exists():
        return []
    with results.open(newline="") as file:
        return list(csv.DictReader(file))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--table",
        help="table of real trials (benchmarks/samplers/collect.py); default: simulated job",
    )
    parser.add_argument("--surrogate", choices=("forest", "gp"), default="forest")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument(
        "--rows",
        type=rows_of,
        default=slice(None),
        metavar="FIRST-LAST",
        help="of the table, from 0",
    )
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--arms", type=lambda text: tuple(text.split(",")), default=(*OURS, *PLAIN))
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--output", type=Path, required=True)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    results = arguments.output / "results.csv"
    run(arguments, results)
    rows = read(results)
    some = arguments.rows
    part = f"rows {some.start}-{some.stop - 1} of " if some.stop else ""
    what = (
        f"the {arguments.surrogate} surrogate of {part}{Path(arguments.table).name}"
        if arguments.table
        else "the simulated job"
    )
    text = report(rows, f"{what} ({', '.join(sorted({row['job'] for row in rows}))})")
    (arguments.output / "table.md").write_text(text)
    print(text)
    draw(rows, arguments.output / "hypervolume.svg")


if __name__ == "__main__":
    main()
