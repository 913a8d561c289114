"""Exports of format 1 stay readable: of the first revision that had them, and of today's."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from tests.support.databases import SQLITE_ALONE
from tests.support.paths import REPOSITORY
from tuner.storage.database import Database
from tuner.study.archive import archive_of, as_dict, read_archive
from tuner.study.transfer import restore

ARCHIVES = REPOSITORY / "tests" / "fixtures" / "archives"


def told(then: Any, now: Any) -> Any:
    """`now` with no more than `then` tells, at any depth: an export may gain keys."""
    if isinstance(then, dict) and isinstance(now, dict):
        return {key: told(value, now[key]) for key, value in then.items() if key in now}
    if isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        return [told(*each) for each in zip(then, now, strict=True)]
    return now


@SQLITE_ALONE
@pytest.mark.parametrize("revision", ["oldest", "newest"])
def test_an_export_is_imported_and_exported_as_it_was(revision: str, database: Database) -> None:
    path = ARCHIVES / f"{revision}.json.gz"
    then = json.loads(gzip.decompress(path.read_bytes()))
    archive = read_archive(path)
    assert archive.definition.identity() == then["definition_hash"]
    study = restore(database, archive, archive.name)
    assert study.ledger.counts().finished == len(then["trials"])
    now = json.loads(json.dumps(as_dict(archive_of(study))))
    assert told(then, now) == then
    assert now.keys() == then.keys() | {"search"}
    assert study.membership == archive.membership
