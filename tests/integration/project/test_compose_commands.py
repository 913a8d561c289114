"""The compose file's commands, run natively: the same words and variables, the same roles, another
server."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from psycopg import sql

from tests.support.forked_cli import python_path
from tests.support.paths import REPOSITORY
from tests.support.postgres_cluster import Cluster
from tests.support.postgres_roles import ThreeRoles, three_roles
from tests.support.recorded_studies import record_study
from tuner.devices import CpuCores
from tuner.devices.cpu import available_cores

PATIENCE_S = 240
ENTRY_POINT = REPOSITORY / "storage/docker/entrypoint.sh"


def services() -> dict[str, Any]:
    text = (REPOSITORY / "docker-compose.yml").read_text()
    found: dict[str, Any] = yaml.safe_load(re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text))["services"]
    return found


class Compose:
    """The services as processes of this machine, on a server that has run the scripts of the
    compose file."""

    def __init__(self, roles: ThreeRoles, folder: Path) -> None:
        self.roles = roles
        self.folder = folder
        program = folder / "tuner"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tuner "$@"\n')
        program.chmod(0o755)

    def environment(self, service: str) -> dict[str, str]:
        """What the service is given; only places are this machine's."""
        given = {name: str(value) for name, value in services()[service]["environment"].items()}
        here = f"@127.0.0.1:{self.roles.cluster.port}/{self.roles.database}"
        given["TUNER_STORAGE"] = given["TUNER_STORAGE"].replace("@postgres:5432/tuner", here)
        given["TUNER_PASSWORD_FILE"] = given["TUNER_PASSWORD_FILE"].replace(
            "/run/secrets", str(self.roles.secrets)
        )
        places = {name: str(self.folder) for name in ("HOME", "XDG_CACHE_HOME", "TMPDIR")}
        places["TUNER_LOCK_DIR"] = str(self.folder / "locks")
        inherited = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("PG", "TUNER_"))
        }
        path = {
            "PYTHONPATH": python_path(),
            "PATH": f"{self.folder}:{os.environ['PATH']}",
        }
        return inherited | path | given | places

    def start(self, service: str, **words: str) -> subprocess.Popen[str]:
        command = [words.get(word, word) for word in services()[service]["command"]]
        return subprocess.Popen(
            ["sh", str(ENTRY_POINT), *command],
            cwd=self.folder,
            env=self.environment(service),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, service: str) -> tuple[int, str, str]:
        process = self.start(service)
        out, err = process.communicate(timeout=PATIENCE_S)
        for role in ("owner", "worker", "reader"):
            assert self.roles.password(role) not in out + err
        return process.returncode, out, err


@pytest.fixture(scope="module")
def compose(postgres: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compose]:
    roles = three_roles(postgres, tmp_path_factory.mktemp("secrets"), tables=False)
    yield Compose(roles, tmp_path_factory.mktemp("compose"))
    postgres.empty_database(roles.database)


@pytest.fixture(scope="module")
def initialised(compose: Compose) -> Compose:
    """After `init`, and with the studies of the cpu profile filled: its commands find nothing left
    to do and end."""
    code, out, err = compose.run("init")
    assert code == 0, err
    assert "is ready: version" in out
    device = CpuCores(available_cores()).model  # a worker of another model would be refused
    for variant in ("rmsnorm", "original"):
        record_study(
            compose.roles.url("worker"), variant=variant, trials=6, max_epochs=150, device=device
        )
    return compose


@pytest.mark.parametrize(
    ("service", "says"), [("launch-cpu", "nothing to do: demo-rmsnorm"), ("worker-cpu", "")]
)
def test_the_commands_of_the_cpu_services_run(
    initialised: Compose, service: str, says: str
) -> None:
    code, _, err = initialised.run(service)
    assert code == 0, err
    assert says in err
    assert "Traceback" not in err


def test_the_health_check_of_a_worker_finds_its_database(initialised: Compose) -> None:
    program, entry_point, *command = services()["worker-cpu"]["healthcheck"]["test"]
    assert (program, entry_point) == ("CMD", "tuner-entrypoint")

    def code(**places: str) -> int:
        return subprocess.run(
            ["sh", str(ENTRY_POINT), *command],
            cwd=initialised.folder,
            env=initialised.environment("worker-cpu") | places,
            capture_output=True,
            timeout=PATIENCE_S,
            check=False,
        ).returncode

    assert code() == 0
    assert code(TUNER_STORAGE="postgresql://tuner_worker@127.0.0.1:1/tuner") == 1


def test_the_dashboard_shows_the_studies_to_its_role(initialised: Compose) -> None:
    process = initialised.start("dashboard", **{"8080": "0", "0.0.0.0": "127.0.0.1"})
    assert process.stderr is not None
    line = process.stderr.readline()
    try:
        found = re.search(r"tuner_reader@.* at (http://127\.0\.0\.1:\d+)/", line)
        assert found is not None, line
        # What a browser of this machine says, whatever port is published, and another container.
        for name in ("127.0.0.1:9090", "localhost:8080", "dashboard:8080"):
            request = urllib.request.Request(f"{found[1]}/api/studies", headers={"Host": name})
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                assert b"demo-rmsnorm" in answer.read()
        _, _, option, check = services()["dashboard"]["healthcheck"]["test"]
        there = check.replace("http://127.0.0.1:8080", found[1])
        assert there != check
        subprocess.run([sys.executable, option, there], timeout=PATIENCE_S, check=True)
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)


def test_without_its_secret_a_service_says_where_it_should_be(
    compose: Compose, tmp_path: Path
) -> None:
    environment = compose.environment("init") | {"TUNER_PASSWORD_FILE": str(tmp_path / "absent")}
    done = subprocess.run(
        ["sh", str(ENTRY_POINT), "db", "init"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert (
        f"cannot read the database password in {tmp_path}/absent; storage/README.md" in done.stderr
    )


def test_a_real_server_accepts_every_setting_of_the_database(postgres: Cluster) -> None:
    text = (REPOSITORY / "storage/postgres/postgresql.conf").read_text()
    settings = re.findall(r"^(\w+) = '?([^'#]*?)'?\s*(?:#.*)?$", text, flags=re.MULTILINE)
    assert len(settings) == sum(
        bool(line) and not line.startswith("#") for line in text.splitlines()
    )
    with postgres.connect() as connection:
        for name, value in settings:
            # ALTER SYSTEM checks name and value; without a reload it changes nothing for the
            # running server.
            connection.execute(
                sql.SQL("ALTER SYSTEM SET {} = {}").format(sql.Identifier(name), sql.Literal(value))
            )
            connection.execute(sql.SQL("ALTER SYSTEM RESET {}").format(sql.Identifier(name)))
