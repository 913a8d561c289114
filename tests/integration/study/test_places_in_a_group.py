"""What files carry of a group, and what others wrote in the place of a search."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import markupsafe
import pytest
from optuna.trial import TrialState
from sqlalchemy import text

from tests.support.databases import SQLITE_ALONE
from tests.support.groups import THREE, launch, names
from tests.support.small_study import definition
from tests.support.spaces import with_range
from tuner.errors import StorageError, UsageError
from tuner.report.overview import Answer, line_of
from tuner.report.pages import rendered
from tuner.report.study_status import groups_of, status_of
from tuner.spec.membership import Membership, root_of
from tuner.spec.study_file import load_study_file
from tuner.storage.database import Database, open_database
from tuner.storage.url import parse_url
from tuner.study.archive import archive_of, read_archive, write_archive
from tuner.study.create import MEMBERSHIP
from tuner.study.open import OpenStudy, create_or_resume, open_study
from tuner.study.snapshot import grouped, open_group, searches_of, snapshot
from tuner.study.transfer import over_space, restore


@SQLITE_ALONE
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

    wider = with_range(second.definition.space, "hidden_size", high=512)
    file = load_study_file("rmsnorm").model_copy(update={"space": wider})
    assert over_space(archive, file, "wide")[0].membership == Membership.of_new("wide")


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


DAMAGED: tuple[Any, ...] = (
    {"group": "", "search": 1, "seed_root": None},
    {"group": "\x1b[2J", "search": 1, "seed_root": None},
    {"group": "g", "search": 0, "seed_root": None},
    {"group": "g", "search": 10**9, "seed_root": None},
    {"group": "g", "search": "1", "seed_root": None},
    {"group": "g", "search": 1, "seed_root": -1},
    {"group": "g", "search": 1, "seed_root": 2**63},
    {"group": "g", "search": 1, "seed_root": 0.5},
    {"group": "g", "search": 1, "seed_root": 1, "more": 1},
    [],
    "g",
)


def test_a_damaged_place_in_a_file_is_refused(tmp_path: Path) -> None:
    database = open_database(parse_url(f"sqlite:///{tmp_path}/tuner.db"))
    path = tmp_path / "s.json"
    write_archive(archive_of(create_or_resume(database, "g", definition(), trials=3)), path)
    database.close()
    sound = json.loads(path.read_text())
    for stored in DAMAGED:
        path.write_text(json.dumps(sound | {"search": stored}))
        says = r"s\.json is (damaged: search|no exported study: it holds a whole number)"
        with pytest.raises(UsageError, match=says):
            read_archive(path)


def write_place(study: OpenStudy, stored: Any) -> None:
    study.database.optuna.set_study_user_attr(study.study_id, MEMBERSHIP, stored)


def test_a_place_that_cannot_be_read_is_that_studys_trouble_alone(here: Database) -> None:
    first, second = (each.study for each in launch(here, searches=2))
    for stored in (7, "x", [1], {}, {"group": "small", "search": 0}):
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
    assert line_of(snapshot(again[1])).search == "search 1 of small"
    assert first.name == "small"


def test_a_search_of_another_definition_is_told(here: Database) -> None:
    launch(here)
    stranger = create_or_resume(here, "stranger", definition(max_epochs=9), trials=3)
    write_place(stranger, {"group": "small", "search": 2, "seed_root": None})
    with pytest.raises(StorageError, match="'small' and 'stranger' say that they are searches of"):
        open_group(here, "small")
    with pytest.raises(UsageError, match="max_epochs"):
        launch(here, definition=("max_epochs",))


@pytest.mark.parametrize("name", ["<img src=x>", "日本語"])
def test_a_group_may_be_called_anything(name: str, here: Database) -> None:
    study = create_or_resume(here, "small", definition(), trials=3)
    write_place(study, {"group": name, "search": 2, "seed_root": None})
    other = create_or_resume(here, "other", definition(), trials=3)
    write_place(other, {"group": name, "search": 1, "seed_root": None})
    again = open_study(here, "small")
    assert status_of(again)["group"] == name
    assert [each.name for each in open_group(here, name).members] == ["other", "small"]
    one = Answer(heading="", sentences=())
    page = rendered("study.html", one=one, lines=[line_of(snapshot(again))], figures=[])
    assert markupsafe.escape(name) in page
    assert "<img" not in page


@SQLITE_ALONE
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
