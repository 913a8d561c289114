"""What the dashboard answers to odd requests: one line that says what is wrong, and nothing to
strangers."""

from __future__ import annotations

import http.client
import json
import random
import socket
import sqlite3
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.forked_cli import run
from tests.support.recorded_studies import record_study
from tuner.report.dashboard.server import make_dashboard
from tuner.storage.url import parse_url

PATIENCE_S = 120


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Served:
    port: int
    database: Path

    def ask(self, path: str, method: str = "GET", **headers: str) -> Answer:
        """The answer to a request as it is, with no header that is not given but `Host`."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        try:
            connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
            for name, value in {"Host": f"127.0.0.1:{self.port}", **headers}.items():
                connection.putheader(name.replace("_", "-"), value.encode("latin-1"))
            connection.endheaders()
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read())
        finally:
            connection.close()

    def send(self, raw: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_S) as connection:
            connection.sendall(raw)
            connection.shutdown(socket.SHUT_WR)
            answer = b""
            while more := connection.recv(65536):
                answer += more
        return answer


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("guarded") / "tuner.db"
    record_study(f"sqlite:///{path}", variant="rmsnorm", trials=6)
    server = make_dashboard(
        parse_url(f"sqlite:///{path}"), host="127.0.0.1", port=0, allowed=["gpu7.example"]
    )
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield Served(server.server_port, path)
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8080", "", "127.0.0.1,evil.example", "192.0.2.1"]
)
@pytest.mark.parametrize("path", ["/", "/dashboard", "/api/studies", "/static/bundle.js", "/none"])
def test_another_name_gets_one_line_with_the_header_and_the_flag(
    served: Served, host: str, path: str
) -> None:
    answer = served.ask(path, Host=host)
    assert answer.status == 403
    line = json.loads(answer.body)["reason"] if path.startswith("/api") else answer.body.decode()
    assert repr(host) in line
    assert "Host header" in line
    assert "--allow-host NAME" in line
    assert answer.body.count(b"\n") <= 1


@pytest.mark.parametrize(
    "host", ["localhost:1", "127.0.0.1", "[::1]:8080", "gpu7.example", "GPU7.example:443"]
)
def test_loopback_and_what_is_allowed_are_answered(served: Served, host: str) -> None:
    assert served.ask("/api/studies", Host=host).status == 200


def test_a_request_without_a_host_is_not_answered(served: Served) -> None:
    assert served.send(b"GET /api/studies HTTP/1.0\r\n\r\n").startswith(b"HTTP/1.0 403 ")


def test_a_name_that_is_none_is_a_usage_error(served: Served) -> None:
    storage = f"sqlite:///{served.database}"
    done = run(
        "dashboard",
        "--port",
        "0",
        "--storage",
        storage,
        "--allow-host",
        "http://x",
        folder=Path("/"),
    )
    assert done.code == 2
    assert done.error.startswith("--allow-host 'http://x' is no name")


@pytest.mark.parametrize(
    "path", ["/", "/dashboard", "/api/studies", "/static/bundle.js", "/none", "/api/studies/99"]
)
def test_every_answer_says_that_nobody_may_frame_guess_or_share_it(
    served: Served, path: str
) -> None:
    answer = served.ask(path, Origin="http://evil.example")
    policy = answer.headers["content-security-policy"]
    assert "frame-ancestors 'none'" in policy
    assert "default-src 'self'" in policy
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert not [name for name in answer.headers if name.startswith("access-control-")]


def files_of(served: Served) -> dict[str, str]:
    detail = json.loads(served.ask("/api/studies/1").body)
    return {each["filename"]: each["artifact_id"] for each in detail["artifacts"]}


def test_a_file_is_for_taking_away_and_not_for_other_pages(served: Served) -> None:
    answer = served.ask(f"/artifacts/1/{files_of(served)['trials.csv']}")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/csv")
    assert answer.headers["content-disposition"] == 'attachment; filename="trials.csv"'
    assert "access-control-allow-origin" not in answer.headers


def test_what_a_study_says_of_a_file_does_not_change_its_kind(served: Served) -> None:
    number = files_of(served)["definition.json"]
    forged = json.dumps(
        {"artifact_id": number, "filename": "x", "mimetype": "text/html", "encoding": None}
    )
    key = f"dashboard:artifacts:1:{number}"
    with sqlite3.connect(served.database) as connection:
        connection.execute(
            "insert into study_system_attributes (study_id, key, value_json) values (1, ?, ?)",
            (key, json.dumps(forged)),
        )
    answer = served.ask(f"/artifacts/1/1/{number}")
    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")


def test_head_is_get_without_the_body(served: Served) -> None:
    for path, status in (
        ("/dashboard", 200),
        ("/api/studies", 200),
        ("/none", 404),
        ("/api/studies/99", 404),
    ):
        got, head = served.ask(path), served.ask(path, "HEAD")
        assert (got.status, head.status, head.body) == (status, status, b"")
        assert head.headers["content-length"] == str(len(got.body))


ODD = {
    "/api/studies/1?after=x": (400, "after='x'"),
    "/api/studies/1?after=-1": (400, "after='-1'"),
    "/api/studies/1?after=": (400, "after=''"),
    "/api/studies/1?after=" + "9" * 5000: (400, "after='999"),
    "/api/studies/99": (404, "'99'"),
    "/api/studies/-1": (404, "'-1'"),
    "/api/studies/x": (404, "'x'"),
    "/api/studies/2147483648/param_importances": (404, "'2147483648'"),
    "/api/studies/" + "9" * 5000: (404, "'999"),
    "/api/studies/99/plot/slice": (404, "'99'"),
    "/csv/9223372036854775808": (404, "'9223372036854775808'"),
    "/csv/99": (404, "'99'"),
    "/artifacts/99/00000000-0000-0000-0000-000000000000": (404, "'99'"),
    "/artifacts/1/00000000-0000-0000-0000-000000000000": (404, "no such file"),
    "/artifacts/1/99/00000000-0000-0000-0000-000000000000": (404, "no such file"),
    "/artifacts/1/..%2f..%2f..%2fetc%2fpasswd": (404, "no such file"),
    "/artifacts/1/../../../etc/passwd": (404, "no such file"),
    "/static/../_app.py": (404, "no such page"),
    "/static/..%2f_app.py": (404, "no such page"),
    "/static/%00": (400, "control characters"),
    "/static/": (404, "no such page"),
    "/dashboard/%ff": (400, "not UTF-8"),
    "/dashboard?x=%ff": (400, "not UTF-8"),
    "/" + "a" * 33_000: (414, "longer than 32768"),
    "/none": (404, "no such page"),
}


@pytest.mark.parametrize("path", ODD)
def test_an_odd_address_is_one_line_that_says_so(served: Served, path: str) -> None:
    answer = served.ask(path)
    status, says = ODD[path]
    assert answer.status == status
    assert says in answer.body.decode()
    assert len(answer.body) < 250
    assert answer.body.count(b"\n") <= 1


def test_headers_that_are_missing_or_garbage_change_nothing(served: Served) -> None:
    plain = served.ask("/static/bundle.js.LICENSE.txt")
    assert plain.status == 200
    for name, value in (
        ("Accept_Encoding", "\xff"),
        ("Content_Length", "x"),
        ("Range", "bytes=9-1"),
        ("Cookie", "\x01="),
    ):
        answer = served.ask("/static/bundle.js.LICENSE.txt", **{name: value})
        assert (answer.status, answer.body) == (200, plain.body), name
    assert b"evil" not in served.ask("/", X_Forwarded_Host="evil.example").body


def test_what_is_no_request_is_one_line(served: Served) -> None:
    for raw in (
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / FTP\r\n\r\n",
        b"\xff\xfe\r\n\r\n",
        b"FOO\r\n\r\n",
    ):
        body = served.send(raw).rpartition(b"\r\n\r\n")[2]
        assert body.count(b"\n") == 1, body
        assert b"<" not in body
    assert b" 414 " in served.send(b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n").splitlines()[0]


def test_no_made_up_request_is_a_failure_of_ours(served: Served) -> None:
    draw = random.Random(13)
    parts = [
        "api",
        "studies",
        "1",
        "-1",
        "99",
        "csv",
        "artifacts",
        "static",
        "dashboard",
        "plot",
        "slice",
        "x",
        "%00",
    ]
    parts += [
        "%ff",
        "..",
        "%2e%2e",
        "",
        "9" * 30,
        "%D9%A3",
        "1.5",
        "param_importances",
        "edf",
        "favicon.ico",
        "\\",
        "é",
    ]
    queries = [
        "",
        "",
        "",
        "?after=x",
        "?after=0",
        "?trial_ids=x",
        "?trial_ids=-1,2",
        "?%",
        "?&=;",
        "?trial_ids=" + "9" * 5000,
    ]
    for _ in range(400):
        path = "/" + "/".join(draw.choices(parts, k=draw.randint(1, 5))) + draw.choice(queries)
        method = draw.choice(["GET", "GET", "GET", "HEAD", "POST", "FOO"])
        raw = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
        status = served.send(raw).split(b" ", 2)[1]
        assert status[:1] in b"234", (status, raw)
