"""`tuner launch --searches S` as people run it: exact, resumed, grown, and killed in between."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.support.cli_processes import STUDY, Bench, kill, wait_for, workers_of
from tests.support.postgres_cluster import Cluster
from tuner.errors import TunerError
from tuner.spec.membership import root_of, seed_of_trial
from tuner.study.open import list_studies, open_study
from tuner.study.results import read_results

pytestmark = pytest.mark.slow
PACED = ["paced", "paced-2"]
THREE = [STUDY, f"{STUDY}-2", f"{STUDY}-3"]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """One group that the tests below, in their order, grow and look at.

    On SQLite; what becomes of it in the tables, `tests/integration/study/test_group.py` shows on
    every database.
    """
    folder = tmp_path_factory.mktemp("searches")
    return Bench(folder, f"sqlite:///{folder}/storage/tuner.db")


@pytest.fixture
def on_postgresql(postgres: Cluster, tmp_path: Path) -> Iterator[Bench]:
    """A group of its own, where one connection is lost and others go on."""
    name = postgres.create_database()
    yield Bench(tmp_path, postgres.url(name))
    postgres.empty_database(name)


def finished_trials(bench: Bench) -> dict[str, list[int]]:
    """The trials with a result of every study, by number."""
    with bench.database() as database:
        studies = [open_study(database, name) for name in list_studies(database)]
        return {
            each.name: [r.number for r in read_results(each).records if r.state.is_finished()]
            for each in studies
        }


def test_one_search_grows_to_three_each_with_all_the_trials(bench: Bench) -> None:
    first = bench.launch(2)
    assert first.code == 0, first.err
    grown = bench.launch(2, "--searches", "3", "--json")
    assert grown.code == 0, grown.err
    assert f"{STUDY} grows from 1 to 3 searches" in grown.err
    document = grown.json()
    assert document["groups"] == [{"name": STUDY, "studies": THREE}]
    assert [
        (each["name"], each["group"], each["search"], each["trials"]["complete"], each["budget"])
        for each in document["studies"]
    ] == [(name, STUDY, number, 2, 2) for number, name in enumerate(THREE, 1)]
    assert finished_trials(bench) == {name: [0, 1] for name in THREE}
    with bench.database() as database:
        seeds = []
        for name in THREE:
            study = open_study(database, name)
            for record in read_results(study).records:
                expected = seed_of_trial(record.number, root=root_of(name))
                assert record.recorded.seed == expected
                seeds.append(expected)
            assert read_results(study).records[0].is_default
        assert len(set(seeds)) == 6
        tried = [
            tuple(read_results(open_study(database, name)).records[1].params.values())
            for name in THREE
        ]
        assert len(set(tried)) == 3


def test_the_same_again_finds_nothing_to_do_and_a_shorter_one_means_all(bench: Bench) -> None:
    for more in (["--searches", "3"], []):
        again = bench.launch(2, *more)
        assert again.code == 0, again.err
        for name in THREE:
            assert f"nothing to do: {name} holds 2 of 2 finished trials" in again.err
    assert finished_trials(bench) == {name: [0, 1] for name in THREE}


def at_work(bench: Bench, launch: subprocess.Popen[str]) -> list[psutil.Process]:
    """The workers of a launch, once one has finished an epoch."""
    assert launch.poll() is None, launch.communicate()
    with contextlib.suppress(TunerError), bench.database() as database:  # it may not be there yet
        for name in set(PACED) & set(list_studies(database)):
            if any(row.epoch for row in open_study(database, name).roster.working()):
                return workers_of(launch.pid)
    return []


def test_a_killed_worker_and_launch_cost_no_search_a_trial(on_postgresql: Bench) -> None:
    bench, slow = on_postgresql, on_postgresql.slowed()
    changed = ["--study", "paced", "--searches", "2"]
    with bench.launched(2, *changed, epochs=30) as launch:
        kill(wait_for(lambda: at_work(bench, launch), "a worker that trains"))
        slow.unlink()  # the launch starts another worker
        wait_for(lambda: any(map(finished_trials(bench).get, PACED)), "a first result")
        kill([launch])  # alone: its workers hand back what they run, and end
        wait_for(lambda: not workers_of(launch.pid), "the workers' end")
    with bench.database() as database:
        for study in (open_study(database, name) for name in PACED):
            for attempt in [a for n in (0, 1) for a in study.ledger.attempts(n)]:
                # On a busy machine the time to hand it back may not suffice.
                study.ledger.reap(worker=attempt.worker, state="returned")
    again = bench.launch(2, *changed, epochs=30)
    assert again.code == 0, again.err
    found = finished_trials(bench)
    assert [found[name] for name in PACED] == [[0, 1], [0, 1]]
    with bench.database() as database:
        for name in PACED:
            for record in read_results(open_study(database, name)).records:
                assert record.recorded.seed == seed_of_trial(record.number, root=root_of(name))
