"""One snapshot of a study: the same from its database and from its exported file."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.support.recorded_studies import RecordedDatabase
from tuner.api import load_subjects
from tuner.errors import UsageError
from tuner.study.archive import archive_of, write_archive
from tuner.study.open import open_study
from tuner.study.snapshot import opened_if_needed, snapshot_named

NAME = "demo-rmsnorm"
READ_LATER = ("read_runs", "curves", "attempts")


def written(recorded: RecordedDatabase, path: Path) -> Path:
    with opened_if_needed(recorded.url) as database:
        write_archive(archive_of(open_study(database(), NAME)), path)
    return path


def test_a_snapshot_of_a_file_is_that_of_the_database(
    recorded_database: RecordedDatabase, tmp_path: Path
) -> None:
    (stored,) = load_subjects(recorded_database.url, names=[NAME])
    (exported,) = load_subjects(str(written(recorded_database, tmp_path / "study.json.gz")))
    plain = [each.name for each in dataclasses.fields(stored) if each.name not in READ_LATER]
    assert {name: getattr(stored, name) for name in plain} == {
        name: getattr(exported, name) for name in plain
    }
    assert exported.runs == stored.runs
    assert (exported.variant, exported.finished) == ("rmsnorm", len(stored.results.records))
    numbers = [record.number for record in stored.results.front]
    lengths = {number: len(rows) for number, rows in exported.curves(numbers).items()}
    assert lengths == {number: len(rows) for number, rows in stored.curves(numbers).items()} != {}


def test_a_name_leads_to_the_study_or_to_the_file_that_is_there(
    recorded_database: RecordedDatabase, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with opened_if_needed(recorded_database.url) as database:
        plain, said = (snapshot_named(name, database) for name in (NAME, f"study:{NAME}"))
        assert (plain.name, plain.results) == (NAME, said.results)
        with pytest.raises(UsageError, match=r"no file study\.json, and no study of that name"):
            snapshot_named("study.json", database)
        written(recorded_database, Path("study.json"))
    with opened_if_needed(f"sqlite:///{tmp_path}/none.db") as nowhere:
        assert snapshot_named("study.json", nowhere).name == NAME
