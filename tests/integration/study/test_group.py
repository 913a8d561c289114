"""Searches as studies of a group: made, grown and found again, on every database."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import pytest

from tests.support.concurrency import at_once
from tests.support.databases import SQLITE_ALONE
from tests.support.groups import THREE, launch, names
from tests.support.in_process_worker import DEVICE, RESULT
from tests.support.small_study import definition
from tuner.errors import UsageError
from tuner.record import Recorded
from tuner.search.sampler import EncodedSampler, sampler_for
from tuner.spec.membership import Membership, root_of, seed_of_trial
from tuner.spec.policy import SearchPolicy
from tuner.storage.database import Database, open_database
from tuner.storage.records import TrialResult
from tuner.storage.url import parse_url
from tuner.study.create import create_study
from tuner.study.open import OpenStudy, create_or_resume, list_studies, open_study
from tuner.study.relaunch import Said, open_studies
from tuner.study.results import read_results
from tuner.study.snapshot import all_meant, open_group, searches_of, studies_meant
from tuner.trial.job import TrialJob
from tuner.worker.loop import Worker


def fill(studies: list[OpenStudy]) -> list[TrialJob]:
    """Have a worker run all trials; what it was given."""
    jobs: list[TrialJob] = []

    def run(job: TrialJob) -> TrialResult:
        jobs.append(job)
        seed = seed_of_trial(job.number, root=job.seed_root)
        return dataclasses.replace(
            RESULT, recorded=Recorded(converged=True, stopped_by="converged", seed=seed)
        )

    for each in studies:
        each.set_policy(SearchPolicy(sampler="random"))
    Worker(studies, DEVICE, run, name="ann").run()
    return jobs


@SQLITE_ALONE
def test_searches_are_studies_of_one_group_with_a_budget_each(database: Database) -> None:
    launched = launch(database, searches=3, trials=2)
    assert names(launched) == THREE == list_studies(database)
    assert [each.study.membership for each in launched] == [
        Membership(group="small", search=number, seed_root=root_of(name))
        for number, name in enumerate(THREE, 1)
    ]
    studies = [each.study for each in launched]
    jobs = fill(studies)
    assert Counter(job.study for job in jobs) == dict.fromkeys(THREE, 2)
    assert [each.ledger.counts().finished for each in studies] == [2, 2, 2]
    for each in studies:
        first, second = read_results(each).records
        assert first.is_default
        assert not second.is_default
    seeds = [r.recorded.seed for each in studies for r in read_results(each).records]
    assert len(set(seeds)) == 6


@SQLITE_ALONE
def test_a_later_launch_keeps_the_size_and_may_be_about_fewer(database: Database) -> None:
    launch(database, searches=3, trials=2)
    again = launch(database, policy={"prune": False})
    assert names(again) == THREE
    assert [each.study.policy().prune for each in again] == [False] * 3
    (first,) = launch(database, searches=1, policy={"prune": True})
    assert first.study.name == "small"
    assert "small has 3 searches; this launch is about the first one" in first.notes
    policies = [open_study(database, name).policy().prune for name in THREE]
    assert policies == [True, False, False]
    assert names(launch(database)) == THREE


@SQLITE_ALONE
def test_a_study_is_the_first_search_when_its_group_grows(database: Database) -> None:
    asked = definition(seeds_per_trial=2)
    (made,) = launch(database, asked=asked, trials=7, policy={"seed": 3, "max_mql": 0.9})
    alone = made.study.membership
    assert alone == Membership(group="small", search=1, seed_root=root_of("small"))
    assert names(launch(database)) == ["small"]
    first, *new = launch(database, searches=3)
    assert names([first, *new]) == THREE
    assert first.study.membership == alone
    assert (
        "small grows from 1 to 3 searches; new ones begin with the settings of small" in first.notes
    )
    for each in new:
        assert each.study.definition.identity() == asked.identity()
        assert each.study.policy() == first.study.policy()
        assert each.study.ledger.counts().budget == 7
        assert each.study.membership.seed_root == root_of(each.study.name)
        assert each.changed == {}


@SQLITE_ALONE
def test_a_growth_that_was_cut_short_is_finished_with_the_same_settings(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    launch(database, trials=7, policy={"prune": False, "sampler": "tpe"})
    with monkeypatch.context() as patch:

        def killed(*_: object) -> None:
            raise KeyboardInterrupt

        patch.setattr("tuner.study.relaunch.change_policy", killed)
        with pytest.raises(KeyboardInterrupt):
            launch(database, searches=2)
    with monkeypatch.context() as patch:

        def once(*given: Any, **more: Any) -> None:
            if given[1] == "small-4":
                raise KeyboardInterrupt
            create_study(*given, **more)

        patch.setattr("tuner.study.open.create_study", once)
        with pytest.raises(KeyboardInterrupt):
            launch(database, searches=4)
    assert list_studies(database) == THREE
    again = launch(database, searches=4)
    assert names(again) == [*THREE, "small-4"]
    assert {each.study.policy() for each in again} == {SearchPolicy(prune=False, sampler="tpe")}
    assert {each.study.ledger.counts().budget for each in again} == {7}


def grow(url: str) -> list[str]:
    database = open_database(parse_url(url), create=False)
    try:
        return names(launch(database, searches=3, trials=2))
    finally:
        database.close()


def test_launches_that_make_the_same_group_at_once_make_one(database_url: str) -> None:
    open_database(parse_url(database_url)).close()
    assert at_once(grow, database_url, processes=4) == [THREE] * 4
    database = open_database(parse_url(database_url), create=False)
    group = open_group(database, "small")
    assert [each.name for each in group.members] == THREE
    assert [len(read_results(each).records) for each in group.members] == [1, 1, 1]
    database.close()


def test_one_search_by_its_name_is_meant_alone(here: Database) -> None:
    launch(here, searches=3)
    (second,) = launch(here, "small-2", policy={"prune": False})
    assert second.study.membership.search == 2
    assert list_studies(here) == THREE
    with pytest.raises(UsageError, match="'small-2' is search 2 of group 'small'"):
        launch(here, "small-2", searches=2)
    assert list_studies(here) == THREE


def test_a_name_that_is_taken_is_refused_and_nothing_is_made(here: Database) -> None:
    create_or_resume(here, "small-2", definition(), trials=3)
    with pytest.raises(UsageError, match="'small-2' is there and is no search of group 'small'"):
        launch(here, searches=3)
    assert list_studies(here) == ["small-2"]
    with pytest.raises(UsageError, match="would be a search of group 'other' and of 'other-2'"):
        open_studies(
            here,
            {"other": definition(), "other-2": definition()},
            Said(searches=2),
            device_model="A",
        )
    assert list_studies(here) == ["small-2"]


def test_another_definition_is_refused_for_any_search(here: Database) -> None:
    launch(here, searches=2)
    with pytest.raises(UsageError, match="max_epochs"):
        launch(here, asked=definition(max_epochs=2), definition=("max_epochs",), searches=3)
    assert list_studies(here) == THREE[:2]


def test_new_searches_begin_on_the_device_model_of_the_others(here: Database) -> None:
    (first,) = launch(here, trials=1)
    first.study.bind_device_model("B")
    fill_up = first.study.ledger.claim("ann")
    assert fill_up is not None
    assert first.study.ledger.finish(fill_up, RESULT)
    launch(here)  # it is full: any device may ask
    with pytest.raises(UsageError, match="measured on 'B', this device is 'A'"):
        launch(here, searches=2)
    assert list_studies(here) == ["small"]


def test_what_names_mean(here: Database) -> None:
    launch(here, searches=2)
    create_or_resume(here, "group:odd", definition(), trials=3)
    assert studies_meant(here, "small") == ["small"]
    assert studies_meant(here, "group:small") == THREE[:2]
    assert studies_meant(here, "group:odd") == ["group:odd"]
    assert searches_of(here, "small") == THREE[:2]
    assert searches_of(here, "nobody") == ["nobody"]
    with pytest.raises(UsageError, match=r"unknown group 'smal' \(did you mean 'small'"):
        studies_meant(here, "group:smal")
    with pytest.raises(UsageError, match="unknown group 'nobody'"):
        open_group(here, "nobody")
    with pytest.raises(UsageError, match="'small-2' is named twice"):
        all_meant(here, ["group:small", "small-2"], variants=False)


def sobol(sampler: EncodedSampler) -> list[list[float]]:
    return [sampler._sobol.point(number) for number in range(1, 13)]


@pytest.mark.parametrize("seed", [None, 7])
def test_no_two_searches_try_the_same_points(seed: int | None) -> None:
    policy = SearchPolicy(sampler="qmc", seed=seed)
    samplers = [
        sampler_for(name, definition(), policy, search=number)
        for number, name in enumerate(THREE, 1)
    ]
    points = [tuple(point) for sampler in samplers for point in sobol(sampler)]
    assert len(set(points)) == len(points)
    assert sobol(samplers[0]) == sobol(sampler_for("small", definition(), policy))


@SQLITE_ALONE
def test_a_worker_draws_other_configurations_for_each_search(database: Database) -> None:
    studies = [each.study for each in launch(database, searches=2, trials=6, policy={"seed": 7})]
    for each in studies:
        each.set_policy(SearchPolicy(sampler="random", seed=7))
    Worker(studies, DEVICE, lambda _: RESULT, name="ann").run()
    one, other = ([tuple(r.params.values()) for r in read_results(s).records] for s in studies)
    assert one[0] == other[0] == tuple(definition().defaults.as_dict().values())
    assert not set(one[1:]) & set(other[1:])
