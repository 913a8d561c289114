"""Do trials take longer while somebody has the dashboard open?

    python benchmarks/page_open/run.py [--phases 24] [--trials 6] [--output DIR]

One worker trains one configuration over and over on one core. A dashboard serves on another one all
the time. In turns a real browser has its first page open, for some trials, and has not.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from scipy.stats import t

from tests.support.browser import opened
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.open import open_study
from tuner.study.results import read_results

STUDY = """
name = "same"
core_change = "one configuration, again and again"
model = "rmsnorm"

[training]
max_epochs = 60
patience = 1000

[defaults]
learning_rate = 1e-3
weight_decay = 0.0
dropout = 0.1
hidden_size = 16
batch_size = 64

[space]
learning_rate = { low = 1e-3, high = 1e-3 }
weight_decay = { low = 0.0, high = 0.0 }
dropout = { low = 0.1, high = 0.1 }
hidden_size = { low = 16, high = 16 }
batch_size = { low = 64, high = 64 }
"""
MOST = 100_000
"""Trials: it is stopped before."""
PORT = 8997
URL = f"http://127.0.0.1:{PORT}/"


@contextmanager
def running(core: int, folder: Path, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """`tuner WORDS` on one core."""
    with (folder / f"{words[0]}.log").open("wb") as log:
        process = subprocess.Popen(
            ["taskset", "-c", str(core), sys.executable, "-m", "tuner", *words],
            cwd=folder,
            stdout=log,
            stderr=log,
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait()


def measured(folder: Path, phases: int, trials: int) -> list[dict[str, Any]]:
    """Seconds an epoch of each trial, with the phase that it began and ended in."""
    ours, others, *_ = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {others})  # the browser, too
    (folder / "same.toml").write_text(STUDY)
    url = f"sqlite:///{folder}/tuner.db"
    asked = f"launch --variant same.toml --task demo --trials {MOST} --cpu --workers 1"
    more = f"--sampler random --no-prune --max-time none --no-estimate --storage {url}"
    page = f"dashboard --port {PORT} --storage {url}"
    begins = []
    with running(ours, folder, *asked.split(), *more.split()) as launch:
        while not (folder / "tuner.db").exists() or _finished(url) < 1:
            time.sleep(0.5)
        with running(others, folder, *page.split()):
            for phase in range(phases):
                with opened(URL) if phase % 2 else nullcontext():
                    time.sleep(3.0)  # for a page to be read to its end
                    begins.append(time.time())
                    until = _finished(url) + trials
                    while _finished(url) < until and launch.poll() is None:
                        time.sleep(0.2)
                    begins.append(time.time())
    return list(_rows(url, begins))


def _finished(url: str) -> int:
    with closing(open_database(parse_url(url), create=False)) as database:
        try:
            return open_study(database, "demo-same").ledger.counts().finished
        except Exception:  # noqa: BLE001 - it is not there yet
            return 0


def _rows(url: str, begins: list[float]) -> Iterator[dict[str, Any]]:
    with closing(open_database(parse_url(url), create=False)) as database:
        study = open_study(database, "demo-same")
        results = read_results(study)
        moments = {each.number: each for each in study.optuna.get_trials(deepcopy=False)}
        for record in results.records:
            trial, recorded = moments[record.number], record.recorded
            if not trial.datetime_complete or not recorded.epochs or not recorded.wall_clock_s:
                continue
            start, end = trial.datetime_start.timestamp(), trial.datetime_complete.timestamp()
            for phase in range(len(begins) // 2):
                if begins[2 * phase] <= start and end <= begins[2 * phase + 1] + 0.2:
                    epoch_s = recorded.wall_clock_s / recorded.epochs
                    disturbed = bool(recorded.contaminated)
                    yield {"phase": phase, "epoch_s": epoch_s, "contaminated": disturbed}


def said(rows: list[dict[str, Any]], phases: int) -> dict[str, Any]:
    """By pairs of phases: with a page by without one."""
    means = {}
    for phase in range(phases):
        times = [math.log(each["epoch_s"]) for each in rows if each["phase"] == phase]
        if times:
            means[phase] = statistics.fmean(times)
    pairs = [means[n + 1] - means[n] for n in range(0, phases - 1, 2) if {n, n + 1} <= means.keys()]
    middle = statistics.fmean(pairs)
    width = t.ppf(0.975, len(pairs) - 1) * statistics.stdev(pairs) / math.sqrt(len(pairs))
    return {
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores",
        "pairs": len(pairs),
        "trials": len(rows),
        "ratio": [math.exp(each) for each in (middle, middle - width, middle + width)],
        "epoch_s": statistics.median(each["epoch_s"] for each in rows),
        "contaminated": {
            kind: sum(each["contaminated"] for each in rows if each["phase"] % 2 == number)
            for number, kind in enumerate(("without", "with"))
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--phases", type=int, default=24)
    parser.add_argument("--trials", type=int, default=6)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        rows = measured(Path(folder), options.phases, options.trials)
        print(json.dumps(said(rows, options.phases), indent=1))


if __name__ == "__main__":
    main()
