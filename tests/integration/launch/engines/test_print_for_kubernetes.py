"""`tuner launch --on k8s --print`: studies in the database, manifests on standard output."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

from tests.support.cli_processes import STUDY, Bench
from tests.support.postgres_cluster import PASSWORD, Cluster

ON_KUBERNETES = (
    "--on",
    "k8s",
    "--placement",
    "image=registry.example/tuner:1",
)


@pytest.fixture
def bench(postgres: Cluster, tmp_path: Path) -> Iterator[Bench]:
    name = postgres.create_database()
    yield Bench(tmp_path, postgres.url(name))
    postgres.empty_database(name)


def test_the_studies_are_made_and_what_is_printed_is_valid(bench: Bench) -> None:
    done = bench.launch(4, *ON_KUBERNETES, "--print", workers=2)
    assert done.code == 0, done.err
    assert PASSWORD[:4] not in done.out + done.err
    job, deployment, service = yaml.safe_load_all(done.out)
    for each in (job, deployment, service):
        kubernetes_validate.validate(each, kubernetes_validate.latest_version(), strict=True)
    arguments = job["spec"]["template"]["spec"]["containers"][0]["args"]
    expected = f"worker --study {STUDY} --keep-alive --cpu --cores free:1"
    assert " ".join(arguments) == expected
    status = bench.run("status", "--json").json()["studies"][0]
    assert (status["name"], status["budget"], status["workers"]) == (STUDY, 4, [])


def test_without_print_it_is_said_who_applies_manifests(bench: Bench) -> None:
    done = bench.launch(4, *ON_KUBERNETES)
    assert (done.code, "you apply them: add --print" in done.error) == (2, True)
    with_a_file = bench.run(
        *bench.launch_arguments(1),
        *ON_KUBERNETES,
        "--print",
        TUNER_STORAGE=f"sqlite:///{bench.folder}/tuner.db",
    )
    assert (with_a_file.code, "no pod sees it" in with_a_file.error) == (2, True)
