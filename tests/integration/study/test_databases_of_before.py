"""Databases and exports that an earlier tuner made (tests/fixtures/before_the_road) open once they
are upgraded, are read as it read them, and go on."""

from __future__ import annotations

import gzip
import json
import shutil
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Enum, String, create_engine, inspect, text

from tests.support.forked_cli import run
from tests.support.paths import REPOSITORY
from tests.support.postgres_cluster import Cluster
from tuner.devices import CpuCores
from tuner.devices.cpu import available_cores
from tuner.storage.upgrade import upgrade
from tuner.storage.url import parse_url

FIXTURES = REPOSITORY / "tests" / "fixtures" / "before_the_road"
STUDIES = ("tiny-small", "tiny-steep")
NAMED = [f"study:{name}" for name in STUDIES]
ONE_WORKER = ["--task", "tiny.toml", "--cpu", "--workers", "1"]
CORE = available_cores()[:1]


@dataclass(frozen=True)
class Before:
    """A database of before in a folder of its own, and what the tuner of then said of it."""

    folder: Path
    url: str
    said: dict[str, Any]

    def printed(self, *words: str, url: str | None = None) -> str:
        environment = {"TUNER_STORAGE": url or self.url}
        done = run(*words, folder=self.folder, environment=environment, cores=CORE)
        assert done.code == 0, (words, done.err)
        return done.out

    def document(self, *words: str, url: str | None = None) -> Any:
        return json.loads(self.printed(*words, "--json", url=url))

    def export(self, study: str) -> dict[str, Any]:
        self.printed("study", "export", study, "--output", "export.json.gz", "--force")
        return exported(self.folder / "export.json.gz")


def unpacked(name: str) -> bytes:
    return gzip.decompress((FIXTURES / name).read_bytes())


def exported(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress(path.read_bytes()))
    return found


@pytest.fixture(params=["sqlite", "postgresql"])
def before(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Before]:
    for path in FIXTURES.glob("*.toml"):
        shutil.copy(path, tmp_path)
    said = json.loads(unpacked(f"{request.param}.json.gz"))
    if request.param == "sqlite":
        (tmp_path / "before.db").write_bytes(unpacked("sqlite.db.gz"))
        yield upgraded(Before(tmp_path, f"sqlite:///{tmp_path}/before.db", said))
        return
    cluster: Cluster = request.getfixturevalue("postgres")
    name = cluster.create_database()
    with cluster.connect(name) as connection:
        connection.execute(unpacked("postgresql.sql.gz"))
    yield upgraded(Before(tmp_path, cluster.url(name), said))
    cluster.empty_database(name)


def upgraded(before: Before) -> Before:
    """Its tables were of version 3."""
    upgrade(parse_url(before.url))
    return before


def of_this_machine(before: Before) -> None:
    """The machine that the studies are bound to is this one from now on: its name is replaced
    wherever it is stored. On another one they may be read, and not go on."""
    (was,) = {each["device_model"] for each in before.said["status"]["studies"]}
    address = parse_url(before.url)
    engine = create_engine(address.url.set(password=address.password))
    with engine.begin() as connection:
        for table in inspect(connection).get_table_names():
            for column in inspect(connection).get_columns(table):
                if isinstance(column["type"], String) and not isinstance(column["type"], Enum):
                    name = column["name"]
                    connection.execute(
                        text(f"UPDATE {table} SET {name} = replace({name}, :was, :now)"),
                        {"was": was, "now": CpuCores(CORE).model},
                    )
    engine.dispose()


def without(document: Any, *names: str) -> Any:
    """The document without what its names say, at any depth."""
    if isinstance(document, dict):
        return {key: without(value, *names) for key, value in document.items() if key not in names}
    return [without(each, *names) for each in document] if isinstance(document, list) else document


OTHERWISE = (
    *("ratio", "difference", "level", "sentence", "detectable", "intervals"),
    *("verdict", "time_at_equal_quality"),
)
"""What a comparison says otherwise now, and is meant to: an estimate is a mean of paired
differences, its interval that of the deciding test; verdicts and times at equal quality are those
of whole searches at registered levels."""


def told(then: Any, now: Any) -> Any:
    """`now` with no more than `then` tells, at any depth: JSON may gain keys, and lose none."""
    if isinstance(then, dict) and isinstance(now, dict):
        return {key: told(value, now[key]) for key, value in then.items() if key in now}
    if isinstance(then, list) and isinstance(now, list) and len(then) == len(now):
        return [told(*each) for each in zip(then, now, strict=True)]
    return now


def as_it_was(comparison: dict[str, Any]) -> Any:
    """A comparison without what is meant to differ: its rows, pairs, tests, their p and what may be
    claimed of them."""
    return without(comparison, *OTHERWISE)


