"""kill -9 of the process that trains a program, at eight random moments of one training: no epoch
is lost, none counts twice, and no program is left.

A kernel takes some milliseconds to end a process, and meanwhile the program may end an epoch of
which nobody hears: then it begins anew, as whenever its checkpoint is ahead. Its clock is right in
either case.
"""

from __future__ import annotations

import json
import os
import random
import signal
import time
from contextlib import suppress
from pathlib import Path

import psutil

from tests.support.cli_processes import wait_for
from tests.support.programs import program_job, trained
from tuner.config import EpochRecord
from tuner.storage.records import TrialResult

KILLS, EPOCHS, EPOCH_S = 8, 30, 0.05
STEADY = f"""
mine = os.path.join(told["checkpoint_folder"], "epoch")
done = int(open(mine).read()) if os.path.exists(mine) else 0
open("pids", "a").write(f"{{os.getpid()}}\\n")
open("starts", "a").write(f"{{done}}\\n")
say(started=True)
for number in range(done + 1, {EPOCHS + 1}):
    time.sleep({EPOCH_S})
    while number == {EPOCHS} and not os.path.exists("enough"): time.sleep(0.01)
    epoch(number, 1 / number)
    open(mine + ".half", "w").write(str(number))
    os.replace(mine + ".half", mine)
say(final={{"test_mql": .5, "epochs": {EPOCHS}}})
"""


def attempt(where: Path) -> None:
    """In a process of its own, as a worker: the curve of its attempt is in a file at each moment,
    as it would be in the database."""
    curve: list[EpochRecord] = []

    def write() -> None:
        half = where / "curve.half"
        half.write_text(json.dumps([[each.epoch, each.elapsed_s] for each in curve]))
        half.replace(where / "curve")

    def went_on(records: list[EpochRecord], _repeat: int) -> None:
        curve[:] = records
        write()

    def ended(record: EpochRecord, _repeat: int) -> None:
        curve.append(record)
        write()

    result = trained(
        program_job(
            where,
            STEADY,
            folder=where / "checkpoints",
            max_epochs=EPOCHS,
            on_curve=went_on,
            on_epoch=ended,
        )
    )
    assert result is not None
    (where / "result").write_text(result.to_json())


def curve_of(where: Path) -> list[tuple[int, float]]:
    path = where / "curve"
    return [(number, seconds) for number, seconds in json.loads(path.read_text())]


def living(where: Path) -> list[psutil.Process]:
    pids = (where / "pids").read_text().split() if (where / "pids").exists() else []
    found = []
    for pid in pids:
        with suppress(psutil.NoSuchProcess):
            found.append(psutil.Process(int(pid)))
    return found


def test_a_training_outlives_eight_kills_of_who_trains_it(tmp_path: Path) -> None:
    chance, killed, began = random.Random(20), 0, time.monotonic()
    reach_s = 0.0
    while not (tmp_path / "result").exists():
        worker = os.fork()
        if worker == 0:
            attempt(tmp_path)
            os._exit(0)
        if not killed:  # an epoch has ended by then, however slow this machine is
            wait_for((tmp_path / "curve").exists, "an epoch's end")
            reach_s = max(0.4, 2.0 * (time.monotonic() - began))
            os.kill(worker, signal.SIGKILL)
        elif killed < KILLS:
            time.sleep(chance.uniform(0.0, reach_s))
            os.kill(worker, signal.SIGKILL)
        how = os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])
        assert how in (0, -signal.SIGKILL)
        killed += how == -signal.SIGKILL
        if killed == KILLS:
            (tmp_path / "enough").touch()
        gone, left = psutil.wait_procs(living(tmp_path), timeout=10)
        assert left == [], gone
    assert killed == KILLS
    curve = curve_of(tmp_path)
    assert [number for number, _ in curve] == list(range(1, EPOCHS + 1))
    times = [seconds for _, seconds in curve]
    assert times == sorted(times)
    assert EPOCHS * EPOCH_S < times[-1] < time.monotonic() - began
    recorded = TrialResult.from_json((tmp_path / "result").read_text()).recorded
    assert (recorded.epochs, recorded.wall_clock_s) == (EPOCHS, times[-1])
    gone_on = [int(done) for done in (tmp_path / "starts").read_text().split()]
    assert len([done for done in gone_on if done]) > KILLS / 4
