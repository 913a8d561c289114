"""Trials a second of a function that returns at once: `tuner.optimize` beside plain Optuna, in turns:

    python -m benchmarks.own_search.overhead [--trials 200] [--rounds 3] [--postgres URL] [--output OUT/overhead]

The sampler is random on both sides, so that what is compared is what each trial costs beside it. The machine may be shared:
compare within a row.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Iterable

import optuna

import tuner
from benchmarks.own_search.reported import options_of, report
from tuner.storage.url import parse_url


def at_once(trial: optuna.Trial) -> float:
    return trial.suggest_float("x", 0, 1) + trial.suggest_float("y", 0, 1)


def plain(url: str, name: str, trials: int, workers: int) -> float:
    """Trials a second."""
    sampler = optuna.samplers.RandomSampler()
    study = optuna.create_study(study_name=name, storage=parse_url(url).full(), sampler=sampler)
    began = time.perf_counter()
    study.optimize(at_once, n_trials=trials, n_jobs=workers)
    return trials / (time.perf_counter() - began)


def ours(url: str, name: str, trials: int, workers: int) -> float:
    """The same, with the start of the processes; the trials that this is known by are few."""
    common = {"storage": url, "study_name": name, "sampler": "random", "n_jobs": workers}
    began = time.perf_counter()
    result = tuner.optimize(at_once, n_trials=trials, **common)
    took = time.perf_counter() - began
    result.study.close()
    return trials / took


def main(arguments: Iterable[str] | None = None) -> None:
    parser = options_of(__doc__)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--postgres", help="a database to fill")
    options = parser.parse_args(None if arguments is None else list(arguments))
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    rows = []
    for kind in ("SQLite", *(["PostgreSQL"] if options.postgres else [])):
        for workers in (1, 8):
            found: dict[str, list[float]] = {"plain": [], "ours": []}
            for nth in range(options.rounds):
                for who, run in (("plain", plain), ("ours", ours)):
                    with tempfile.TemporaryDirectory() as folder:
                        url = (
                            options.postgres if kind == "PostgreSQL" else f"sqlite:///{folder}/o.db"
                        )
                        name = f"{who} {workers} {nth} {time.time_ns()}"
                        found[who].append(run(url, name, options.trials, workers))
                        print(f"{kind} {workers} {who} {found[who][-1]:.1f}/s", file=sys.stderr)
            theirs, mine = (statistics.median(found[who]) for who in ("plain", "ours"))
            told = {"plain Optuna": f"{theirs:.0f}", "ours": f"{mine:.0f}"}
            told |= {"ratio": f"{mine / theirs:.2f}", "each": found}
            rows.append({"database": kind, "workers": workers, **told})
    report(options.output, rows, ["database", "workers", "plain Optuna", "ours", "ratio"])


if __name__ == "__main__":
    main()
