"""Processes killed (SIGKILL) at random moments while a launch trains a study: is every trial there
once, with every epoch once, and is no process left?

    python benchmarks/own_loops/kills.py [--kind process] [--kills 20] [--seed 0]

`--kind network` is a network in tuner's own loop: any process below the launch is killed. Of a
`process`, and of `lightning` and `huggingface`, programs with a trainer of theirs, half of the
victims are workers, half are programs or their guards. Each takes some three to six minutes.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

import psutil
from sqlalchemy import select

from tuner.storage import schema
from tuner.storage.database import open_database
from tuner.storage.queue.claims import ATTEMPTED
from tuner.storage.url import parse_url
from tuner.study.open import open_study

HERE = Path(__file__).resolve().parent
STUDIES = {
    "network": "own-small",
    "process": "killed",
    "lightning": "lightning-small",
    "huggingface": "huggingface-small",
}
SLOW = ("lightning", "huggingface")
"""They take seconds to begin: with a kill every few, each trial would lose three workers, or its
program twice, and be set aside."""
TRIALS = 10
"""Asked for at first, and again until there were kills enough."""

PROGRAM = """
import json, os, time
told = json.load(open(os.environ["TUNER_TRIAL"]))
report = open(os.environ["TUNER_REPORT"], "a")
def say(**said): print(json.dumps(said), file=report, flush=True)
mine = os.path.join(told["checkpoint_folder"], "epoch")
done = int(open(mine).read()) if os.path.exists(mine) else 0
say(started=True)
for number in range(done + 1, 11):
    time.sleep(0.15)
    say(epoch=number, train_loss=1 / number, val_loss=1 / number)
    open(mine + ".half", "w").write(str(number))
    os.replace(mine + ".half", mine)
say(final={"test_mql": told["hyperparameters"]["rate"], "epochs": 10})
"""
STUDY = """
name = "killed"
core_change = "a program that is killed"
[process]
command = ["python", "train.py"]
[defaults]
rate = 0.1
[space.rate]
type = "float"
low = 0.01
high = 1.0
[training]
max_epochs = 20
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--kind", choices=STUDIES, default="process")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    chance = random.Random(asked.seed)
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        folder = Path(name)
        write_files(folder)
        url = f"sqlite:///{folder}/storage/tuner.db"
        killed: Counter[str] = Counter()
        trials = 0
        while killed.total() < asked.kills:
            trials += TRIALS
            train(asked.kind, folder, url, trials, killed, asked.kills, chance)
        time.sleep(1.0)
        report(folder, url, STUDIES[asked.kind], killed, trials)


def write_files(folder: Path) -> None:
    """All that a study of each kind needs."""
    for pattern in ("*.py", "*.toml"):
        for path in HERE.glob(pattern):
            shutil.copy(path, folder)
    (folder / "train.py").write_text(PROGRAM)
    (folder / "killed.toml").write_text(STUDY)
    (folder / "tmp").mkdir()


def train(
    kind: str,
    folder: Path,
    url: str,
    trials: int,
    killed: Counter[str],
    kills: int,
    chance: random.Random,
) -> None:
    """Launch until the study has so many trials, and kill meanwhile."""
    while True:
        launch = start(folder, url, STUDIES[kind], trials=trials)
        while launch.poll() is None:
            time.sleep(chance.uniform(*((6.0, 18.0) if kind in SLOW else (1.0, 5.0))))
            if killed.total() >= kills or launch.poll() is not None:
                continue
            if (victim := pick(kind, launch.pid, chance)) is not None:
                what, process = victim
                process.kill()
                killed[what] += 1
                print(f"kill -9 of a {what}", flush=True)
        if launch.returncode == 0:
            return  # else a device failed five times, and is left alone
        print(f"launched again after exit code {launch.returncode}", flush=True)


def start(folder: Path, url: str, study: str, *, trials: int) -> subprocess.Popen[bytes]:
    words = (
        f"launch --variant {study}.toml --task demo --cpu --workers 2 --trials {trials} "
        "--sampler random --reruns 0 --no-prune"
    )
    return subprocess.Popen(
        [sys.executable, "-m", "tuner", *words.split()],
        cwd=folder,
        env=os.environ
        | {
            "TUNER_STORAGE": url,
            "TUNER_LOCK_DIR": str(folder / "locks"),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",  # of `python`
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def pick(kind: str, launch: int, chance: random.Random) -> tuple[str, psutil.Process] | None:
    """A worker, a guard or a program, where one is at work; of a network any process that is."""
    try:
        processes = psutil.Process(launch).children(recursive=True)
    except psutil.Error:
        return None
    if kind == "network":
        return ("process", chance.choice(processes)) if processes else None
    found: dict[str, list[psutil.Process]] = {"worker": [], "guard": [], "program": []}
    for process in processes:
        try:
            line = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if "program_guard.py" in line:
            found["guard"].append(process)
        elif line.endswith(("train.py", "_loop.py")):
            found["program"].append(process)
    if not found["program"]:
        return None
    for guard in found["guard"]:
        if (parent := guard.parent()) is not None:
            found["worker"].append(parent)
    what = chance.choice(["worker", "worker", "program", "guard"])
    return (what, chance.choice(found[what])) if found[what] else None


def report(folder: Path, url: str, name: str, killed: Counter[str], trials: int) -> None:
    database = open_database(parse_url(url), create=False)
    study = open_study(database, f"demo-{name}")
    with database.engine.connect() as connection:
        claims = Counter(connection.scalars(select(schema.work.c.state).where(ATTEMPTED)))
    found = study.optuna.get_trials(deepcopy=False)
    states = Counter(trial.state.name for trial in found)
    complete = [trial for trial in found if trial.state.name == "COMPLETE"]
    epochs = [[row.epoch for row in study.epochs.of_trial(each.number)] for each in complete]
    resumed = sum(bool(each.user_attrs.get("resumed_from_epoch")) for each in complete)
    failures = [each.user_attrs.get("failure") for each in found if each.state.name == "FAIL"]
    left = [
        process.pid
        for process in psutil.process_iter()
        if str(folder) in " ".join(_words(process)) and process.pid != os.getpid()
    ]
    database.close()
    print(f"killed: {dict(killed)}; claims: {dict(claims)}; trials: {dict(states)}")
    print(f"{resumed} trials went on from a checkpoint; failures: {failures}")
    whole = all(
        each == list(range(1, trial.user_attrs["epochs"] + 1))
        for each, trial in zip(epochs, complete, strict=True)
    )
    finished = claims["finished"] == len(found) == trials
    print(f"each trial finished once: {finished}; each epoch once: {whole}; left: {left}")
    if not (finished and whole and not left):
        raise SystemExit("something was lost, or counted twice, or stayed behind")


def _words(process: psutil.Process) -> list[str]:
    try:
        return [*process.cmdline(), process.cwd()]
    except psutil.Error:
        return []


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    main()
