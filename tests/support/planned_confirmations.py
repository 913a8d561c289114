"""Two searches of each of two variants, recorded once, and confirmations of them whose
figures are known."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

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
    """What was recorded once on each kind of database, and is copied for each file of tests."""

    def __init__(self, folder: Path, request: pytest.FixtureRequest) -> None:
        self._file = folder / "tuner.db"
        self._request = request
        self._template = ""

    @contextmanager
    def copied(self, kind: str, folder: Path) -> Iterator[str]:
        """The URL of a copy that nobody else has."""
        if kind == "sqlite":
            if not self._file.exists():
                _record(f"sqlite:///{self._file}")
            copy = shutil.copy(self._file, folder / "tuner.db")
            yield f"sqlite:///{copy}"
            return
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
def recorded_once(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Recorded:
    return Recorded(tmp_path_factory.mktemp("recorded-once"), request)


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def searched(
    request: pytest.FixtureRequest,
    recorded_once: Recorded,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Database]:
    """Two searches of each of two variants, and a study too small to recommend anything."""
    with recorded_once.copied(request.param, tmp_path_factory.mktemp("confirmation")) as url:
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
