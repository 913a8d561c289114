"""One worker, and a study whose programs go wrong in every way: each ends its trial with its reason
in one line, and the worker goes on to the next."""

from __future__ import annotations

import functools
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest
from optuna.trial import FrozenTrial, TrialState

from tests.support.in_process_worker import DEVICE
from tests.support.programs import program_definition, write_program
from tuner.spec.policy import SearchPolicy
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.open import create_or_resume
from tuner.trial.program import program_process
from tuner.trial.seeds_and_reruns import run_job
from tuner.worker.loop import Worker
from tuner.worker.paths import WorkerPaths

SAID = {
    "rubbish": "no line of JSON",
    "hangs": "it hung: it told nothing for 0.5 s",
    "forks": "it ended without an epoch (exit code 0",
    "a gigabyte": "printed more than 32 MiB",
    "no values": "without final values (exit code 0, 1 epochs told)",
}
FAULTS = ("honest", *SAID, "honest")
"""Of the trials, in their order."""

BROKEN = f"""
fault = {FAULTS!r}[told["trial"]]
if fault == "rubbish":
    print("Epoch 1/3 loss nan \\x1b[31m", file=report, flush=True)
if fault == "forks":
    while os.fork() == 0 and os.fork() == 0:
        os.setsid()
        open("forked", "a").write(f"{{os.getpid()}}\\n")
        time.sleep(60)
    while not os.path.exists("forked"):  # else what forked may be ended before it has said so
        time.sleep(0.01)
    raise SystemExit
while fault == "a gigabyte":
    sys.stdout.write("x" * (1 << 20))
if fault in ("rubbish", "hangs"):
    time.sleep(60)
epoch(1, 0.5)
if fault == "honest":
    say(final={{"test_mql": 0.5, "epochs": 1}})
"""


def test_each_ends_its_trial_with_its_reason_and_the_worker_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(program_process, "PRINTED_BYTES", 32 << 20)
    study = write_program(tmp_path / "program", BROKEN, "silence_s = 0.5")
    began = time.monotonic()
    with closing(open_database(parse_url(f"sqlite:///{tmp_path}/tuner.db"))) as database:
        opened = create_or_resume(
            database, "program", program_definition(study), trials=len(FAULTS)
        )
        opened.set_policy(SearchPolicy(sampler="random", reruns=0))
        train = functools.partial(run_job, data={})
        Worker([opened], DEVICE, train, paths=WorkerPaths(tmp_path)).run()
        trials = opened.optuna.get_trials(deepcopy=False)
    assert time.monotonic() - began < 30
    check(trials)
    forked = [int(line) for line in (tmp_path / "program" / "forked").read_text().split()]
    assert forked
    assert not [pid for pid in forked if psutil.pid_exists(pid)]


def check(trials: list[FrozenTrial]) -> None:
    for fault, trial in zip(FAULTS, trials, strict=True):
        if fault == "honest":
            assert trial.state is TrialState.COMPLETE
            continue
        assert trial.state is TrialState.FAIL, fault
        why = trial.user_attrs["failure"]
        assert why.startswith("the program failed: ")
        assert SAID[fault] in why
        assert "\n" not in why
        assert "\x1b" not in why
