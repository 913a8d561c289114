"""Two searches of each of two variants, recorded once, and confirmations of them whose
figures are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import delete

from tests.support.drawn_verifications import drawn_result
from tests.support.recorded_studies import record_study
from tuner.spec.membership import Membership
from tuner.storage import schema
from tuner.storage.database import Database, open_database
from tuner.storage.records import TrialResult
from tuner.storage.url import parse_url
from tuner.study.open import OpenStudy, open_study
from tuner.study.snapshot import snapshot
from tuner.trial.job import TrialJob
from tuner.verdict.confirmation import Confirmation, confirmation_of

SEEDS = 12
NAMES = ("demo-original", "demo-original-2", "demo-rmsnorm", "demo-rmsnorm-2")


@pytest.fixture(scope="session", params=["sqlite", "postgresql"])
def searched(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Database]:
    """Two searches of each of two variants, and a study too small to recommend anything."""
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('confirmation')}/tuner.db"
    else:
        cluster = request.getfixturevalue("postgres")
        url = cluster.url(cluster.create_database())
    for name in NAMES:
        group = name.removesuffix("-2")
        place = Membership.of_new(name, group=group, search=1 if name == group else 2)
        variant = group.removeprefix("demo-")
        record_study(url, variant=variant, name=name, trials=24, membership=place)
    record_study(url, variant="simple", trials=6)
    database = open_database(parse_url(url), create=False)
    yield database
    database.close()


@pytest.fixture
def unverified(searched: Database) -> Database:
    """The same, of which nothing has been verified yet."""
    with searched.engine.begin() as connection:
        connection.execute(delete(schema.verifications))
    return searched


def opened(database: Database, *names: str) -> list[OpenStudy]:
    return [open_study(database, name) for name in names or NAMES]


def known(
    *, seconds: float = 6.0, mql: float = 0.8, default: float = 0.8
) -> Callable[[TrialJob], TrialResult]:
    """Whatever is not the default, trial 0, takes so long and forecasts so."""

    def run(job: TrialJob) -> TrialResult:
        pace = 0.5 if "rmsnorm" in job.study else 1.0
        if job.number == 0:
            return drawn_result(job, seconds=10.0 * pace, mql=default)
        return drawn_result(job, seconds=seconds * pace, mql=mql)

    return run


def last(study: OpenStudy) -> Confirmation:
    found = confirmation_of(snapshot(study))
    assert found is not None
    return found
