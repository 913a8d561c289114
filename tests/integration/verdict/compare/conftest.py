"""The verified studies that are compared, recorded once for each file of tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.compared_studies import BOTH, Compared, known
from tests.support.drawn_verifications import verify_all
from tests.support.recorded_studies import record_study
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.archive import archive_of, write_archive
from tuner.study.open import open_study
from tuner.verdict.verification_plan import plan_verification


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compared]:
    """Verified: original and rmsnorm (10 seeds). Not verified: batchnorm (under way), simple,
    studies of few trials."""
    folder = tmp_path_factory.mktemp("compare")
    url = f"sqlite:///{folder}/tuner.db"
    for variant, trials in (("original", 12), ("rmsnorm", 12), ("batchnorm", 2), ("simple", 2)):
        record_study(url, variant=variant, trials=trials)
    for trials in range(3):
        record_study(url, variant="layernorm", trials=trials, name=f"few-{trials}")
    record_study(
        url, variant="layernorm", trials=1, name="elsewhere", device="Another CPU, 2 cores"
    )
    database = open_database(parse_url(url), create=False)
    opened = [open_study(database, f"demo-{variant}") for variant in BOTH]
    plan_verification(opened, top=1, seeds=10)
    verify_all(opened, known)
    plan_verification([open_study(database, "demo-batchnorm")], top=1, seeds=5)
    archives = [str(folder / f"{each.name}.json.gz") for each in opened]
    for each, path in zip(opened, archives, strict=True):
        write_archive(archive_of(each), Path(path))
    yield Compared(url, archives)
    database.close()
