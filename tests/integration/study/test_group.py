"""Searches as studies of a group: made, grown and found again, on every database; and what others
wrote in their place."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from optuna.trial import TrialState
from sqlalchemy import text

from tests.support.concurrency import at_once
from tests.support.in_process_worker import DEVICE, RESULT
from tests.support.small_study import definition
from tests.support.spaces import with_range
from tuner.errors import StorageError, UsageError
from tuner.record import Recorded
from tuner.report.standing import standing
from tuner.report.study_status import groups_of, status_of
from tuner.search.sampler import EncodedSampler, sampler_for
from tuner.spec.definition import StudyDefinition
from tuner.spec.membership import Membership
from tuner.spec.policy import SearchPolicy
from tuner.spec.seeds import root_of, seed_of_trial
from tuner.storage.database import Database, open_database
from tuner.storage.records import TrialResult
from tuner.storage.url import parse_url
from tuner.study.archive import archive_of, read_archive, write_archive
from tuner.study.create import MEMBERSHIP, create_study
from tuner.study.group import all_meant, grouped, open_group, searches_of, studies_meant
from tuner.study.open import OpenStudy, create_or_resume, list_studies, open_study
from tuner.study.relaunch import Launched, Said, open_studies
from tuner.study.results import read_results
from tuner.study.snapshot import snapshot
from tuner.study.transfer import copy_study, extend_space, restore
from tuner.trial.job import TrialJob
from tuner.worker.loop import Worker

THREE = ["small", "small-2", "small-3"]


@pytest.fixture
def here(tmp_path: Path) -> Iterator[Database]:
    """A database for what is the same on each kind."""
    opened = open_database(parse_url(f"sqlite:///{tmp_path}/here.db"))
    yield opened
    opened.close()


def launch(
    database: Database, name: str = "small", asked: StudyDefinition | None = None, **said: Any
) -> list[Launched]:
    return open_studies(database, {name: asked or definition()}, Said(**said), device_model="A")


def names(launched: list[Launched]) -> list[str]:
    return [each.study.name for each in launched]


def from_before(study: OpenStudy) -> OpenStudy:
    """The study as an older tuner made it: nothing says where it belongs."""
    with study.database.engine.begin() as connection:
        connection.execute(
            text(
                "DELETE FROM study_user_attributes WHERE study_id = :id AND key = :key"
            ).bindparams(id=study.study_id, key=MEMBERSHIP)
        )
    return open_study(study.database, study.name)


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


# -- made and grown --------------------------------------------------------------------------------


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


def test_a_study_of_before_is_the_first_search_when_its_group_grows(database: Database) -> None:
    asked = definition(seeds_per_trial=2)
    (made,) = launch(database, asked=asked, trials=7, policy={"seed": 3, "max_mql": 0.9})
    old = from_before(made.study)
    assert old.membership == Membership(group="small", search=1, seed_root=None)
    assert names(launch(database)) == ["small"]
    first, *new = launch(database, searches=3)
    assert names([first, *new]) == THREE
    assert first.study.membership == old.membership
    assert (
        "small grows from 1 to 3 searches; new ones begin with the settings of small" in first.notes
    )
    for each in new:
        assert each.study.definition.identity() == asked.identity()
        assert each.study.policy() == first.study.policy()
        assert each.study.ledger.counts().budget == 7
        assert each.study.membership.seed_root == root_of(each.study.name)
        assert each.changed == {}
    jobs = fill([first.study, new[0].study])
    roots = {job.study: job.seed_root for job in jobs}
    assert roots == {"small": None, "small-2": root_of("small-2")}


def test_what_a_study_of_before_began_goes_on_with_its_seeds(database: Database) -> None:
    (made,) = launch(database, trials=2)
    old = from_before(made.study)
    handed_back: list[int | None] = []

    def run(job: TrialJob) -> TrialResult | None:
        handed_back.append(job.seed_root)
        return None if len(handed_back) == 1 else RESULT

    Worker([old], DEVICE, run, name="ann").run()
    assert handed_back == [None] * 3


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


# -- names -----------------------------------------------------------------------------------------


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
        launch(here, asked=definition(max_epochs=5), definition=("max_epochs",), searches=3)
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


# -- independent -----------------------------------------------------------------------------------


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


def test_a_worker_draws_other_configurations_for_each_search(database: Database) -> None:
    studies = [each.study for each in launch(database, searches=2, trials=6, policy={"seed": 7})]
    for each in studies:
        each.set_policy(SearchPolicy(sampler="random", seed=7))
    Worker(studies, DEVICE, lambda _: RESULT, name="ann").run()
    one, other = ([tuple(r.params.values()) for r in read_results(s).records] for s in studies)
    assert one[0] == other[0] == tuple(definition().defaults.as_dict().values())
    assert not set(one[1:]) & set(other[1:])


# -- copied, exported, imported --------------------------------------------------------------------


def test_an_archive_carries_the_group_and_a_copy_stands_alone(
    database: Database, tmp_path: Path
) -> None:
    second = launch(database, searches=2, trials=3)[1].study
    write_archive(archive_of(second), tmp_path / "s.json.gz")
    archive = read_archive(tmp_path / "s.json.gz")
    assert archive.membership == snapshot(archive).membership == second.membership

    elsewhere = open_database(parse_url(f"sqlite:///{tmp_path}/elsewhere.db"))
    imported = restore(elsewhere, archive, "small-2")
    assert imported.membership == second.membership
    assert [each.name for each in open_group(elsewhere, "small").members] == ["small-2"]
    assert names(launch(elsewhere)) == ["small-2"]
    renamed = restore(elsewhere, archive, "mine")
    assert renamed.membership == Membership(group="mine", seed_root=second.membership.seed_root)
    elsewhere.close()

    copied = copy_study(database, "small-2", "twin")
    assert copied.membership == Membership(group="twin", seed_root=root_of("small-2"))
    space = second.definition.space
    wider = with_range(space, "hidden_size", high=512)
    extended, _ = extend_space(second, wider, second.definition.defaults, "wide", trials=None)
    assert extended.membership == Membership.of_new("wide")


def test_a_file_of_before_is_a_group_of_one(database: Database, tmp_path: Path) -> None:
    (made,) = launch(database)
    old = from_before(made.study)
    copied = copy_study(database, "small", "twin")
    assert copied.membership == Membership(group="twin", seed_root=None)
    path = tmp_path / "s.json"
    write_archive(archive_of(old), path)
    assert '"search":{' not in path.read_text()  # it is written as it was then
    assert read_archive(path).membership == Membership(group="small", search=1, seed_root=None)


def test_an_import_that_would_not_fit_its_group_is_refused(here: Database, tmp_path: Path) -> None:
    second = launch(here, searches=2)[1].study
    archive = archive_of(second)
    elsewhere = open_database(parse_url(f"sqlite:///{tmp_path}/elsewhere.db"))
    create_or_resume(elsewhere, "small", definition(max_epochs=9), trials=3)
    with pytest.raises(UsageError, match="group 'small' is of another definition here"):
        restore(elsewhere, archive, "small-2")
    assert restore(elsewhere, archive, "other").membership.group == "other"
    taken = dataclasses.replace(archive, name="another")
    with pytest.raises(UsageError, match="search 2 of group 'small' already, 'small-2'"):
        restore(here, taken, "another")
    elsewhere.close()


@pytest.mark.parametrize(
    "stored",
    [
        {"group": "", "search": 1, "seed_root": None},
        {"group": "\x1b[2J", "search": 1, "seed_root": None},
        {"group": "g", "search": 0, "seed_root": None},
        {"group": "g", "search": 10**9, "seed_root": None},
        {"group": "g", "search": "1", "seed_root": None},
        {"group": "g", "search": 1, "seed_root": -1},
        {"group": "g", "search": 1, "seed_root": 2**63},
        {"group": "g", "search": 1, "seed_root": 0.5},
        {"group": "g", "search": 1},
        {"group": "g", "search": 1, "seed_root": 1, "more": 1},
        [],
        "g",
    ],
)
def test_a_damaged_place_in_a_file_is_refused(stored: Any, tmp_path: Path) -> None:
    database = open_database(parse_url(f"sqlite:///{tmp_path}/tuner.db"))
    path = tmp_path / "s.json"
    write_archive(archive_of(create_or_resume(database, "g", definition(), trials=3)), path)
    database.close()
    path.write_text(json.dumps(json.loads(path.read_text()) | {"search": stored}))
    with pytest.raises(UsageError, match=r"s\.json is (damaged: search|no exported study: 9223)"):
        read_archive(path)


# -- what others wrote -----------------------------------------------------------------------------


def write_place(study: OpenStudy, stored: Any) -> None:
    study.database.optuna.set_study_user_attr(study.study_id, MEMBERSHIP, stored)


@pytest.mark.parametrize("stored", [7, "x", [1], {}, {"group": "small", "search": 0}])
def test_a_place_that_cannot_be_read_is_that_studys_trouble_alone(
    stored: Any, here: Database
) -> None:
    first, second = (each.study for each in launch(here, searches=2))
    write_place(second, stored)
    with pytest.raises(StorageError, match="definition of study 'small-2' cannot be read"):
        open_study(here, "small-2")
    assert searches_of(here, "small") == ["small"]
    assert status_of(first)["group"] == "small"
    with pytest.raises(StorageError, match="'small-2' cannot be read"):
        launch(here, searches=2)


def test_two_studies_in_one_place_are_told(here: Database) -> None:
    first, second = (each.study for each in launch(here, searches=2))
    write_place(second, {"group": "small", "search": 1, "seed_root": 5})
    for look in (searches_of, open_group, launch):
        with pytest.raises(StorageError, match="'small' and 'small-2' both say that they are sear"):
            look(here, "small")
    again = [open_study(here, name) for name in THREE[:2]]
    with pytest.raises(StorageError, match="both say"):
        grouped(again)
    # Each can be looked at, and worked at, by its own name.
    assert groups_of(again) == [{"name": "small", "studies": THREE[:2]}]
    assert "Search 1 of group small" in standing(again[1], read_results(again[1]), (), ())
    assert first.name == "small"


def test_a_search_of_another_definition_is_told(here: Database) -> None:
    launch(here)
    stranger = create_or_resume(here, "stranger", definition(max_epochs=9), trials=3)
    write_place(stranger, {"group": "small", "search": 2, "seed_root": None})
    with pytest.raises(StorageError, match="'small' and 'stranger' say that they are searches of"):
        open_group(here, "small")
    with pytest.raises(UsageError, match="max_epochs"):
        launch(here, definition=("max_epochs",))


@pytest.mark.parametrize(
    "name", ["exp [/v2]", "<img src=x>", "\x1b[2J\x07", "日本語", "$(touch x)"]
)
def test_a_group_may_be_called_anything(name: str, here: Database) -> None:
    study = create_or_resume(here, "small", definition(), trials=3)
    write_place(study, {"group": name, "search": 2, "seed_root": None})
    other = create_or_resume(here, "other", definition(), trials=3)
    write_place(other, {"group": name, "search": 1, "seed_root": None})
    again = open_study(here, "small")
    assert status_of(again)["group"] == name
    assert [each.name for each in open_group(here, name).members] == ["other", "small"]
    note = standing(again, read_results(again), (), ())
    assert "\x1b" not in note
    assert "<img" not in note


def test_a_renamed_search_keeps_its_place_and_its_seeds(database: Database) -> None:
    first = launch(database, searches=2)[0].study
    with database.engine.begin() as connection:
        connection.execute(
            text("UPDATE studies SET study_name = 'renamed' WHERE study_id = :id").bindparams(
                id=first.study_id
            )
        )
    again = launch(database)
    assert names(again) == ["renamed", "small-2"]
    assert again[0].study.membership.seed_root == root_of("small")
    assert names(launch(database, searches=3)) == ["renamed", "small-2", "small-3"]


def test_a_search_that_was_deleted_is_made_again_where_it_is_asked_for(here: Database) -> None:
    second = launch(here, searches=3)[1].study
    here.optuna.delete_study(second.study_id)
    assert names(launch(here)) == ["small", "small-3"]
    assert names(launch(here, searches=3)) == THREE
    assert [
        trial.state for trial in open_study(here, "small-2").optuna.get_trials(deepcopy=False)
    ] == [TrialState.WAITING]


def test_a_study_that_somebody_makes_meanwhile_is_not_taken_for_a_search(
    here: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look at what is there and the making of what is not."""

    def meanwhile(*given: Any, **more: Any) -> OpenStudy:
        if given[1] == "small-2":
            create_or_resume(here, "small-2", definition(), trials=3)
        return create_or_resume(*given, **more)

    monkeypatch.setattr("tuner.study.relaunch.create_or_resume", meanwhile)
    with pytest.raises(UsageError, match="'small-2' was made meanwhile, and is no search of group"):
        launch(here, searches=2)
    assert open_study(here, "small-2").membership.group == "small-2"
