"""A study whose trials are a program, from its database: whose clock it was, what does not compare
with it, who may run it, and what can be exported of it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from optuna.trial import TrialState

from tests.support.finished_runs import finished_run
from tests.support.in_process_worker import DEVICE
from tests.support.programs import program_definition, write_program
from tests.support.refusals import refused
from tests.support.small_study import definition
from tuner.config import Backend, MqlSplit
from tuner.errors import UsageError
from tuner.export import load_best, render
from tuner.export.train import Recipe, read_recipe
from tuner.launch.plan import refuse_unlike_program
from tuner.launch.retune import RetuneRequest
from tuner.launch.retune_agreement import agreement
from tuner.record import Recorded
from tuner.report.figures.draw import draw
from tuner.report.study_status import status_of
from tuner.spec.policy import SearchPolicy, StudySettings
from tuner.spec.study_file import load_study_file
from tuner.storage.database import Database, open_database
from tuner.storage.queue.verifications import VerificationRun
from tuner.storage.url import parse_url
from tuner.study.archive import archive_of, read_archive, write_archive
from tuner.study.code import require_trust, with_code
from tuner.study.open import OpenStudy, create_or_resume
from tuner.study.snapshot import snapshot
from tuner.study.transfer import restore
from tuner.trial.seeds_and_reruns import run_job
from tuner.verdict.compare.fairness import differences, refuse_different_data
from tuner.verdict.verification_plan import refuse_apart
from tuner.worker.loop import Worker

QUICK = """
say(started=True)
time.sleep(0.2)  # each line is heard by itself, also on a busy machine
epoch(1, 0.5)
say(final={"test_mql": told["seed"] % 9 + 1})
"""
BOTH = r"clock tuner: .*clock process: .*run both by one clock"


class Place(NamedTuple):
    folder: Path
    url: str
    database: Database
    program: OpenStudy
    network: OpenStudy


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A program's study of two trials beside a network's without any, on the same data."""
    folder = tmp_path_factory.mktemp("program")
    url = f"sqlite:///{folder}/tuner.db"
    file = write_program(folder / "program", QUICK)
    database = open_database(parse_url(url))
    made = program_definition(file)
    program = create_or_resume(database, "demo-program", made, trials=2)
    program.set_policy(SearchPolicy(sampler="random", reruns=0))
    Worker([program], DEVICE, functools.partial(run_job, data={})).run()
    network = create_or_resume(database, "demo-rmsnorm", definition(task=made.task), trials=2)
    yield Place(folder, url, database, program, network)
    database.close()


def test_its_clock_is_said_wherever_its_times_are(place: Place) -> None:
    assert status_of(place.program)["clock"] == "process"
    assert status_of(place.network)["clock"] == "tuner"
    (trial, _) = place.program.optuna.get_trials(states=(TrialState.COMPLETE,))
    assert trial.user_attrs["clock"] == "process"
    figure = draw("front", [snapshot(place.program)])
    assert "clock process: a program's lines" in figure.layout.xaxis.title.text


def test_no_verdict_and_no_figure_mixes_two_clocks(place: Place) -> None:
    both = place.network, place.program
    snapshots = [snapshot(each) for each in both]
    with pytest.raises(UsageError, match=BOTH):
        refuse_different_data(snapshots)
    with pytest.raises(UsageError, match=BOTH):
        refuse_apart(both)
    for kind in ("front", "hypervolume", "hypervolume-time", "trade", "curves-time"):
        with pytest.raises(UsageError, match=BOTH):
            draw(kind, snapshots)
    draw("curves", snapshots)  # by epochs
    request = RetuneRequest(
        variant=str(place.folder / "program" / "study.toml"), against="rmsnorm", task="demo"
    )
    with pytest.raises(UsageError, match=BOTH):
        agreement(request, place.database.address)


