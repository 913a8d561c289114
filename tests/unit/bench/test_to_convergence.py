"""Trainings of a ladder's rungs, really made: which of them, and how long."""

from __future__ import annotations

import dataclasses

import pytest

from tests.support.small_study import STUDY_TOML
from tuner.bench.contender import Job
from tuner.bench.ladder import Ladder, Trainings, make_ladder, train_rungs
from tuner.config import RunConfig
from tuner.data.windows import DeviceData
from tuner.errors import TunerError
from tuner.spec.study_file import load_study_file
from tuner.training import FitResult, evaluate, fit

pytestmark = pytest.mark.usefixtures("one_core")


@pytest.fixture(scope="module")
def ladder(job: Job, data: DeviceData, tmp_path_factory: pytest.TempPathFactory) -> Ladder:
    """Of two cumulated rungs and one alone, two epochs each."""
    path = tmp_path_factory.mktemp("small") / "small.toml"
    path.write_text(STUDY_TOML.replace("patience = 100000", "max_epochs = 2"))
    whole = make_ladder(job, data, load_study_file(str(path)))
    some = (*whole.rungs[:2], next(rung for rung in whole.rungs if rung.change == "batch 1024"))
    contenders = [whole.contenders[number] for number in map(whole.contender_of, some) if number]
    return dataclasses.replace(whole, rungs=some, contenders=(whole.contenders[0], *contenders))


def train(ladder: Ladder, data: DeviceData, **more: object) -> tuple[Trainings, list[str]]:
    told: list[str] = []
    found = Trainings()
    given = {"seeds": 2, "budget_s": 600.0, "announce": told.append} | more
    train_rungs(ladder, data, found, **given)  # type: ignore[arg-type]
    return found, told


def test_all_rungs_have_the_same_seeds_and_the_cumulated_ones_come_first(
    ladder: Ladder, data: DeviceData
) -> None:
    found, told = train(ladder, data)
    assert (found.missing, found.failures) == ("", {})
    assert set(found.of) == {0, 1, 2}
    assert all([each.seed for each in of] == [1, 2] for of in found.of.values())
    assert all(each.epochs == 2 for of in found.of.values() for each in of)
    assert ["alone" in line for line in told] == sorted("alone" in line for line in told)
    by_seed = [line.partition("seed ")[2][:1] for line in told if "alone" not in line]
    assert by_seed == sorted(by_seed)


def test_its_mql_is_the_objective_of_a_search(
    ladder: Ladder, data: DeviceData, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the series that the task names: the mean over all is another figure."""
    first = ladder.contenders[0]
    only = dataclasses.replace(ladder, rungs=ladder.rungs[:1], contenders=(first,))
    over_all, _ = train(only, data, seeds=1)
    series = job.prepared.series[1]
    task = job.prepared.task.model_copy(update={"objective_series": series})
    one = dataclasses.replace(job, prepared=dataclasses.replace(job.prepared, task=task))
    monkeypatch.setattr(first, "job", one)
    found, _ = train(only, data, seeds=1)
    model = fit(dataclasses.replace(first.config, seed=1), data).model
    assert model is not None
    scores = evaluate(model, data)
    assert found.of[0][0].test_mql == scores.test_mql[series] != scores.test_mql_mean
    assert over_all.of[0][0].test_mql == scores.test_mql_mean


def test_a_budget_ends_the_trainings_with_a_reason(ladder: Ladder, data: DeviceData) -> None:
    found, told = train(ladder, data, budget_s=0.0)
    assert (found.of, told) == ({}, [])
    assert found.missing == "the budget of 0 s was spent"


def test_a_training_that_outlasts_the_budget_is_cut_and_forgotten(
    ladder: Ladder, data: DeviceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of the budget jumps by an hour in the first training."""
    hours = iter([0.0, 0.0, 0.0])
    now = dataclasses.make_dataclass("Time", [("perf_counter", object)])
    monkeypatch.setattr("tuner.bench.ladder.time", now(lambda: next(hours, 3600.0)))
    found, told = train(ladder, data, budget_s=60.0)
    assert (found.of, found.failures, told) == ({}, {}, [])
    assert found.missing == "the budget of 60 s was spent"


def test_a_rung_that_fails_says_why_and_the_others_go_on(
    ladder: Ladder, data: DeviceData, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(config: RunConfig, *given: object, **more: object) -> FitResult:
        if config == dataclasses.replace(ladder.contenders[1].config, seed=config.seed):
            raise TunerError("no such luck")
        return fit(config, *given, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("tuner.bench.ladder.fit", broken)
    found = Trainings(failures={2: "dropped out"})
    train_rungs(ladder, data, found, seeds=1, budget_s=600.0, announce=lambda _line: None)
    assert found.failures == {1: "TunerError: no such luck", 2: "dropped out"}
    assert set(found.of) == {0}
