"""Names in exported studies, and of them, that no database or study can have: one line each."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.changed_exports import export_with
from tests.support.forked_cli import run
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.archive import read_archive
from tuner.study.transfer import restore


@pytest.mark.parametrize(
    ("where", "says"),
    [
        (("trials", 3, "attributes"), "trials.3.attributes: attribute kkk"),
        (("verifications", 1, "result", "attributes"), "verifications.1.result.attributes: attr"),
        (("definition", "space"), "space: kkk"),
    ],
    ids=str,
)
def test_a_name_that_no_database_takes_is_named_in_one_line(
    where: tuple[Any, ...], says: str, tmp_path: Path
) -> None:
    def change(study: dict[str, Any]) -> None:
        inner: Any = study
        for key in where:
            inner = inner[key]
        like = inner.get("dropout")  # a range in the space, no attribute
        inner["k" * 600] = 1.0 if like is None else {**like, "type": "float"}

    export_with(tmp_path / "x.json", change)
    done = run("study", "import", "x.json", folder=tmp_path)
    assert done.code == 2
    assert "x.json is damaged" in done.error
    assert says in done.error
    assert "has a name of 600 characters; expected at most 512" in done.error
    assert "give it a shorter name" in done.error
    assert len(done.err.splitlines()) == 1
    assert not (tmp_path / "storage").exists()


def test_the_longest_name_is_taken_by_every_database(database_url: str, tmp_path: Path) -> None:
    def change(study: dict[str, Any]) -> None:
        study["trials"][3]["attributes"]["k" * 512] = 1.0

    archive = read_archive(export_with(tmp_path / "x.json", change))
    with closing(open_database(parse_url(database_url))) as database:
        assert restore(database, archive, "x").name == "x"


@pytest.mark.parametrize("name", ["a,b", "", "group:a", "x" * 201])
def test_a_name_that_no_study_can_have_is_named_by_its_flag(name: str, exports: Path) -> None:
    done = run("study", "import", "x.json", "--name", name, folder=exports)
    assert done.code == 2
    assert done.error.startswith(f"--name: {name!r} "), done.error
    assert "--study" not in done.error


def test_an_exported_study_that_must_be_named_otherwise_says_how(exports: Path) -> None:
    export_with(exports / "x.json", lambda study: study.update(name="a,b"))
    done = run("study", "import", "x.json", folder=exports)
    assert done.code == 2
    assert done.error.startswith("x.json: 'a,b' cannot name a study; "), done.error
    assert done.error.endswith("; name it yourself: --name NAME"), done.error
