from __future__ import annotations

import hashlib
import json
import re
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import optuna
import psutil
import pytest
from optuna_dashboard import get_note

from tests.support.browser import rendered
from tests.support.forked_cli import run
from tests.support.paths import REPOSITORY
from tests.support.recorded_studies import RecordedDatabase

PATIENCE_S = 120
ADDRESS = re.compile(r"at (http://127\.0\.0\.1:\d+)/ \(read-only")


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "tuner", "dashboard", *arguments]


@dataclass(frozen=True)
class Dashboard:
    url: str
    database: Path
    process: subprocess.Popen[str]

    def ask(self, path: str, method: str = "GET", body: object = None) -> tuple[int, bytes]:
        data = json.dumps(body).encode() if body is not None else None
        request = urllib.request.Request(
            self.url + path, method=method, data=data, headers={"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as refused:
            return refused.code, refused.read()


def start(database: Path) -> Dashboard:
    process = subprocess.Popen(
        command("--port", "0", "--storage", f"sqlite:///{database}"),
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    match = ADDRESS.search(line)
    if match is None:
        process.kill()
        pytest.fail(f"the dashboard did not start: {line}{process.stderr.read()}")
    return Dashboard(match[1], database, process)


@pytest.fixture(scope="module")
def dashboard(recorded_database: RecordedDatabase) -> Iterator[Dashboard]:
    """`tuner dashboard` as a person starts it, on two finished studies."""
    running = start(recorded_database.path)
    yield running
    running.process.kill()
    running.process.communicate()


def number_of(dashboard: Dashboard, study: str) -> int:
    _, body = dashboard.ask("/api/studies")
    numbers = {s["study_name"]: int(s["study_id"]) for s in json.loads(body)["study_summaries"]}
    return numbers[study]


def words(html: str) -> str:
    return re.sub(r"<[^>]+>", " ", re.sub(r"<(style|script).*?</\1>", "", html, flags=re.DOTALL))


def dump(database: Path) -> str:
    with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
        return hashlib.sha256("\n".join(connection.iterdump()).encode()).hexdigest()


def test_the_first_page_names_every_study(
    dashboard: Dashboard, recorded_database: RecordedDatabase, screenshots: Path
) -> None:
    page = words(rendered(f"{dashboard.url}/dashboard", screenshot=screenshots / "studies.png"))
    for study in recorded_database.studies:
        assert study in page
    assert (screenshots / "studies.png").stat().st_size > 5_000


def test_the_values_of_a_trial_are_shown_in_full(
    dashboard: Dashboard, recorded_database: RecordedDatabase, screenshots: Path
) -> None:
    best = recorded_database.results("demo-rmsnorm").front[-1]
    assert best.values is not None
    study = number_of(dashboard, "demo-rmsnorm")
    page = words(
        rendered(
            f"{dashboard.url}/dashboard/studies/{study}/trials?numbers={best.number}",
            screenshot=screenshots / "trial.png",
        )
    )
    assert f"Trial {best.number}" in page
    assert f"{best.values[0]:g}, {best.values[1]:g}" in page
    assert f"hidden_size {best.params['hidden_size']}" in page
    assert "Best Trial" in page


def test_the_dashboards_own_reader_understands_the_note(
    recorded_database: RecordedDatabase,
) -> None:
    study = optuna.load_study(study_name="demo-rmsnorm", storage=recorded_database.url)
    note = get_note(study)
    assert note.startswith("## rmsnorm on demo")
    assert note.endswith("means exactly none.")


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/api/studies", {"study_name": "forged", "directions": ["minimize"]}),
        ("PUT", "/api/studies/1/note", {"body": "forged", "version": 2}),
        ("DELETE", "/api/studies/1", None),
    ],
)
def test_whatever_would_write_is_refused_and_changes_nothing(
    dashboard: Dashboard, method: str, path: str, body: object
) -> None:
    before = dump(dashboard.database)
    status, text = dashboard.ask(path, method, body)
    assert status == 405
    assert b"read-only" in text
    assert dump(dashboard.database) == before


def test_it_listens_on_loopback_only(dashboard: Dashboard) -> None:
    listening = [
        each.laddr
        for each in psutil.Process(dashboard.process.pid).net_connections(kind="inet")
        if each.status == psutil.CONN_LISTEN
    ]
    assert {each.ip for each in listening} == {"127.0.0.1"}


def failure(*arguments: str, environment: dict[str, str | None] | None = None) -> tuple[int, str]:
    done = run("dashboard", *arguments, folder=REPOSITORY, environment=environment)
    assert done.out == ""
    (line,) = done.lines
    return done.code, line


def test_a_taken_port_is_one_line(recorded_database: RecordedDatabase) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, line = failure("--port", str(port), "--storage", recorded_database.url)
    assert code == 1
    assert f"cannot listen on 127.0.0.1:{port}: Address already in use" in line
    assert "--port" in line


def test_an_unreachable_database_is_one_line_without_its_password() -> None:
    url = "postgresql://someone:very-secret@127.0.0.1:1/tuner"
    code, line = failure("--port", "0", environment={"TUNER_STORAGE": url})
    assert code == 1
    assert "cannot open the database" in line
    assert "refused" in line
    assert "very-secret" not in line


def test_a_database_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    code, line = failure("--port", "0", "--storage", f"sqlite:///{tmp_path / 'none.db'}")
    assert code == 1
    assert "there is no database" in line
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_ends_it_and_a_lost_database_is_a_line_not_a_traceback(
    recorded_database: RecordedDatabase, tmp_path: Path
) -> None:
    copy = tmp_path / "copy.db"
    with sqlite3.connect(recorded_database.path) as source, sqlite3.connect(copy) as target:
        source.backup(target)
    running = start(copy)
    assert running.ask("/api/studies")[0] == 200
    shutil.move(copy, tmp_path / "elsewhere.db")
    assert running.ask("/api/studies")[0] == 500
    running.process.send_signal(signal.SIGINT)
    _, errors = running.process.communicate(timeout=PATIENCE_S)
    assert running.process.returncode == 130
    assert "the database cannot be read right now" in errors
    assert "Traceback" not in errors
    assert "File " not in errors