def test_what_it_holds_is_read_as_it_was(before: Before) -> None:
    said = before.said
    then = said["status"]["studies"]
    assert told(then, before.document("status")["studies"]) == then
    for study in STUDIES:  # of the first a pruned trial, of the second one that diverged
        then = said[f"trial {study}"]
        now = before.document("trial", str(then["trial"]), "--study", study)
        assert told(then, now) == then
    if before.url.startswith("sqlite"):
        then = exported(FIXTURES / f"{STUDIES[0]}.json.gz")
        assert told(then, before.export(STUDIES[0])) == then
    then = json.loads(said[f"best {STUDIES[0]} knee"]["json"])
    now = before.printed("best", "--study", STUDIES[0], "--pick", "knee", "--format", "json")
    assert told(then, json.loads(now)) == then


def test_a_comparison_says_what_it_said(before: Before) -> None:
    now, then = before.document("compare", *NAMED, "--task", "tiny.toml"), before.said["compare"]
    assert told(as_it_was(then), as_it_was(now)) == as_it_was(then)
    for each in as_it_was(then)["comparisons"]:
        assert {"p", "p_adjusted", "tests", "distinguishable"} <= each["test_mql"].keys()


def test_it_is_found_sound_and_needs_no_more_than_one_upgrade(before: Before) -> None:
    check, then = before.document("db", "check"), before.said["db check"]
    assert (then["version"], check["version"]) == (3, check["expected_version"])
    then = without(then, "storage", "server", "version", "expected_version")
    assert told(then, check) == then
    assert check["healthy"]
    assert before.printed("db", "upgrade").startswith("nothing to do: ")
    assert before.said["db upgrade"].startswith("nothing to do: ")


def test_a_launch_takes_up_the_trial_that_was_handed_back(before: Before) -> None:
    of_this_machine(before)
    old = before.export(STUDIES[0])
    *finished, handed_back = old["trials"]
    assert handed_back["state"] == "WAITING"
    launch = ["launch", "--variant", "small.toml", *ONE_WORKER, "--trials", str(len(old["trials"]))]
    before.printed(*launch)
    new = before.export(STUDIES[0])
    assert new["trials"][:-1] == finished
    added = new["trials"][-1]
    assert added["state"] in ("COMPLETE", "PRUNED")
    assert added["params"] == handed_back["params"]
    assert added["attributes"]["attempts"] == 2
    curves = {number: curve for number, curve in new["curves"].items() if number in old["curves"]}
    assert curves == old["curves"]


def test_a_verification_goes_on(before: Before) -> None:
    """On PostgreSQL it was interrupted; on SQLite it was finished, and the same command says so."""
    of_this_machine(before)
    verify = ["verify", "--variant", "small.toml,steep.toml", *ONE_WORKER, "--top", "1"]
    verified = before.document(*verify, "--seeds", "5")
    assert verified["outcome"] == "filled"
    for study in before.document("status")["studies"]:
        runs = study["verification"]
        assert (runs["waiting"], runs["running"], runs["finished"]) == (0, 0, 10)
    assert before.document("compare", *NAMED, "--task", "tiny.toml")["missing"] == []


@pytest.fixture(scope="module")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Before:
    """The exports of then, and a database that they were imported into."""
    folder = tmp_path_factory.mktemp("exports")
    for path in (*FIXTURES.glob("*.toml"), *FIXTURES.glob("tiny-*.json.gz")):
        shutil.copy(path, folder)
    said = json.loads(unpacked("sqlite.json.gz"))
    made = Before(folder, f"sqlite:///{folder}/fresh.db", said)
    for study in STUDIES:
        made.printed("study", "import", f"{study}.json.gz")
    return made


def test_exports_compare_as_their_studies_did(exports: Before) -> None:
    files = [f"{study}.json.gz" for study in STUDIES]
    now = exports.document("compare", *files, "--task", "tiny.toml")
    then = as_it_was(exports.said["compare"])
    assert told(then, as_it_was(now)) == then


def test_exports_become_studies_that_are_the_same(exports: Before) -> None:
    then = exports.said["status"]["studies"]
    assert told(then, exports.document("status")["studies"]) == then
    for study in STUDIES:
        then = exported(exports.folder / f"{study}.json.gz")
        assert told(then, exports.export(study)) == then


@pytest.mark.parametrize("pick", ["knee", "mql", "time"])
def test_each_pick_of_an_imported_study_is_what_it_was(exports: Before, pick: str) -> None:
    for study in STUDIES:
        asked = ["best", "--study", study, "--pick", pick, "--format", "json"]
        then = json.loads(exports.said[f"best {study} {pick}"]["json"])
        assert told(then, json.loads(exports.printed(*asked))) == then


@pytest.mark.parametrize("form", ["toml", "python", "neuralforecast", "darts"])
def test_the_best_takes_each_form(exports: Before, form: str) -> None:
    then = exports.said[f"best {STUDIES[0]} knee"]
    asked = ["best", "--study", STUDIES[0], "--pick", "knee", "--format", form]
    text = exports.printed(*asked)
    if form == "toml":  # its tables may hold more, and in another order
        table = tomllib.loads(then["toml"])
        assert told(table, tomllib.loads(text)) == table
    else:
        compile(text, form, "exec")
        assert repr(json.loads(then["json"])["params"]["learning_rate"]) in text
