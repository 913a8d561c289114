"""`load_best` over the searches of a variant: their fronts together, and whose the pick is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.drawn_verifications import verify_all
from tests.support.recorded_studies import record_group
from tuner.config import Choice
from tuner.errors import TunerError, UsageError
from tuner.export import load_best
from tuner.export.script_text import headline
from tuner.spec.pareto import front_indices
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.archive import archive_of, write_archive
from tuner.study.open import open_study
from tuner.study.results import read_results
from tuner.study.snapshot import snapshot
from tuner.verdict.picks import picks_of
from tuner.verdict.verification_plan import plan_verification

SEARCHES = 3


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    storage = f"sqlite:///{tmp_path_factory.mktemp('group')}/tuner.db"
    record_group(storage, variant="rmsnorm", searches=SEARCHES)
    return storage


@pytest.fixture(scope="module")
def pooled(url: str) -> list[tuple[tuple[float, float], str, int]]:
    """The points of all fronts that no other one beats, fastest first, and whose they are."""
    database = open_database(parse_url(url), create=False)
    found = [
        (r.values, name, r.number)
        for name in ("demo-rmsnorm", "demo-rmsnorm-2", "demo-rmsnorm-3")
        for r in read_results(open_study(database, name)).front
        if r.values
    ]
    database.close()
    return [found[i] for i in front_indices([values for values, _, _ in found])]


@pytest.mark.parametrize(("pick", "index"), [("time", 0), ("mql", -1)])
def test_the_ends_are_those_of_all_fronts_together(
    pick: str, index: int, url: str, pooled: list[tuple[tuple[float, float], str, int]]
) -> None:
    best = load_best("rmsnorm", task="demo", storage=url, pick=pick)
    values, study, number = pooled[index]
    assert (best.study, best.trial, tuple(best.values.values())) == (study, number, values)
    assert best.provenance["group"] == "demo-rmsnorm"
    assert best.provenance["searches"] == SEARCHES
    assert f"study {study} (one of 3 searches, demo-rmsnorm), trial" in headline(best)[0]


def test_a_search_by_its_name_is_picked_from_alone(url: str) -> None:
    best = load_best(study="demo-rmsnorm-2", storage=url, pick="mql")
    assert best.study == "demo-rmsnorm-2"
    assert (best.provenance["search"], best.provenance["searches"]) == (2, 1)
    assert "one of" not in headline(best)[0]
    named = load_best(study="group:demo-rmsnorm", storage=url, pick="mql")
    assert named.provenance["searches"] == SEARCHES


def test_limits_hold_over_all_and_the_nearest_is_named_with_its_search(
    url: str, pooled: list[tuple[tuple[float, float], str, int]]
) -> None:
    limit = pooled[1][0][0]
    best = load_best("rmsnorm", task="demo", storage=url, pick="mql", max_time=limit)
    assert best.values["wall_clock_s"] <= limit
    of_third = "study 'demo-rmsnorm-3' has wall_clock_s <= 1e-06; the nearest is trial"
    with pytest.raises(TunerError, match=of_third):
        load_best("rmsnorm", task="demo", storage=url, pick="knee", max_time=1e-6)


def test_a_trials_number_needs_its_search(url: str) -> None:
    with pytest.raises(UsageError, match="trial 1 of which search"):
        load_best("rmsnorm", task="demo", storage=url, trial=1)
    assert load_best(study="demo-rmsnorm-3", storage=url, trial=1).study == "demo-rmsnorm-3"


def test_one_file_is_one_search(url: str, tmp_path: Path) -> None:
    database = open_database(parse_url(url), create=False)
    write_archive(archive_of(open_study(database, "demo-rmsnorm-2")), tmp_path / "s.json.gz")
    database.close()
    best = load_best(storage=str(tmp_path / "s.json.gz"), pick="mql")
    there = load_best(study="demo-rmsnorm-2", storage=url, pick="mql")
    assert (best.study, best.trial, best.provenance) == (there.study, there.trial, there.provenance)


def test_what_verifications_chose_stands_for_each_search(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/tuner.db"
    names = record_group(url, variant="rmsnorm", searches=2, trials=34)
    database = open_database(parse_url(url), create=False)
    studies = [open_study(database, name) for name in names]
    plan_verification(studies, top=3, seeds=1, choice=Choice.EXPECTED)
    verify_all(studies)
    chosen = {
        (each.name, number)
        for each in studies
        for pick, number in picks_of(snapshot(each)).items()
        if pick != "default"
    }
    database.close()
    for pick in ("mql", "time", "knee"):
        best = load_best("rmsnorm", task="demo", storage=url, pick=pick)
        assert (best.study, best.trial) in chosen
