"""The dashboard's page in a real browser, with every button pressed: none is there that could only
fail."""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.parse
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import optuna
import pytest

from tests.support.browser import PATIENCE_S, opened
from tests.support.paths import SUPPORT
from tests.support.recorded_studies import record_study
from tuner.report.dashboard.server import make_dashboard
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.open import open_study

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

SCRIPT = SUPPORT / "press_every_button.js"
WRITES = re.compile(
    r"delete|remove|rename|create|upload|edit|save|fail "
    r"trial|submit|undo|skip|restore|worst|replay|addbox",
    re.IGNORECASE,
)


@dataclass(slots=True)
class Probed:
    """An application whose pages press their own buttons, one page after the other."""

    application: WSGIApplication
    pages: list[str]
    seen: dict[str, list[str]] = field(default_factory=dict)
    tried: list[str] = field(default_factory=list)

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/probe/script.js":
            start_response("200 OK", [("Content-Type", "text/javascript")])
            return [SCRIPT.read_bytes()]
        if path == "/probe/seen":
            self.seen[self.pages.pop(0)] = json.loads(urllib.parse.unquote(environ["QUERY_STRING"]))
            start_response("200 OK", [("Content-Type", "text/plain")])
            return [self.pages[0].encode() if self.pages else b""]
        if environ["REQUEST_METHOD"] not in ("GET", "HEAD"):
            self.tried.append(f"{environ['REQUEST_METHOD']} {path}")
        if not path.startswith("/dashboard"):
            return self.application(environ, start_response)
        said: list[tuple[str, list[tuple[str, str]]]] = []

        def keep(status: str, headers: list[tuple[str, str]], _error: object = None) -> None:
            said.append((status, headers))

        page = b"".join(self.application(environ, keep))  # type: ignore[arg-type]
        page = page.replace(b"</head>", b'<script defer src="/probe/script.js"></script></head>')
        ((status, headers),) = said
        kept = [(name, value) for name, value in headers if name != "Content-Length"]
        start_response(status, [*kept, ("Content-Length", str(len(page)))])
        return [page]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of a study with a running trial, and of one whose trials a person is to compare, which is
    another program's; nothing that is tried here changes them."""
    url = f"sqlite:///{tmp_path_factory.mktemp('studies')}/tuner.db"
    record_study(url, variant="rmsnorm", trials=6)
    database = open_database(parse_url(url), create=False)
    study = open_study(database, "demo-rmsnorm")
    study.ledger.set_budget(8)
    claim = study.ledger.claim("worker-7")
    assert claim is not None
    assert study.ask(claim) is not None
    database.close()
    preferred = optuna.create_study(storage=url, study_name="preferred")
    storage = preferred._storage
    storage.set_study_system_attr(preferred._study_id, "preference:is_preferential", True)
    storage.set_study_system_attr(preferred._study_id, "preference:n_generate", 2)
    for _ in range(3):
        storage.set_trial_system_attr(
            preferred.ask()._trial_id, "preference:comparison_ready", True
        )
    return url


@pytest.fixture
def probe(url: str) -> Iterator[Probed]:
    server = make_dashboard(parse_url(url), host="127.0.0.1", port=0)
    application = server.get_app()
    assert application is not None
    probed = Probed(application, [f"http://127.0.0.1:{server.server_port}/dashboard"])
    server.set_app(probed)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield probed
    server.shutdown()
    server.server_close()


def press_all(probe: Probed) -> None:
    """Open the first page in a browser, and wait until each has told what is on it."""
    with opened(probe.pages[0]):
        deadline = time.monotonic() + PATIENCE_S
        while probe.pages and time.monotonic() < deadline:
            time.sleep(0.1)
    assert probe.pages == [], probe.seen


def test_no_button_of_any_page_writes_and_none_says_that_it_would(probe: Probed) -> None:
    for path in ("1", "1/trials?numbers=6", "2"):  # trial 6 is at work, study 2 the other program's
        probe.pages.append(f"{probe.pages[0]}/studies/{path}")
    pages = list(probe.pages)
    press_all(probe)
    assert [
        (page, name) for page in pages for name in probe.seen[page] if WRITES.search(name)
    ] == []
    assert probe.tried == []


def test_without_the_style_there_are_such_buttons(
    probe: Probed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.report.dashboard.guard.STYLE", "")
    (page,) = probe.pages
    press_all(probe)
    assert any(name.startswith("delete study") for name in probe.seen[page])
    assert any(method.startswith("DELETE /api/studies/") for method in probe.tried)
