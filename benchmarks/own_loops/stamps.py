"""How late is the moment of a program's line? A program says in each line when it wrote it, by the
same clock of the machine; held against the moment that tuner gave that line.

    python benchmarks/own_loops/stamps.py [--lines 500] [--core 0]

The program and whoever trains it share one core, as a worker of one core does. The cases: each side
idle or busy, whoever trains slow (50 ms a line, as with a slow database), and a program that prints
without end.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tuner.trial.program.program_process import ProgramProcess

HEAD = """
import json, os, sys, threading, time
report = open(os.environ["TUNER_REPORT"], "a")
def say():
    print(json.dumps({"at": time.perf_counter()}), file=report, flush=True)
def compute(for_s):
    until = time.perf_counter() + for_s
    while time.perf_counter() < until: pass
"""
IDLE = "for _ in range(LINES):\n    time.sleep(0.02)\n    say()\n"
BUSY = "for _ in range(LINES):\n    compute(0.02)\n    say()\n"
PRINTS = "for _ in range(LINES):\n    print('x' * 100_000)\n    say()\n    time.sleep(0.005)\n"


def compute(for_s: float) -> None:
    until = time.perf_counter() + for_s
    while time.perf_counter() < until:
        pass


CASES = {
    "both idle": (IDLE, lambda: None),
    "the program computes": (BUSY, lambda: None),
    "50 ms for each line (waits)": (IDLE, lambda: time.sleep(0.05)),
    "35 ms for each line (computes)": (IDLE, lambda: compute(0.035)),
    "both compute": (BUSY, lambda: compute(0.035)),
    "the program prints 20 MB/s": (PRINTS, lambda: None),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--lines", type=int, default=500)
    parser.add_argument("--core", type=int, default=min(os.sched_getaffinity(0)))
    asked = parser.parse_args()
    os.sched_setaffinity(0, [asked.core])
    print("| case | median | 99 % | latest |\n|---|---|---|---|")
    for name, (text, handle) in CASES.items():
        late = sorted(lateness(text.replace("LINES", str(asked.lines)), handle))
        median, high = late[len(late) // 2], late[len(late) * 99 // 100]
        shown = " | ".join(f"{1000 * each:.2f} ms" for each in (median, high, late[-1]))
        print(f"| {name} | {shown} |", flush=True)


def lateness(text: str, handle: Callable[[], None]) -> list[float]:
    """Seconds by which each line's moment is later than its writing."""
    with tempfile.TemporaryDirectory() as name:
        (Path(name) / "train.py").write_text(HEAD + text)
        found = []
        with ProgramProcess([sys.executable, "train.py"], Path(name), {}, None) as running:
            for said in running.lines():
                if said is not None:
                    line, moment = said
                    found.append(moment - json.loads(line)["at"])
                    handle()
    return found


if __name__ == "__main__":
    main()
