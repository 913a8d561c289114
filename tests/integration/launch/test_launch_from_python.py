"""`launch.run` as scripts and notebooks call it: what comes back, what it says, and how it
ends."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from sqlalchemy import text

from tests.support import forked_cli
from tests.support.cli_processes import STUDY, Bench, workers_of
from tuner import launch
from tuner.errors import StorageError, UsageError
from tuner.estimate.foretold import SearchForetold
from tuner.launch import launcher, supervisor
from tuner.study.open import OpenStudy


@dataclass
class Onlooker:
    """Hears what is said, sees which studies are worked at, and does something meanwhile."""

    meanwhile: Callable[[], None] = lambda: None
    heard: list[str] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)

    def note(self, line: str) -> None:
        self.heard.append(line)

    @contextmanager
    def watching(self, studies: Sequence[OpenStudy]) -> Iterator[Callable[[], None]]:
        self.seen += [each.name for each in studies]
        yield self.meanwhile


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    folder = tmp_path_factory.mktemp("script")
    return Bench(folder, f"sqlite:///{folder}/storage/tuner.db")


@pytest.fixture(autouse=True)
def _script(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is the script: it has a folder and an environment that name no database."""
    monkeypatch.chdir(bench.folder)
    for name in ("TMPDIR", "TUNER_LOCK_DIR", "PYTHONPATH", "COLUMNS"):
        monkeypatch.setenv(name, bench.environment[name])
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.delenv("TUNER_STORAGE", raising=False)
    monkeypatch.setenv("TUNER_DATA_DIR", "/nowhere")  # which is a flag's, not a function's
    monkeypatch.setattr(subprocess, "Popen", forked_cli.popen())


def asked(bench: Bench, trials: int) -> launch.LaunchRequest:
    return launch.LaunchRequest(
        variants=["small.toml"],
        task="tiny.toml",
        storage=bench.url,
        devices=launch.DeviceChoice(cpu=True, workers=1),
        trials=trials,
        settings=launch.StudySettings(max_epochs=2),
        policy=launch.SearchPolicy(sampler="random", reruns=0, max_time_s=1000.0),
    )


def test_a_script_fills_a_study_and_goes_on_with_it(
    bench: Bench, capfd: pytest.CaptureFixture[str]
) -> None:
    handler = signal.getsignal(signal.SIGINT)
    outcome = launch.run(asked(bench, 2))
    assert capfd.readouterr() == ("", "")
    assert signal.getsignal(signal.SIGINT) is handler
    assert outcome.ended is launch.Outcome.FILLED
    assert outcome.notes == ()
    (study,) = outcome.studies
    assert (study.name, study.filled, study.failure) == (STUDY, True, None)
    assert (study.group, study.search) == (STUDY, 1)
    assert outcome.groups == {STUDY: (study,)}
    assert (study.counts.budget, study.counts.finished) == (2, 2)
    assert [record.number for record in study.results.records] == [0, 1]
    assert all(record.values is not None for record in study.results.records)
    assert workers_of(os.getpid()) == []

    onlooker = Onlooker()
    lifted = launch.LaunchRequest(
        variants="small.toml",
        task="tiny.toml",
        storage=bench.url,
        devices=launch.DeviceChoice(cpu=True, workers=1),
        policy=launch.SearchPolicy(max_time_s=None),
    )
    again = launch.run(lifted, progress=onlooker)
    (study,) = again.studies
    assert study.changed == {"max_time_s": {"from": 1000.0, "to": None}}
    assert study.notes == (
        f"{STUDY} changes from --max-time 1000 to --max-time none",
        f"{STUDY} keeps --max-epochs 2 --sampler random --reruns 0",
    )
    assert again.notes == (
        *study.notes,
        f"nothing to do: {STUDY} holds 2 of 2 finished trials",
    )
    assert onlooker.heard == list(again.notes)
    assert onlooker.seen == []


def test_a_script_may_end_a_launch_whenever_it_wants(bench: Bench) -> None:
    stop = launch.StopRequests()
    onlooker = Onlooker(stop.ask)
    outcome = launch.run(asked(bench, 50), progress=onlooker, stop=stop)
    assert outcome.ended is launch.Outcome.INTERRUPTED
    assert [each.filled for each in outcome.studies] == [False]
    assert onlooker.seen == [STUDY]
    assert workers_of(os.getpid()) == []


def test_a_time_limit_stops_what_is_under_way_and_counts_what_comes_before_the_first_worker(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the seconds that it takes to foretell what a launch will cost."""
    ahead = 0.0

    def once_at_work() -> None:
        nonlocal ahead
        with bench.opened() as study:
            ahead = 1000.0 * (study.ledger.counts().running > 0)

    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + ahead, sleep=time.sleep)
    limited = dataclasses.replace(asked(bench, 60), timeout_s=1000.0, estimate=False)
    with monkeypatch.context() as patch:
        patch.setattr(supervisor, "time", clock)
        patch.setattr(launcher, "keep_baselines", lambda *_: pytest.fail("its time is over"))
        outcome = launch.run(limited, progress=Onlooker(once_at_work))
    assert outcome.ended is launch.Outcome.TIMED_OUT
    assert [each.filled for each in outcome.studies] == [False]
    assert workers_of(os.getpid()) == []
    with bench.opened() as study:
        assert study.ledger.counts().running == 0

    def slowly(*_: object) -> list[SearchForetold]:
        time.sleep(0.5)
        return []

    monkeypatch.setattr(launcher, "foretell", slowly)
    claims = bench.claims()
    late = dataclasses.replace(asked(bench, 60), timeout_s=0.4)
    assert launch.run(late).ended is launch.Outcome.TIMED_OUT
    assert bench.claims() == claims


def test_ctrl_c_in_a_notebook_leaves_no_worker_behind_and_raises(bench: Bench) -> None:
    def interrupt() -> None:
        if workers_of(os.getpid()):
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        launch.run(asked(bench, 51), progress=Onlooker(interrupt))
    assert workers_of(os.getpid()) == []
    with bench.opened() as study:
        assert study.ledger.counts().running == 0
        assert not study.roster.working()


def test_a_study_file_that_a_script_names_and_that_is_not_there_is_one_sentence(
    bench: Bench,
) -> None:
    with pytest.raises(UsageError, match=r"nowhere\.toml"):
        launch.run(dataclasses.replace(asked(bench, 1), variants="nowhere.toml"))


def test_a_database_that_fails_is_one_sentence(bench: Bench) -> None:
    with bench.database() as database, database.engine.begin() as connection:
        connection.execute(text("ALTER TABLE tuner_work RENAME COLUMN state TO condition"))
    with pytest.raises(StorageError, match=r"^the database failed: no such column: .*db check"):
        launch.run(asked(bench, 1))