def test_compare_refuses_two_clocks_in_one_line_that_says_how_to_go_on(place: Place) -> None:
    program = str(place.folder / "program" / "study.toml")
    says = ("clock tuner: ", "clock process: ", "run both by one clock")
    for names in (("rmsnorm", program), ("study:demo-rmsnorm", "study:demo-program")):
        refused(
            *("compare", *names, "--task", "demo", "--storage", place.url),
            folder=place.folder,
            code=2,
            says=says,
        )


def test_a_program_that_ignores_its_seed_is_found_by_its_fresh_seeds(place: Place) -> None:
    def said_of(*mqls: float) -> list[str]:
        runs = tuple(verified(seed, mql) for seed, mql in enumerate(mqls))
        study = dataclasses.replace(snapshot(place.program), read_runs=lambda: runs)
        return [each for each in differences([study]) if "ignores its seed" in each]

    assert said_of(0.5, 0.5000000001) == []
    assert said_of(0.5) == []
    (said,) = said_of(0.5, 0.5, 0.5)
    assert said.startswith("The program of demo-program ignores its seed: 3 fresh seeds gave")


def verified(seed: int, mql: float) -> VerificationRun:
    """A run of trial 0 that found this."""
    recorded = Recorded(test_mql=mql, val_loss=0.5, wall_clock_s=1.0, converged=True)
    return finished_run(0, seed, (1.0, mql), recorded, {"rate": 0.1})


def test_an_exported_study_says_its_program_and_runs_it_only_when_trusted(place: Place) -> None:
    path = place.folder / "export.json"
    write_archive(archive_of(place.program), path)
    read = read_archive(path)
    assert read.definition == place.program.definition
    other = open_database(parse_url(f"sqlite:///{place.folder}/other.db"))
    try:
        restored = restore(other, read, name="imported", origin=str(path))
        with pytest.raises(UsageError, match=r"it runs .*train.py in .*say --trust"):
            require_trust(restored, trust=False)
        said = require_trust(restored, trust=True)
        assert said is not None
        assert "train.py" in said
        assert restored.definition.identity() == place.program.definition.identity()
    finally:
        other.close()


def test_its_hyperparameters_are_exported_and_no_network(place: Place, tmp_path: Path) -> None:
    best = load_best(study="demo-program", storage=place.url, pick="knee")
    file = tmp_path / "best.toml"
    file.write_text(render(best, "toml"))
    assert "rate = " in file.read_text()
    render(best, "json")
    for form in ("python", "neuralforecast", "darts"):
        with pytest.raises(UsageError, match="trains a program of yours"):
            render(best, form)
    for build in (best.build_model, best.to_neuralforecast, lambda: Recipe.of(best)):
        with pytest.raises(UsageError, match="trains a program of yours"):
            build()
    with pytest.raises(UsageError, match="give the \\[params\\] to that program"):
        read_recipe(file)


def test_a_worker_refuses_another_program_than_the_studys(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert with_code(place.program, trust=True) is place.program
    train = place.folder / "program" / "train.py"
    before = train.read_text()
    train.write_text("print('another')")
    try:
        with pytest.raises(UsageError, match="is not the one that study 'demo-program' was made"):
            with_code(place.program)
    finally:
        train.write_text(before)
    away = (place.folder / "program").rename(place.folder / "away")
    try:
        with pytest.raises(UsageError, match="which is not on this host"):
            with_code(place.program)
    finally:
        away.rename(place.folder / "program")


@pytest.mark.parametrize(
    ("settings", "flag"),
    [
        (StudySettings(backend=Backend.EAGER), "--backend"),
        (StudySettings(mql_split=MqlSplit.ORIGINS), "--mql-split origins"),
    ],
)
def test_what_means_nothing_to_a_program_is_refused(
    place: Place, settings: StudySettings, flag: str
) -> None:
    program = load_study_file(str(place.folder / "program" / "study.toml")).program
    assert program is not None
    refuse_unlike_program(program, StudySettings())
    with pytest.raises(UsageError, match=f"{flag} is for networks"):
        refuse_unlike_program(program, settings)
