from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.cli_parsing import parse
from tests.support.paths import REPOSITORY

COMPOSE = REPOSITORY / "docker-compose.yml"
ROLES = {
    "init": "owner",
    "dashboard": "reader",
    "launch": "worker",
    "launch-cpu": "worker",
    "worker": "worker",
    "worker-cpu": "worker",
}
OURS = tuple(ROLES)


def interpolated(text: str, environment: dict[str, str] | None = None) -> str:
    """`${NAME:-default}` as compose replaces it."""
    return re.sub(r"\$\{(\w+):-([^}]*)\}", lambda m: (environment or {}).get(m[1]) or m[2], text)


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    document: dict[str, Any] = yaml.safe_load(interpolated(COMPOSE.read_text()))
    return document


def test_images_of_others_are_pinned_by_digest(compose: dict[str, Any]) -> None:
    named = [each["image"] for each in compose["services"].values()]
    named += re.findall(r"^ARG PYTHON=(.*)", (REPOSITORY / "Dockerfile").read_text(), re.MULTILINE)
    others = [each for each in named if not each.startswith("tuner:")]
    assert len(others) == 2
    assert all(re.search(r"@sha256:[0-9a-f]{64}$", each) for each in others)


def test_the_compose_file_fits_the_schema_which_would_notice_a_wrong_key(tmp_path: Path) -> None:
    """The Compose Specification's own, which check-jsonschema carries."""
    wrong = tmp_path / "docker-compose.yml"
    wrong.write_text(COMPOSE.read_text().replace("healthcheck:", "healthchek:"))
    schema = ["check_jsonschema", "--builtin-schema", "vendor.compose-spec", "--output-format=json"]
    done = subprocess.run(
        [sys.executable, "-m", *schema, str(COMPOSE), str(wrong)],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 1
    errors = json.loads(done.stdout)["errors"]
    assert {error["filename"] for error in errors} == {str(wrong)}, done.stdout
    assert "healthchek" in done.stdout


def test_the_services_are_the_expected_ones(compose: dict[str, Any]) -> None:
    assert set(compose["services"]) == {"postgres", *OURS}


@pytest.mark.parametrize("service", OURS)
def test_the_command_of_each_service_is_a_tuner_command_line(
    compose: dict[str, Any], service: str
) -> None:
    expected = "db init" if service == "init" else service.partition("-")[0]
    assert parse(compose["services"][service]["command"]) == expected


@pytest.mark.parametrize(("service", "role"), ROLES.items())
def test_each_service_has_its_role_and_that_roles_password_only(
    compose: dict[str, Any], service: str, role: str
) -> None:
    found = compose["services"][service]
    assert found["secrets"] == [f"{role}-password"]
    assert found["environment"]["TUNER_STORAGE"] == f"postgresql://tuner_{role}@postgres:5432/tuner"
    assert found["environment"]["TUNER_PASSWORD_FILE"] == f"/run/secrets/{role}-password"


def test_the_tables_are_made_once_the_database_is_healthy_and_all_others_wait_for_them(
    compose: dict[str, Any],
) -> None:
    for service in OURS:
        first, condition = (
            ("postgres", "service_healthy")
            if service == "init"
            else ("init", "service_completed_successfully")
        )
        assert compose["services"][service]["depends_on"] == {first: {"condition": condition}}
    assert "--host=127.0.0.1" in compose["services"]["postgres"]["healthcheck"]["test"]


@pytest.mark.parametrize("service", ["postgres", *OURS])
def test_each_service_has_a_limit_of_memory_and_says_whether_it_is_well(
    compose: dict[str, Any], service: str
) -> None:
    found = compose["services"][service]
    assert re.fullmatch(r"[1-9]\d*g", found["mem_limit"])
    check = found["healthcheck"]
    if service == "init":  # ends by itself: others wait for its exit code
        assert check == {"disable": True}
    else:
        assert check["test"][0] == "CMD"
        assert {"interval", "timeout", "retries", "start_period"} <= set(check)
    if check.get("test", [""])[1:2] == ["tuner-entrypoint"]:
        assert parse(check["test"][2:]) == "status"


def test_no_password_stands_in_the_file(compose: dict[str, Any]) -> None:
    assert (
        compose["services"]["postgres"]["environment"]["POSTGRES_PASSWORD_FILE"]
        == "/run/secrets/owner-password"
    )
    names = {f"{role}-password" for role in ROLES.values()}
    assert compose["secrets"] == {name: {"file": f"./storage/secrets/{name}"} for name in names}
    assert not re.search(r"PASSWORD:|://\w+:\w", COMPOSE.read_text())
    ignored = subprocess.run(
        ["git", "check-ignore", "storage/secrets/owner-password"],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    # 128: this is no git checkout (an unpacked archive), so there is nothing to ignore it for.
    assert ignored.returncode in (0, 128)


def test_the_server_is_given_its_scripts_in_order_and_every_password(
    compose: dict[str, Any],
) -> None:
    postgres = compose["services"]["postgres"]
    scripts = [v.split(":") for v in postgres["volumes"] if "initdb.d" in v]
    assert [(source, target.rpartition("/")[2]) for source, target, _ in scripts] == [
        ("./storage/postgres/roles.sql", "10-roles.sql"),
        ("./storage/postgres/passwords.sql", "20-passwords.sql"),
        ("./storage/postgres/superuser.sql", "30-superuser.sql"),
    ]
    assert all(access == "ro" for *_, access in scripts)
    assert set(postgres["secrets"]) == set(compose["secrets"])


@pytest.mark.parametrize("service", OURS)
def test_our_services_have_no_more_of_the_machine_than_they_need(
    compose: dict[str, Any], service: str
) -> None:
    found = compose["services"][service]
    assert found["read_only"] is True
    assert found["cap_drop"] == ["ALL"]
    assert found["security_opt"] == ["no-new-privileges:true"]
    assert "privileged" not in found
    assert "network_mode" not in found


@pytest.mark.parametrize("service", ["worker", "worker-cpu"])
def test_workers_can_be_scaled(compose: dict[str, Any], service: str) -> None:
    """A name or a port of its own would make a second one fail."""
    assert not {"container_name", "hostname", "ports"} & set(compose["services"][service])


def test_scaled_workers_take_a_gpu_each_and_see_each_other(compose: dict[str, Any]) -> None:
    """By their locks, which are on a volume that all containers share."""
    worker = compose["services"]["worker"]
    assert "--gpu=free" in worker["command"]
    assert worker["environment"]["TUNER_LOCK_DIR"].startswith("/var/lib/tuner/")
    assert "tuner:/var/lib/tuner" in worker["volumes"]


def test_ports_are_published_on_loopback_only(compose: dict[str, Any]) -> None:
    ports = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert len(ports) == 2
    assert sorted(ports) == ["127.0.0.1:5432:5432", "127.0.0.1:8080:8080"]


def test_the_database_is_on_a_named_volume_and_asks_for_scram_passwords(
    compose: dict[str, Any],
) -> None:
    postgres = compose["services"]["postgres"]
    assert "postgres:/var/lib/postgresql/data" in postgres["volumes"]
    assert {"postgres", "tuner"} <= set(compose["volumes"])
    assert postgres["environment"]["POSTGRES_INITDB_ARGS"].split() == [
        "--auth-host=scram-sha-256",
        "--auth-local=peer",
    ]
    settings = (REPOSITORY / "storage/postgres/postgresql.conf").read_text()
    assert "password_encryption = 'scram-sha-256'" in settings


@pytest.mark.parametrize(
    ("service", "reserved"), [("launch", True), ("worker", True), ("launch-cpu", False)]
)
def test_gpus_are_reserved_where_they_are_used(
    compose: dict[str, Any], service: str, reserved: bool
) -> None:
    found = compose["services"][service]
    assert ("deploy" in found) is reserved
    if reserved:
        (device,) = found["deploy"]["resources"]["reservations"]["devices"]
        assert device["capabilities"] == ["gpu"]


def test_what_the_files_mount_and_copy_is_there(compose: dict[str, Any]) -> None:
    mounted = [
        volume.split(":")[0]
        for service in compose["services"].values()
        for volume in service.get("volumes", [])
        if volume.startswith("./")
    ]
    dockerfile = (REPOSITORY / "Dockerfile").read_text()
    copied = [
        source
        for line in re.findall(r"^COPY (?!--from)(.+)$", dockerfile, flags=re.MULTILINE)
        for source in [word for word in line.split() if not word.startswith("--")][:-1]
    ]
    assert mounted
    assert copied
    for path in mounted + copied:
        assert (REPOSITORY / path).exists(), path
    allowed = [
        line[1:]
        for line in (REPOSITORY / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    ]
    for path in copied:
        assert any(path == name or path.startswith(f"{name}/") for name in allowed), (
            f"{path} does not reach the build"
        )


def test_the_image_does_not_run_as_root() -> None:
    lines = (REPOSITORY / "Dockerfile").read_text().splitlines()
    users = [line.split()[1] for line in lines if line.startswith("USER ")]
    assert users[-1:] == ["tuner"]


def test_the_entry_point_hands_the_password_over_in_the_environment_only(tmp_path: Path) -> None:
    program = tmp_path / "tuner"
    program.write_text('#!/bin/sh\nprintf "%s|%s" "${PGPASSWORD-none}" "$*"\n')
    program.chmod(0o755)
    secret = tmp_path / "secret"
    secret.write_text("p@ss {word}\n")

    def run(file: str) -> str:
        environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TUNER_PASSWORD_FILE": file}
        script = REPOSITORY / "storage/docker/entrypoint.sh"
        return subprocess.run(
            ["sh", str(script), "status", "--json"],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    assert run(str(secret)) == "p@ss {word}|status --json"
    assert run("") == "none|status --json"  # a database without a password
