"""A question that is asked a second time: another draw of every seed, and of nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.databases import SQLITE_ALONE
from tests.support.groups import THREE, launch, names
from tests.support.in_process_worker import DEVICE, RESULT
from tests.support.small_study import definition
from tuner.errors import StorageError, UsageError
from tuner.search.sampler import sampler_for
from tuner.spec.membership import Membership, root_of, seed_of_trial
from tuner.spec.policy import SearchPolicy
from tuner.storage.database import Database, open_database
from tuner.storage.url import parse_url
from tuner.study.archive import archive_of, read_archive, write_archive
from tuner.study.open import OpenStudy, list_studies
from tuner.study.results import read_results
from tuner.study.transfer import restore
from tuner.verdict.verification_plan import fresh_seeds, new_seeds
from tuner.worker.loop import Worker


def seeds(study: OpenStudy) -> set[int]:
    return {seed_of_trial(number, root=study.membership.seed_root) for number in range(1000)}


def searched(study: OpenStudy) -> list[tuple[object, ...]]:
    """The configurations that it tries."""
    study.set_policy(SearchPolicy(sampler="random"))
    Worker([study], DEVICE, lambda _: RESULT, name="ann").run()
    return [tuple(record.params.values()) for record in read_results(study).records]


@SQLITE_ALONE
def test_two_draws_of_one_name_share_no_seed_and_no_configuration_but_the_default(
    database: Database, tmp_path: Path
) -> None:
    (first,) = launch(database, trials=6)
    elsewhere = open_database(parse_url(f"sqlite:///{tmp_path}/again.db"))
    (second,) = launch(elsewhere, trials=6, draw=2)
    assert first.study.definition.identity() == second.study.definition.identity()
    assert not seeds(first.study) & seeds(second.study)
    one, other = searched(first.study), searched(second.study)
    assert one[0] == other[0] == tuple(definition().defaults.as_dict().values())
    assert len(one) == len(other) == 6
    assert not set(one[1:]) & set(other[1:])
    # What is confirmed later is trained on other seeds, too.
    assert new_seeds([first.study], 200) == fresh_seeds(200, ())
    assert not set(new_seeds([first.study], 200)) & set(new_seeds([second.study], 200))
    elsewhere.close()


@SQLITE_ALONE
def test_the_second_draw_is_the_same_wherever_it_is_made(
    database: Database, tmp_path: Path
) -> None:
    (here,) = launch(database, draw=2)
    with_it = open_database(parse_url(f"sqlite:///{tmp_path}/again.db"))
    (there,) = launch(with_it, draw=2)
    assert here.study.membership == there.study.membership
    assert new_seeds([here.study], 50) == new_seeds([there.study], 50)
    with_it.close()


@SQLITE_ALONE
def test_what_was_made_of_one_draw_stays_of_it(database: Database) -> None:
    made = launch(database, searches=2, draw=7)
    assert names(made) == THREE[:2]
    grown = launch(database, searches=3)
    assert [each.study.membership for each in grown] == [
        Membership(group="small", search=number, seed_root=root_of(name, 7), draw=7)
        for number, name in enumerate(THREE, 1)
    ]
    assert names(launch(database, draw=7)) == THREE
    for name in ("small", "small-2"):
        with pytest.raises(UsageError, match=rf"'{name}' is of draw 7, and --draw 2 was said"):
            launch(database, name, draw=2)


@SQLITE_ALONE
def test_a_study_without_a_draw_is_of_the_first(database: Database) -> None:
    (made,) = launch(database)
    assert made.study.membership == Membership(group="small", seed_root=root_of("small"))
    assert names(launch(database, draw=1)) == ["small"]
    with pytest.raises(UsageError, match=r"is of draw 1, and --draw 2 was said; .* --storage URL"):
        launch(database, searches=2, draw=2)
    assert list_studies(database) == ["small"]


@SQLITE_ALONE
def test_other_studies_change_nothing_of_a_draw(database: Database) -> None:
    (alone,) = launch(database, draw=4)
    fresh = new_seeds([alone.study], 50)
    (other,) = launch(database, "other", draw=9)
    assert new_seeds([alone.study], 50) == fresh
    assert not set(new_seeds([other.study], 50)) & set(fresh)
    # What is verified together shares its seeds.
    assert new_seeds([alone.study, other.study], 50) == new_seeds([other.study], 50)


@SQLITE_ALONE
def test_files_and_copies_keep_the_draw(database: Database, tmp_path: Path) -> None:
    (made,) = launch(database, draw=3)
    write_archive(archive_of(made.study), tmp_path / "s.json.gz")
    elsewhere = open_database(parse_url(f"sqlite:///{tmp_path}/elsewhere.db"))
    moved = restore(elsewhere, read_archive(tmp_path / "s.json.gz"), "small")
    assert moved.membership == made.study.membership
    assert new_seeds([moved], 5) == new_seeds([made.study], 5)
    elsewhere.close()
    copied = restore(database, archive_of(made.study), "twin")
    assert copied.membership == Membership(group="twin", seed_root=root_of("small", 3), draw=3)


@pytest.mark.parametrize("draw", [0, -1, 10**9, "2", 1.5, None])
def test_a_stored_draw_that_is_none_is_refused(draw: object) -> None:
    stored = {"group": "small", "search": 1, "seed_root": 1, "draw": draw}
    with pytest.raises((ValueError, StorageError)):
        Membership.model_validate(stored, strict=True)


def test_a_seed_of_the_sampler_that_was_said_is_what_was_said() -> None:
    said = SearchPolicy(sampler="qmc", seed=7)
    usual = SearchPolicy(sampler="qmc")

    def points(policy: SearchPolicy, draw: int) -> list[list[float]]:
        sampler = sampler_for("small", definition(), policy, draw=draw)
        return [list(sampler._sobol.point(number)) for number in range(20)]

    assert points(said, 1) == points(said, 2)
    assert points(usual, 1) != points(usual, 2)
