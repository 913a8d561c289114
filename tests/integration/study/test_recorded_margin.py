"""A study's margin: said at a launch or recorded by its confirmation, and kept from then on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.databases import SQLITE_ALONE
from tests.support.paths import REPOSITORY
from tests.support.small_study import definition
from tuner.errors import StorageError, UsageError
from tuner.spec.policy import SearchPolicy
from tuner.storage.database import Database, open_database
from tuner.storage.url import parse_url
from tuner.study.archive import archive_of, read_archive
from tuner.study.open import OpenStudy, create_or_resume, record_margin
from tuner.study.relaunch import Said, open_studies
from tuner.study.transfer import restore


def small(database: Database) -> OpenStudy:
    return create_or_resume(database, "small", definition(), trials=3)


@SQLITE_ALONE
def test_nobody_has_said_it_yet(database: Database) -> None:
    policy = small(database).policy()
    assert (policy.margin, policy.counted_margin) == (None, 0.01)


def test_a_confirmation_records_what_counts(database: Database) -> None:
    study = small(database)
    identity = study.definition.identity()
    assert record_margin(study) == 0.01
    assert study.policy().margin == 0.01
    assert record_margin(study, 0.02) == 0.02
    assert record_margin(study) == 0.02
    assert study.policy() == SearchPolicy(margin=0.02)
    assert study.definition.identity() == identity
    assert archive_of(study).policy.margin == 0.02


@SQLITE_ALONE
@pytest.mark.parametrize("margin", [-0.01, 0.1, float("nan"), float("inf")])
def test_no_margin_is_refused_and_not_recorded(margin: float, database: Database) -> None:
    study = small(database)
    with pytest.raises(UsageError, match="a margin is a share"):
        record_margin(study, margin)
    assert study.policy().margin is None


def test_a_stored_margin_that_is_none_is_refused() -> None:
    with pytest.raises(StorageError, match="the study's policy cannot be read"):
        SearchPolicy.from_json('{"margin": 0.5}')


def test_once_verification_has_begun_the_margin_stays(tmp_path: Path) -> None:
    path = REPOSITORY / "benchmarks" / "campaign" / "etth-layernorm.json.gz"
    archive = read_archive(path)
    database = open_database(parse_url(f"sqlite:///{tmp_path}/tuner.db"))
    try:
        study = restore(database, archive, "etth-layernorm")
        assert study.verifications.runs()
        # Verified before there were margins: none was recorded yet.
        assert record_margin(study, 0.02) == 0.02
        assert record_margin(study) == record_margin(study, 0.02) == 0.02
        with pytest.raises(UsageError, match="has had a margin of 2% since before"):
            record_margin(study, 0.01)
        for said in (0.03, None):
            with pytest.raises(UsageError, match="since before its verification began"):
                open_studies(
                    database,
                    {study.name: study.definition},
                    Said(policy={"margin": said}),
                    device_model=study.device_model() or "",
                )
        assert study.policy().margin == 0.02
    finally:
        database.close()
