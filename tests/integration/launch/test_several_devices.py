"""A trial on two devices at a time, through real processes: sets of cores, which two launches both
want.
"""

from __future__ import annotations

import contextlib
import signal
from pathlib import Path

import psutil
import pytest
from sqlalchemy import select

from tests.support.cli_processes import CORES, Bench, family_of, finished, wait_for
from tuner.errors import TunerError
from tuner.storage.schema import device_leases

RANK = "tuner.training.engines.ranks"


@pytest.fixture
def benches(tmp_path: Path) -> list[Bench]:
    """Two folders with a database each, on one host."""
    locks = {"TUNER_LOCK_DIR": str(tmp_path / "locks")}
    folders = tmp_path / "one", tmp_path / "other"
    for folder in folders:
        folder.mkdir()
    return [Bench(each, f"sqlite:///{each}/storage/tuner.db", locks) for each in folders]


def rank_of(launch: int) -> psutil.Process | None:
    """The process that trains on the second device."""
    for each in psutil.Process(launch).children(recursive=True):
        if any(RANK in word for word in each.cmdline()):
            return each
    return None


def lives(pid: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False


def trains(bench: Bench) -> bool:
    with contextlib.suppress(TunerError):  # the database may not be there yet
        return bench.claims() == [("running", 0)]
    return False


@pytest.mark.skipif(len(CORES) < 2, reason="two devices are two cores at least")
def test_a_rank_that_is_killed_leaves_nothing_and_launches_that_share_devices_fill_their_studies(
    benches: list[Bench],
) -> None:
    one, other = benches
    together = "--set", "gpus_per_trial=2", "--no-estimate"
    with one.launched(1, *together, workers=2, epochs=120) as first:
        wait_for(lambda: trains(one), "a trial at work")
        with other.launched(1, *together, workers=2) as second, family_of(first.pid) as family:
            rank = rank_of(first.pid)
            assert rank is not None
            rank.send_signal(signal.SIGKILL)
            ended = [finished(each) for each in (first, second)]
    for bench, done in zip(benches, ended, strict=True):
        assert done.code == 0, done.err
        assert bench.trials() == [(0, "COMPLETE")]
        with bench.opened() as study:
            recorded = study.optuna.get_trials(deepcopy=False)[0].user_attrs
            with study.database.engine.connect() as connection:
                assert connection.execute(select(device_leases)).all() == []
        assert (recorded["devices"], recorded["backend"]) == (2, "eager")
        assert recorded["device"].startswith("2 x ")
    assert one.claims() == [("lost", 0), ("finished", 0)]
    assert [pid for pid in family if lives(pid)] == []


def test_what_cannot_be_is_refused_in_one_line(benches: list[Bench]) -> None:
    bench = benches[0]
    for more, said in [
        ("--set gpus_per_trial=0", "gpus_per_trial: should be greater than 0, got 0"),
        ("--set gpus_per_trial=2 --workers 1", "and there is 1; --workers 2 shares out the cores"),
        ("--set gpus_per_trial=2 --backend compile", "cannot: choose eager or auto, or 1"),
        (
            "--set gpus_per_trial=2 --variant batchnorm",
            "batchnorm normalises over its batch, of which each device would see a part only",
        ),
    ]:
        done = bench.run(
            *["launch", "--task", "tiny.toml", "--variant", "small.toml", "--cpu"], *more.split()
        )
        assert (done.code, done.err.count("\n")) == (2, 1), done.err
        assert said in done.err
