"""Two searches of each of two variants, recorded once, and confirmations of them whose
figures are known."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import delete

from tests.support.drawn_verifications import drawn_result
from tests.support.postgres_cluster import Cluster
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


class Recorded:
    """What was recorded once, and is copied for each file of tests: on PostgreSQL, as what a
    verdict reads is the same on each kind of database.
    """

    def __init__(self, request: pytest.FixtureRequest) -> None:
        self._request = request
        self._template = ""

    @contextmanager
    def copied(self) -> Iterator[str]:
        """The URL of a copy that nobody else has."""
        cluster: Cluster = self._request.getfixturevalue("postgres")
        if not self._template:
            name = cluster.create_database()
            _record(cluster.url(name))
            self._template = name
        name = cluster.copy_database(self._template)
        yield cluster.url(name)
        cluster.empty_database(name)


def _record(url: str) -> None:
    for name in NAMES:
        group = name.removesuffix("-2")
        place = Membership.of_new(name, group=group, search=1 if name == group else 2)
        variant = group.removeprefix("demo-")
        record_study(url, variant=variant, name=name, trials=24, membership=place)
    record_study(url, variant="simple", trials=6)


@pytest.fixture(scope="session")
def recorded_once(request: pytest.FixtureRequest) -> Recorded:
    return Recorded(request)


@pytest.fixture(scope="module")
def searched(recorded_once: Recorded) -> Iterator[Database]:
    """Two searches of each of two variants, and a study too small to recommend anything."""
    with recorded_once.copied() as url:
        database = open_database(parse_url(url), create=False)
        yield database
        database.close()


@pytest.fixture
def unverified(searched: Database) -> Database:
    """The same, of which nothing has been verified yet."""
    with searched.engine.begin() as connection:
        connection.execute(delete(schema.work).where(schema.work.c.kind == "run"))
    return searched


def opened(database: Database, *names: str) -> list[OpenStudy]:
    return [open_study(database, name) for name in names or NAMES]


def unregistered(database: Database) -> list[OpenStudy]:
    """Its searches, 24 trials each, as if no retune had asked for them."""
    found = opened(database)
    for each in found:
        database.optuna.set_study_user_attr(each.study_id, "tuner_retune", None)
    return found


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
