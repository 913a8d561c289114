"""What kill -9 and Ctrl-C leave of `tuner.optimize`, wherever it is called:

    python -m benchmarks.own_search.kills [--rounds 2] [--output OUT/kills]

In a script without a main guard, under pytest, in asyncio, in a process that was forked and one that was spawned, and in a notebook's
kernel: each is killed, interrupted, and run to its end in one study. The function starts a process of its own. Counted are processes
that were left, results that were lost, and trials of the study beside the forty that were asked for.
"""

from __future__ import annotations

import contextlib
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil
from optuna.trial import TrialState

import tuner
from benchmarks.own_search.reported import options_of, report

TRIALS = 40
BODY = """
import random, subprocess, sys
import tuner


def objective(trial):
    x = trial.suggest_float("x", 0, 1)
    subprocess.run(["sleep", "0.05"])
    return x + random.random()


def search():
    return tuner.optimize(
        objective, n_trials={trials}, n_jobs=2, storage={url!r}, study_name="killed"
    )
"""
PLACES = {
    "script": "\nsearch()\n",
    "pytest": "\ndef test_search():\n    search()\n",
    "asyncio": "\nimport asyncio\n\nasync def main():\n    search()\n\nasyncio.run(main())\n",
    "asyncio, in a thread": (
        "\nimport asyncio\n\nasync def main():\n    await asyncio.to_thread(search)\n\n"
        "asyncio.run(main())\n"
    ),
    "fork": "\nimport multiprocessing as m\np = m.get_context('fork').Process(target=search, daemon=False)\np.start()\np.join()\n",
    "spawn": (
        "\nimport multiprocessing as m\nif __name__ == '__main__':\n"
        "    p = m.get_context('spawn').Process(target=search)\n    p.start()\n    p.join()\n"
    ),
    "notebook": "\nsearch()\n",
}


class Program:
    """The program at work: a process, or a kernel that runs its text as a cell."""

    def __init__(self, place: str, file: Path) -> None:
        self.place, self._kernel = place, None
        if place == "notebook":
            from jupyter_client.manager import KernelManager

            self._kernel = KernelManager()
            self._kernel.start_kernel(cwd=str(file.parent))
            self._client = self._kernel.blocking_client()
            self._client.start_channels()
            self._client.wait_for_ready(60)
            self._client.execute(file.read_text())
            self.process = psutil.Process(self._kernel.provisioner.pid)
            return
        words = [sys.executable, str(file)]
        if place == "pytest":
            words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(file)]
        started = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._popen, self.process = started, psutil.Process(started.pid)

    def calls(self) -> list[psutil.Process]:
        """The processes that its function is called in, and all that is beneath."""
        found = []
        with contextlib.suppress(psutil.NoSuchProcess):
            for each in self.process.children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    if "functions.called" in " ".join(each.cmdline()) or each.name() == "sleep":
                        found.append(each)
        return found

    def send(self, number: signal.Signals) -> None:
        """A terminal sends Ctrl-C to the whole group; here each of the user's own gets it."""
        for each in [self.process, *self.process.children()]:
            with contextlib.suppress(psutil.NoSuchProcess):
                if "functions.called" not in " ".join(each.cmdline()):
                    each.send_signal(number)

    def end(self) -> None:
        """Wait for it; a kernel that was interrupted lives on, and is shut down."""
        if self._kernel is None:
            self._popen.wait(120)
            return
        deadline = time.monotonic() + 60
        while self.calls() and time.monotonic() < deadline:
            time.sleep(0.05)
        self._kernel.shutdown_kernel(now=True)


def tried(place: str, folder: Path, rounds: int) -> dict[str, Any]:
    """Kill and interrupt it so often, then let it end; what was found."""
    url = f"sqlite:///{folder}/killed.db"
    file = folder / "test_program.py"
    file.write_text(BODY.format(trials=TRIALS, url=url) + PLACES[place])
    orphans = lost = 0
    values: dict[int, Any] = {}
    for number in [signal.SIGKILL, signal.SIGINT] * rounds:
        program = Program(place, file)
        until = time.monotonic() + 60
        while len(program.calls()) < 5 and time.monotonic() < until:
            time.sleep(0.01)
        there = program.calls()
        time.sleep(random.uniform(0.05, 0.6))
        there = list({each.pid: each for each in (*there, *program.calls())}.values())
        program.send(number)
        if number is signal.SIGINT:
            program.end()
        psutil.wait_procs(there, timeout=10)
        orphans += sum(each.is_running() for each in there)
        program.end() if number is signal.SIGKILL and place != "notebook" else None
        now = results(url)
        lost += sum(now.get(trial) != value for trial, value in values.items())
        values = now
    program = Program(place, file)
    if place == "notebook":
        until = time.monotonic() + 120
        while len(results(url)) < TRIALS and time.monotonic() < until:
            time.sleep(0.2)
    program.end()
    now = results(url)
    lost += sum(now.get(trial) != value for trial, value in values.items())
    return {
        "called in": place,
        "killed": 2 * rounds,
        "orphans": orphans,
        "results lost": lost,
        f"trials of {TRIALS}": len(now),
    }


def results(url: str) -> dict[int, Any]:
    """Values of complete trials by number."""
    with tuner.create_study("killed", storage=url) as study:
        trials = study.optuna.get_trials(deepcopy=False)
        return {t.number: t.values for t in trials if t.state == TrialState.COMPLETE}


def main(arguments: Iterable[str] | None = None) -> None:
    parser = options_of(__doc__)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--only", choices=list(PLACES))
    options = parser.parse_args(None if arguments is None else list(arguments))
    rows = []
    for place in PLACES:
        if options.only in (None, place):
            with tempfile.TemporaryDirectory() as folder:
                rows.append(tried(place, Path(folder), options.rounds))
            print(rows[-1], file=sys.stderr)
    report(options.output, rows, rows[0])


if __name__ == "__main__":
    main()
