"""`tuner launch --until`: a process beside the workers looks whether to stop, all workers follow,
and whatever is killed, no trial is lost."""

from __future__ import annotations

import shutil
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from tests.support.cli_processes import CORES, STUDY, Bench, wait_for, workers_of
from tests.support.long_studies import long_archive
from tests.support.small_study import STUDY_TOML, write_files
from tuner.devices import CpuCores
from tuner.spec.policy import SearchPolicy
from tuner.storage.database import open_database
from tuner.storage.records import LittleLeft
from tuner.storage.url import parse_url
from tuner.study.open import open_study
from tuner.study.transfer import restore
from tuner.verdict.until import LEAST_TRIALS

FASTER = (
    STUDY_TOML.replace("{ low = 256, high = 256 }", "{ low = 256, high = 1024 }")
    .replace("learning_rate = 1e-3", "learning_rate = 5e-3")
    .replace("dropout = 0.1", "dropout = 0.25")
    .replace("hidden_size = 8\n", "hidden_size = 16\n")
    .replace("[training]\npatience = 100000\n", "")
)
"""In whose space something is as good as the default, and faster."""
STOPPED = "and stopped: more runs of what was tried would save at most"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with a study whose trials are recorded: by them, little is left to gain."""
    folder = tmp_path_factory.mktemp("long")
    write_files(folder)
    (folder / "small.toml").write_text(FASTER)
    archive = long_archive(
        folder,
        variant=str(folder / "small.toml"),
        task=str(folder / "tiny.toml"),
        name=STUDY,
        device=CpuCores((0,)).model,
        max_epochs=2,
    )
    path = folder / "tuner.db"
    with closing(open_database(parse_url(f"sqlite:///{path}"))) as database:
        study = restore(database, archive, STUDY)
        study.ledger.set_budget(600)
        study.set_policy(SearchPolicy(sampler="random", reruns=0))
    return path


@pytest.fixture
def bench(tmp_path: Path, recorded: Path) -> Bench:
    """Of one database: what it keeps of a stopped search is tested on all of them elsewhere."""
    bench = Bench(tmp_path, f"sqlite:///{tmp_path}/storage/tuner.db")
    (tmp_path / "small.toml").write_text(FASTER)
    (tmp_path / "storage").mkdir()
    shutil.copy(recorded, tmp_path / "storage" / "tuner.db")
    return bench


def judges_of(parent: int) -> list[psutil.Process]:
    found = []
    for each in psutil.process_iter():
        try:
            if "tuner.worker.judge" in each.cmdline() and each.ppid() == parent:
                found.append(each)
        except psutil.Error:
            continue
    return found


def why_stopped(bench: Bench) -> LittleLeft | None:
    with bench.opened() as study:
        return study.ledger.counts().little_left


@pytest.mark.slow
def test_it_stops_while_workers_train_and_a_killed_supervisor_loses_nothing(bench: Bench) -> None:
    with bench.opened() as study:  # by an earlier launch, which had nothing to say yet
        study.set_policy(SearchPolicy(sampler="random", reruns=0, until=0.5))
    with bench.launched(600) as launch:
        found = wait_for(lambda: why_stopped(bench), "a search that stops", patience_s=180)
        others = [*judges_of(launch.pid), *workers_of(launch.pid)]
        launch.kill()
        launch.wait()
        wait_for(lambda: not any(map(psutil.Process.is_running, others)), "the end of them all")
    assert found is not None
    assert found.trials >= LEAST_TRIALS

    again = bench.launch(700, "--json")  # with more trials, too
    assert again.code == 0, again.err
    with bench.opened() as study:
        counts = study.ledger.counts()
    assert f"nothing to do: {STUDY} holds {counts.finished} of 700 finished trials" in again.err
    assert STOPPED in again.err
    assert "--until 50%" in again.err  # it is kept
    assert (counts.running, counts.left) == (0, 0)
    states = [state for _, state in bench.trials()]
    assert states.count("COMPLETE") + states.count("FAIL") == counts.finished < 600
    assert states.count("FAIL") == 1  # a recorded one
    assert set(states) <= {"COMPLETE", "FAIL", "WAITING"}
    (status,) = again.json()["studies"]
    assert status["policy"]["until"] == 0.5
    assert status["little_left"] == found.model_dump()


@pytest.mark.slow
def test_a_search_that_stopped_goes_on_where_less_is_asked_for(bench: Bench) -> None:
    """By recorded trials alone, which leave a quarter of a percent to gain: what trials come to
    that run now follows from this machine's clock.
    """
    with bench.opened() as study:
        study.set_policy(SearchPolicy(sampler="random", reruns=0, until=0.5))
        finished = study.ledger.counts().finished
        assert study.ledger.stop(LittleLeft(until=0.5, at_most=0.3, trials=finished))
    less = bench.launch(finished + 1, "--until", "0.0000001%")
    assert less.code == 0, less.err
    assert f"{STUDY} changes from --until 50% to --until 1e-07%" in less.err
    assert f"{STUDY} had stopped with at most 30 % left to save" in less.err
    with bench.opened() as study:
        assert study.ledger.counts().finished == finished + 1
        assert study.ledger.counts().little_left is None
    # What is newly asked for is looked at before anybody works.
    more = bench.launch(700, "--until", "40%")
    assert f"holds {finished + 1} of 700 finished trials, {STOPPED}" in more.err
    assert "trials finished; stopped: more runs of what was tried" in more.out


@pytest.mark.parametrize("kept", [(), ("--keep-alive",)])
def test_a_worker_without_a_launch_is_looked_after_too(bench: Bench, kept: tuple[str, ...]) -> None:
    """Also one that a pod keeps, or an array whose launch is gone."""
    with bench.opened() as study:
        study.set_policy(SearchPolicy(sampler="random", reruns=0, until=0.5))
    done = bench.run("worker", "--study", STUDY, *kept, "--cpu", "--cores", str(CORES[0]))
    assert done.code == 0, done.err
    with closing(open_database(parse_url(bench.url), create=False)) as database:
        counts = open_study(database, STUDY).ledger.counts()
    assert counts.little_left is not None
    assert LEAST_TRIALS <= counts.finished < 600
