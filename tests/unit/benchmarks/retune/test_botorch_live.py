"""Searches by BoTorch in our workers: what is asked when, what is confirmed of them, and what the
committed report says.

BoTorch itself has a stand-in here: it is not among our dependencies.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import delete

from benchmarks.retune import botorch_report, report
from benchmarks.retune.botorch_live import BoTorchSampler, make, noted, plan
from tests.support.drawn_verifications import DEVICE, drawn_result, verify_all
from tests.support.paths import BENCHMARKS
from tests.support.recorded_studies import record_study
from tuner.record import Recorded
from tuner.search.past_runs import Place, place_of
from tuner.spec.space import SearchSpace
from tuner.storage.database import Database, open_database
from tuner.storage.records import TrialResult
from tuner.storage.schema import work
from tuner.storage.url import parse_url
from tuner.study.open import OpenStudy, open_study
from tuner.study.snapshot import StudySnapshot, snapshot
from tuner.trial.job import TrialJob
from tuner.verdict.confirmation import confirmation_of
from tuner.worker.loop import Worker
from tuner.worker.process import StopFlag

TRIALS = 12


@dataclass
class StandIn:
    """Suggests places in the order of their learning rates, and remembers what it was told."""

    space: SearchSpace
    FIRST: int = 4
    BATCH: int = 2
    told: list[Heard] = field(default_factory=list)

    def place(self, number: int) -> Place:
        return place_of(self.space, self.space.at([number / 64] * self.space.dimensions))

    def first_places(self, space: SearchSpace, seed: int) -> list[Place]:
        assert space is self.space
        del seed
        return [self.place(number) for number in range(1, self.FIRST + 1)]

    def Told(  # noqa: N802 - a class there
        self, x: Sequence[Place], y: Sequence[tuple[float, float]], waiting: Sequence[Place]
    ) -> Heard:
        return Heard(tuple(x), tuple(y), tuple(waiting))

    def next_places(self, space: SearchSpace, told: Heard) -> list[Place]:
        assert space is self.space
        first = self.FIRST + self.BATCH * len(self.told) + 1
        self.told.append(told)
        return [self.place(number) for number in range(first, first + self.BATCH)]

    def params_at(self, space: SearchSpace, place: Place) -> dict[str, Any]:
        return dict(space.at(place))


@dataclass(frozen=True)
class Heard:
    x: tuple[Place, ...]
    y: tuple[tuple[float, float], ...]
    open: tuple[Place, ...]


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    """With one search of `original`."""
    url = f"sqlite:///{tmp_path}/tuner.db"
    record_study(url, variant="original", trials=TRIALS)
    database = open_database(parse_url(url))
    yield database
    database.close()


def searched(
    study: OpenStudy, trials: int, monkeypatch: pytest.MonkeyPatch
) -> tuple[StandIn, list[Place]]:
    """Have a worker search until so many trials have ended; what was told, and where they lie."""
    stand_in, stop = StandIn(study.definition.space), StopFlag()
    places = []

    def run(job: TrialJob) -> TrialResult:
        places.append(place_of(stand_in.space, job.hyperparameters.as_dict()))
        if job.number + 1 == trials:
            stop.set()
        return dataclasses.replace(drawn_result(job), values=(1.0 + job.number, 0.8))

    with ThreadPoolExecutor(1) as pool:
        sampler = BoTorchSampler(stand_in.space, stand_in, pool, seed=0)
        monkeypatch.setattr("tuner.worker.trial_source.sampler_for", lambda *_, **__: sampler)
        Worker([study], DEVICE, run, stop=stop).run()
    return stand_in, places


def test_the_default_comes_first_then_sobol_then_what_is_made_while_others_train(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    (name,) = make(open_study(database, "demo-original"), searches=1, seconds=1e6)
    study = open_study(database, name)
    stand_in, places = searched(study, TRIALS, monkeypatch)

    default = study.definition.defaults.as_dict()
    assert places[0] == place_of(stand_in.space, default)
    assert places[1:] == [stand_in.place(number) for number in range(1, TRIALS)]

    first, second, *_ = stand_in.told
    # Made when the last two of the four began: the default and two of them had ended.
    assert first.x == tuple(places[:3])
    assert first.y == ((1.0, 0.8), (2.0, 0.8), (3.0, 0.8))
    assert first.open == tuple(places[3:5])
    # And so on: always while the two before train.
    assert second.x == tuple(places[:5])
    assert second.open == tuple(places[5:7])
    assert all(set(told.x).isdisjoint(told.open) for told in stand_in.told)


def test_searches_are_of_what_the_study_searches_for_equal_seconds(database: Database) -> None:
    like = open_study(database, "demo-original")
    names = make(like, searches=2, seconds=240.0)
    assert names == ["demo-original-botorch", "demo-original-botorch-2"]
    assert make(like, searches=2, seconds=240.0) == names  # again: they are there
    for number, name in enumerate(names, 1):
        study = open_study(database, name)
        assert study.definition == like.definition
        assert (study.membership.group, study.membership.search) == (names[0], number)
        assert (study.policy().search_s, study.policy().prune) == (240.0, False)
        (waiting,) = study.optuna.get_trials()
        assert Recorded.from_flat(waiting.user_attrs).default


def test_what_its_model_recommends_runs_on_the_seeds_of_our_steps(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (name,) = make(open_study(database, "demo-original"), searches=1, seconds=1e6)
    study = open_study(database, name)
    searched(study, 20, monkeypatch)
    picks = tmp_path / "picks.json"

    def pick(now: StudySnapshot) -> int:
        assert len(now.results.records) == 20
        return 7

    for _ in range(2):  # again: nothing new is planned
        noted(picks, name, plan(study, seeds=5, pick=pick))
        assert json.loads(picks.read_text()) == {name: 7}
        runs = study.verifications.runs()
        mine = [run for run in runs if run.trial_number == 7]
        there = confirmation_of(snapshot(study).with_runs_read())
        assert there is not None
        assert 7 not in there.frozen.trials()
        defaults = [run for run in runs if run.trial_number == there.frozen.default]
        assert sorted(run.seed for run in mine) == sorted(run.seed for run in defaults)
        assert len(mine) == 5
        assert {run.session for run in runs} == {there.session}

    first, *waiting = mine
    with database.engine.begin() as connection:  # as an imported study is: nothing waits there
        ids = [run.work_id for run in waiting]
        connection.execute(delete(work).where(work.c.work_id.in_(ids)))
    plan(study, seeds=5, pick=pick)
    again = [run for run in study.verifications.runs() if run.trial_number == 7]
    assert first.work_id in {run.work_id for run in again}
    assert sorted(run.seed for run in again) == sorted(run.seed for run in mine)

    verify_all([study])
    ended = confirmation_of(snapshot(study).with_runs_read())
    assert ended is not None
    assert ended.complete
    assert all(run.result is not None for run in study.verifications.runs())


def test_the_report_follows_from_the_recorded_runs() -> None:
    retunes = BENCHMARKS / "retune"
    picks = json.loads((retunes / "botorch" / "picks.json").read_text(encoding="utf-8"))
    found = botorch_report.rows(
        report.read(retunes / "botorch"), report.read(retunes / "h100"), picks
    )
    page = (retunes / "README.md").read_text(encoding="utf-8")
    of_ours = [each for each in found if each.by == botorch_report.OUR_STEPS]
    times = [row.line().split(" | ")[-1].split(" [")[0] for row in of_ours[3:]]
    assert "in 0.52, 0.64 and 0.74 of the time" in page
    assert sorted(times) == ["0.52", "0.64", "0.74"]
    assert [bool(each.test and each.test.claimed) for each in of_ours] == [False] * 3 + [True] * 3
    assert {each.study.variant for each in found} == {"original", "rmsnorm"}
    assert all(each.run == each.seeds for each in found)
    part = dataclasses.replace(found[-1], run=21)
    assert " under way | 21 of 30 | " in part.line()
    with pytest.raises(SystemExit, match="trial 3, which its model recommends, has not run yet"):
        botorch_report.by_its_model(found[-1].study, {found[-1].study.name: 3})
