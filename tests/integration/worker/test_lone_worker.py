"""A worker without a supervisor that loses its device's context: a fresh process trains for it, but
not for ever."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cli_processes import Bench, finished
from tests.support.forked_cli import Done
from tests.support.paths import SCRIPTS
from tests.support.small_study import definition
from tuner.errors import TERMINATED, UsageError
from tuner.spec.policy import SearchPolicy
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.open import create_or_resume

STUB = SCRIPTS / "lone_worker.py"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path, f"sqlite:///{tmp_path}/storage/tuner.db")
    database = open_database(parse_url(bench.url))
    create_or_resume(database, "tiny-small", definition(), trials=10).set_policy(
        SearchPolicy(sampler="random")
    )
    database.close()
    interpreter = tmp_path / "python-of-tests"
    interpreter.write_text(
        f'#!/bin/sh\nshift 1\nexec {sys.executable} {STUB} "$@"\n'
    )  # without `-m`
    interpreter.chmod(0o755)
    return bench


def worked(bench: Bench, plan: str, *more: str, gpu: str = "0", study: str = "tiny-small") -> Done:
    (bench.folder / "plan").write_text(plan)
    with (bench.folder / "told").open("a+") as told:
        told.seek(0)
        return finished(
            subprocess.Popen(
                [sys.executable, STUB, "tuner", "worker", "--study", study, "--gpu", gpu, *more],
                cwd=bench.folder,
                env=bench.environment,
                stdin=told,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )


def processes(bench: Bench) -> list[str]:
    """Of each process that trained, which worker started it."""
    return (bench.folder / "processes").read_text().splitlines()


def test_a_device_that_fails_every_trial_is_left_alone_with_a_line(bench: Bench) -> None:
    ended = worked(bench, "x" * 10)
    assert ended.code == 1, ended.err
    last = ended.err.splitlines()[-1]
    assert last.startswith("tuner: error: Example #0 is left alone: 2 processes in a row")
    assert "CUDA error: an illegal memory access" in last
    assert len(processes(bench)) == 2
    tried, made_ready = bench.trials()[:2], bench.trials()[2:]
    assert tried == [(number, "FAIL") for number in range(2)]  # once each, and it has its reason
    assert made_ready == [(2, "WAITING")]


def test_a_device_that_works_in_between_goes_on(bench: Bench) -> None:
    """With a success in each process it may fail as often as there are trials."""
    ended = worked(bench, "xo" * 2 + "o" * 6, gpu="free")
    assert ended.code == 0, ended.err
    assert [state for _, state in bench.trials()] == [
        *(["FAIL", "COMPLETE"] * 2),
        *(["COMPLETE"] * 6),
    ]
    assert len(processes(bench)) == 3
    assert len(set(processes(bench))) == 1


def test_a_worker_that_was_told_to_stop_ends_when_its_device_is_lost(bench: Bench) -> None:
    assert worked(bench, "t" * 10).code == TERMINATED
    made_ready = (1, "WAITING")  # while the first was at work, and handed back
    assert (len(processes(bench)), bench.trials()) == (1, [(0, "FAIL"), made_ready])


def test_a_device_that_takes_not_even_the_data_is_one_line(bench: Bench) -> None:
    (bench.folder / "gone").touch()
    ended = worked(bench, "")
    assert ended.code == 1
    said = "tuner: error: Example #0 cannot be used: CUDA error: no CUDA-capable device is detected"
    assert ended.err.splitlines() == [f"{said}; see 'tuner doctor'"]


def test_a_supervised_worker_may_hear_later_what_it_works_at(bench: Bench) -> None:
    supervised = ("--supervised-by", str(os.getpid()))
    untold = worked(bench, "o" * 10, *supervised, study="-")
    assert untold.code == UsageError.exit_code
    assert "--study -: standard input ended before it named a study" in untold.err
    (bench.folder / "told").write_text("tiny-small\n")
    assert worked(bench, "o" * 10, *supervised, study="-").code == 0
    assert bench.trials() == [(number, "COMPLETE") for number in range(10)]
