"""Simulated searches, kept in a file: each once, with the sampler that a user gets.

    python benchmarks/verdict/searches.py --searches 60 --jobs 2

200 trials of `alternate`, the default configuration first, on each truth (benchmarks/verdict/truths.py).
A finished search is one line of the file; the same command goes on where it stopped. Trials are not
pruned: a pruned one would have cost less, and says little to the model.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2]))
from benchmarks.shared.one_core import one_core_each

one_core_each()  # before numpy: one search a core

import numpy as np
import optuna
from optuna.trial import TrialState

from benchmarks.verdict.simulation_files import kept, options_of, searches_in
from benchmarks.verdict.truths import TRUTHS, Training, truth
from tuner.search.sampler import EncodedSampler
from tuner.verdict.known_runs import Run

CACHE = Path(__file__).parent / "searches.jsonl"
TRIALS = 200
SAMPLER = "alternate"


def search(name: str, seed: int, trials: int, at_once: int = 1) -> dict[str, Any]:
    """One search of a truth: where it went, and what its trainings gave.

    With `at_once` 2 the next trial is asked for while one trains, as a worker on a GPU does.
    """
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    job = truth(name)
    began = time.process_time()
    sampler = EncodedSampler(job.space, SAMPLER, seed=seed, default=job.default)
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)
    study.enqueue_trial(job.space.held(job.default))
    random = np.random.default_rng([seed, job.made.seed, 77])
    rows: list[list[float]] = []
    begun: list[tuple[optuna.Trial, Training]] = []
    for number in range(trials):
        trial = study.ask(job.space.stored())
        where = job.where(trial.params)
        (training,) = job.runs(where, random)
        rows.append([*where[0].tolist(), training.seconds, training.mql, training.epochs])
        begun.append((trial, training))
        left_open = 0 if number == trials - 1 else at_once - 1
        while len(begun) > left_open:
            told, ended = begun.pop(0)
            if not ended.converged:
                told.set_user_attr("stopped_by", "epoch_limit")
            study.tell(told, (ended.seconds, ended.mql))
    assert all(t.state == TrialState.COMPLETE for t in study.get_trials(deepcopy=False))
    return {"truth": name, "seed": seed, "cpu_s": time.process_time() - began, "trials": rows}


def runs_of_search(found: dict[str, Any], most_epochs: int) -> tuple[list[Run], float]:
    """The converged trials of a search, and the seconds that all of it trained for."""
    runs = [
        Run(trial=number, where=tuple(row[:-3]), seconds=row[-3], mql=row[-2], epochs=row[-1])
        for number, row in enumerate(found["trials"])
        if row[-1] < most_epochs
    ]
    return runs, sum(row[-3] for row in found["trials"])


def read(cache: Path, trials: int = TRIALS) -> list[dict[str, Any]]:
    """The finished searches of so many trials."""
    return [one for one in searches_in(cache) if len(one["trials"]) == trials]


def main() -> None:
    parser = options_of(__doc__)
    parser.add_argument("--searches", type=int, default=40, help="of each truth for reporting")
    parser.add_argument("--tuning", type=int, default=15, help="of each truth for tuning")
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--at-once", type=int, default=1, help="trials open at a time")
    parser.add_argument("--cache", type=Path, default=CACHE)
    options = parser.parse_args()
    done = {(one["truth"], one["seed"]) for one in read(options.cache, options.trials)}
    todo = []
    for made in TRUTHS:
        for seed in range(options.searches if made.report else options.tuning):
            if (made.name, seed) not in done:
                todo.append((made.name, seed))
    with ProcessPoolExecutor(options.jobs) as pool:
        running = [
            pool.submit(search, name, seed, options.trials, options.at_once) for name, seed in todo
        ]
        ended = (future.result() for future in as_completed(running))
        for count, found in enumerate(kept(ended, options.cache), 1):
            print(
                f"{count}/{len(todo)} {found['truth']} {found['seed']}: {found['cpu_s']:.1f} s",
                flush=True,
            )


if __name__ == "__main__":
    main()
