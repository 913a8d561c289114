"""`tuner launch --on k8s --print`: studies in the database, values for the template."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.cli_processes import STUDY, Bench
from tests.support.postgres_cluster import PASSWORD, Cluster


@pytest.fixture
def bench(postgres: Cluster, tmp_path: Path) -> Iterator[Bench]:
    name = postgres.create_database()
    yield Bench(tmp_path, postgres.url(name))
    postgres.empty_database(name)


def test_the_studies_are_made_and_the_values_are_said(bench: Bench) -> None:
    done = bench.launch(4, "--on", "k8s", "--print", "--json", workers=2)
    assert done.code == 0, done.err
    assert PASSWORD[:4] not in done.out + done.err
    found = done.json()
    assert Path(found["template"]).is_file()
    assert (found["STUDY"], found["WORKERS"]) == (STUDY, "2")
    assert found["command"] == f"tuner worker --study {STUDY} --keep-alive --cpu --cores free:1"
    status = bench.run("status", "--json").json()["studies"][0]
    assert (status["name"], status["budget"], status["workers"]) == (STUDY, 4, [])
    said = bench.launch(4, "--on", "k8s", "--print", workers=2).out
    assert said.splitlines()[0] == f"template: {found['template']}"


def test_without_print_it_is_said_what_to_fill_in(bench: Bench) -> None:
    done = bench.launch(4, "--on", "k8s")
    assert (done.code, "put IMAGE, SECRET, STUDY and WORKERS into" in done.error) == (2, True)
    with_a_file = bench.run(
        *bench.launch_arguments(1),
        *("--on", "k8s", "--print"),
        TUNER_STORAGE=f"sqlite:///{bench.folder}/tuner.db",
    )
    assert (with_a_file.code, "no pod sees it" in with_a_file.error) == (2, True)
