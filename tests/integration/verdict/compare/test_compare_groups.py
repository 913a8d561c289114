"""Searches of a variant in a comparison: all of them are held against other variants, none against
each other."""

from __future__ import annotations

import pytest

from tests.support.drawn_verifications import verify_all
from tests.support.recorded_studies import record_group
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.open import open_study
from tuner.study.snapshot import grouped
from tuner.verdict.compare.findings import compare
from tuner.verdict.compare.studies import labels, read_studies
from tuner.verdict.verification_plan import plan_verification


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    storage = f"sqlite:///{tmp_path_factory.mktemp('groups')}/tuner.db"
    names = [
        *record_group(storage, variant="original", searches=1),
        *record_group(storage, variant="rmsnorm", searches=2),
    ]
    database = open_database(parse_url(storage), create=False)
    studies = [open_study(database, name) for name in names]
    plan_verification(studies, top=1, seeds=6)
    verify_all(studies)
    database.close()
    return storage


def test_searches_of_one_variant_are_not_held_against_each_other(url: str) -> None:
    report = compare(read_studies(["original", "rmsnorm"], task="demo", storage=url))
    assert report.missing == ()
    assert [(each.a, each.b) for each in report.between] == [("rmsnorm", "original")]
    assert labels(report.studies) == ["original", "demo-rmsnorm", "demo-rmsnorm-2"]
    assert report.as_dict()["groups"] == [
        {"name": "demo-original", "studies": ["demo-original"]},
        {"name": "demo-rmsnorm", "studies": ["demo-rmsnorm", "demo-rmsnorm-2"]},
    ]


def test_what_is_read_can_be_put_together(url: str) -> None:
    named = ["study:demo-rmsnorm-2", "original", "study:demo-rmsnorm"]
    groups = grouped(read_studies(named, task="demo", storage=url))
    assert [(each.name, each.size) for each in groups] == [
        ("demo-rmsnorm", 2),
        ("demo-original", 1),
    ]
    assert [each.name for each in groups[0].members] == ["demo-rmsnorm", "demo-rmsnorm-2"]
    assert groups[0].definition.variant == "rmsnorm"


def test_one_group_alone_has_nothing_to_be_compared_with(url: str) -> None:
    report = compare(read_studies(["group:demo-rmsnorm"], task="demo", storage=url))
    assert any(line.startswith("searches of one variant alone") for line in report.missing)
    assert report.between == ()
