"""`tuner launch --searches S` as people run it: exact, resumed, grown, killed in between; and what
other commands make of the group."""

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
from tuner.spec.seeds import root_of, seed_of_trial
from tuner.study.open import list_studies, open_study
from tuner.study.results import read_results

PACED = ["paced", "paced-2"]
THREE = [STUDY, f"{STUDY}-2", f"{STUDY}-3"]


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def bench(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    """One group that the tests below, in their order, grow and look at."""
    folder = tmp_path_factory.mktemp("searches")
    if request.param == "sqlite":
        yield Bench(folder, f"sqlite:///{folder}/storage/tuner.db")
        return
    cluster: Cluster = request.getfixturevalue("postgres")
    name = cluster.create_database()
    yield Bench(folder, cluster.url(name))
    cluster.empty_database(name)


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


def test_a_killed_worker_and_launch_cost_no_search_a_trial(bench: Bench) -> None:
    slow = bench.slowed()
    changed = ["--study", "paced", "--searches", "2"]
    with bench.launched(2, *changed, epochs=200) as launch:
        kill(wait_for(lambda: at_work(bench, launch), "a worker that trains"))
        slow.unlink()  # the launch starts another worker
        wait_for(lambda: any(map(finished_trials(bench).get, PACED)), "a first result")
        kill([launch, *workers_of(launch.pid)])
        wait_for(lambda: not workers_of(launch.pid), "the workers' end")
    with bench.database() as database:
        for study in (open_study(database, name) for name in PACED):
            for attempt in [a for n in (0, 1) for a in study.ledger.attempts(n)]:
                # Instead of waiting for leases to run out.
                study.ledger.reap(worker=attempt.worker, state="returned")
    again = bench.launch(2, *changed, epochs=200)
    assert again.code == 0, again.err
    found = finished_trials(bench)
    assert [found[name] for name in PACED] == [[0, 1], [0, 1]]
    with bench.database() as database:
        for name in PACED:
            for record in read_results(open_study(database, name)).records:
                assert record.recorded.seed == seed_of_trial(record.number, root=root_of(name))


def test_status_shows_groups(bench: Bench) -> None:
    document = bench.run("status", "--json").json()
    assert {"name": STUDY, "studies": THREE} in document["groups"]
    table = bench.run("status").out
    assert f"2 of {STUDY}" in table
    one = bench.run("status", "--json", "--study", f"group:{STUDY}").json()
    assert [each["name"] for each in one["studies"]] == THREE


def test_best_says_of_which_search_it_is(bench: Bench) -> None:
    found = bench.run("best", "--study", f"group:{STUDY}", "--pick", "mql", "--json").json()
    assert found["study"] in THREE
    assert (found["provenance"]["group"], found["provenance"]["searches"]) == (STUDY, 3)
    each = [bench.run("best", "--study", name, "--pick", "mql", "--json").json() for name in THREE]
    lowest = min(each, key=lambda one: one["values"]["test_mql"])
    assert (found["study"], found["trial"]) == (lowest["study"], lowest["trial"])
    assert [one["study"] for one in each] == THREE
    text = bench.run("best", "--variant", "small.toml", "--task", "tiny.toml", "--pick", "mql").out
    assert f"(one of 3 searches, {STUDY})" in text
    which = bench.run("best", "--study", f"group:{STUDY}", "--trial", "1")
    assert which.code == 2
    assert f"trial 1 of which search? name it by --study; group '{STUDY}' has: " in which.err


def test_a_group_is_verified_whole_and_is_not_compared_with_itself(bench: Bench) -> None:
    verify = "verify --variant small.toml --task tiny.toml --cpu --workers 1 --top 1 --seeds 1"
    done = bench.run(*verify.split(), "--json", cores=1)
    assert done.code == 0, done.err
    studies = done.json()["studies"]
    # Two epochs end no training: there is no front to verify yet, of no search.
    assert [each["name"] for each in studies] == THREE
    assert len(done.json()["missing"]) == 3
    named = [f"group:{STUDY}", "study:paced"]
    report = bench.run("compare", *named, "--task", "tiny.toml", "--json").json()
    assert {"name": STUDY, "studies": THREE} in report["groups"]
    alone = bench.run("compare", f"group:{STUDY}", "--task", "tiny.toml", "--json").json()
    assert any("searches of one variant alone" in line for line in alone["missing"])


def test_export_and_import_keep_the_group(bench: Bench, tmp_path: Path) -> None:
    file = tmp_path / "second.json.gz"
    exported = bench.run("study", "export", THREE[1], "--output", str(file))
    assert f"search 2 of group {STUDY}" in exported.out, exported.err
    elsewhere = ["--storage", f"sqlite:///{tmp_path}/elsewhere.db"]
    assert bench.run("study", "import", str(file), *elsewhere).code == 0
    found = bench.run("status", "--json", *elsewhere).json()["studies"]
    assert [(each["name"], each["group"], each["search"]) for each in found] == [
        (THREE[1], STUDY, 2)
    ]
    alone = bench.run("study", "import", str(file), "--name", "mine", "--json", *elsewhere).json()
    assert (alone["group"], alone["search"]) == ("mine", 1)
    twice = bench.run("study", "copy", THREE[1], "twin", "--json").json()
    assert (twice["group"], twice["search"]) == ("twin", 1)
