"""Two jobs on one host that see neither each other's lock files nor each other's network: they have
only the database in common."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support import namespaces
from tests.support.cli_processes import Bench, finished, wait_for
from tests.support.present import present
from tuner.record import Recorded
from tuner.storage.queue.claims import stints

TRIALS = 4


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    """Each job has the folder for temporary files, where device locks lie, for itself."""
    if not namespaces.may_be_had():
        missing = "namespaces of one's own need root: run this test as root"
        if os.environ.get("CI") == "true":
            pytest.fail(missing)
        pytest.skip(missing)
    alone = tmp_path / "tmp"
    return Bench(
        tmp_path,
        f"sqlite:///{tmp_path}/storage/tuner.db",
        {
            "TMPDIR": str(alone),
            "XDG_CACHE_HOME": f"{tmp_path}/cache",
            namespaces.VARIABLE: str(alone),
        },
    )


@pytest.mark.slow
def test_jobs_in_namespaces_of_their_own_time_one_after_the_other_and_take_turns(
    bench: Bench,
) -> None:
    """At one core. Without the lease in the database, half of the timed parts overlap."""
    bench.slowed().write_text("0.1", encoding="utf-8")
    words = bench.launch_arguments(TRIALS, epochs=3)
    jobs = [bench.start(*words, cores=1) for _ in range(2)]
    wait_for(lambda: len({*map(mounts_of, [os.getpid(), *(job.pid for job in jobs)])}) == 3, "them")
    for process in jobs:
        done = finished(process)
        assert done.code == 0, done.err
    timed = timed_parts(bench)
    assert [each.number for each in sorted(timed, key=lambda each: each.number)] == [*range(TRIALS)]
    for before, after in itertools.pairwise(sorted(timed)):
        assert before.until <= after.since, (before, after)
    assert len({each.worker for each in timed}) == 2


def mounts_of(process: int) -> str:
    return str(Path(f"/proc/{process}/ns/mnt").readlink())


@dataclass(frozen=True, order=True)
class Timed:
    """When the clock of a trial ran, in seconds since 1970, and whose it was."""

    since: float
    until: float
    worker: str
    number: int


def timed_parts(bench: Bench) -> list[Timed]:
    with bench.opened() as study:
        trials = study.optuna.get_trials(deepcopy=False)
        told = {trial.number: Recorded.from_flat(trial.user_attrs) for trial in trials}
        return [
            Timed(
                present(told[each.trial_number].timed_from),
                present(told[each.trial_number].timed_until),
                each.worker,
                each.trial_number,
            )
            for each in stints(study.database.engine, study.study_id)
            if each.state == "finished"
        ]
