"""The dashboard's first page, and that of a study: what it says, to whom, and how it looks on a
telephone."""

from __future__ import annotations

import http.client
import json
import os
import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape
from pathlib import Path

import optuna
import pytest

from tests.support.browser import photographed
from tests.support.recorded_studies import record_study
from tuner import create_study
from tuner.config import EpochRecord
from tuner.report.dashboard.server import make_dashboard
from tuner.storage.database import Database, open_database
from tuner.storage.records import Claim
from tuner.storage.url import parse_url
from tuner.study.open import OpenStudy, open_study
from tuner.study.snapshot import snapshot
from tuner.verdict.compare.findings import compare
from tuner.worker.process import Heartbeat
from tuner.worker.work_source import RunningTrial

PATIENCE_S = 60
HOSTILE = "<script>alert(1)</script>"


@dataclass(frozen=True)
class Site:
    port: int
    database: Database

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, path: str, **headers: str) -> tuple[int, dict[str, str], str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE_S)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("GET", path, headers=named)
        answer = connection.getresponse()
        found = {name.lower(): value for name, value in answer.getheaders()}
        body = answer.read().decode()
        connection.close()
        return answer.status, found, body

    def read(self, path: str = "/tuner/fragment") -> str:
        """The page once all studies are read."""
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            status, _, body = self.ask(path)
            assert status == 200, body
            if "still being read" not in body:
                return body
            time.sleep(0.1)
        pytest.fail("the studies were never read")


def words(html: str) -> str:
    return " ".join(unescape(re.sub(r"<[^>]+>", " ", html)).split())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Two studies, of which one is worked at, one of a hostile name, and another program's."""
    url = f"sqlite:///{tmp_path_factory.mktemp('first')}/tuner.db"
    for variant in ("original", "rmsnorm"):
        record_study(url, variant=variant, said={"epoch_windows": 800})
    record_study(url, variant="simple", name=HOSTILE, trials=2)
    other = optuna.create_study(storage=url, study_name="a stranger's", direction="maximize")
    other.optimize(lambda trial: trial.suggest_float("x", 0, 1), n_trials=3)
    with create_study("mine", storage=url) as mine:
        mine.tell(mine.ask(), 0.5)
    database = open_database(parse_url(url), create=False)
    server = make_dashboard(parse_url(url), host="127.0.0.1", port=0)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield Site(server.server_port, database)
    server.shutdown()
    server.server_close()
    database.close()


def begin(study: OpenStudy) -> Claim:
    """A trial with four epochs of half a second."""
    study.ledger.set_budget(14)
    study.roster.join("w-1", host="here", pid=7, device="cores 0, 1", device_uuid="cores")
    claim = study.ledger.claim("w-1")
    assert claim is not None
    assert study.ask(claim) is not None
    heartbeat = Heartbeat(os.open(os.devnull, os.O_WRONLY))
    running = RunningTrial(study, "w-1", claim.trial_number, claim, heartbeat=heartbeat)
    for each in range(1, 5):
        epoch = EpochRecord(
            epoch=each,
            train_loss=1.0,
            val_loss=0.9 / each,
            learning_rate=1e-3,
            elapsed_s=0.5 * each,
            gpu_busy=0.87,
        )
        running.on_epoch(epoch, 0)
    running.deliver()
    return claim


def test_it_opens_with_the_answer_that_compare_gives(site: Site) -> None:
    studies = [open_study(site.database, f"demo-{name}") for name in ("original", "rmsnorm")]
    hostile = open_study(site.database, HOSTILE)
    answer = compare([snapshot(each).with_runs_read() for each in (*studies, hostile)]).answer
    page = site.read("/")
    said = words(page)
    assert all(sentence in said for sentence in answer)
    assert said.index(answer[0]) < said.index("12 of 12")
    assert "as the search saw it, not confirmed" in said


def test_every_study_is_listed_and_another_program_s_as_what_it_is(site: Site) -> None:
    page = site.read()
    for number, name in ((1, "demo-original"), (2, "demo-rmsnorm")):
        assert f'<a href="/study/{number}">{name}</a>' in page
    assert '<a href="/dashboard/studies/4">a stranger&#39;s</a>' in page
    assert "a stranger's of another program, 3 of 3 complete" in words(page)
    assert "mine a search over a function, 1 of 1 complete" in words(page)
    assert "another version" not in page


def test_what_a_stranger_wrote_is_text(site: Site) -> None:
    for path in ("/", "/tuner/fragment", "/study/3"):
        page = site.read(path)
        assert HOSTILE not in page
        assert HOSTILE in unescape(page)
        assert not re.search(r"<script(?! src=\"/tuner/)", page)


def test_a_browser_that_has_the_page_gets_it_again_when_it_says_something_else(site: Site) -> None:
    site.read()
    _, headers, _ = site.ask("/tuner/fragment")
    assert site.ask("/tuner/fragment", If_None_Match=headers["etag"])[::2] == (304, "")
    body = ""
    study = open_study(site.database, "demo-rmsnorm")
    claim = begin(study)
    deadline = time.monotonic() + PATIENCE_S
    told = f"trial {claim.trial_number} 4 0.2250 87 % 1,600"  # 800 windows each half second
    while told not in words(body) and time.monotonic() < deadline:
        time.sleep(0.2)
        _, _, body = site.ask("/tuner/fragment", If_None_Match=headers["etag"])
    assert told in words(body)
    assert "searches 12 of 14" in words(body)
    assert "Training now" in words(site.read("/study/2"))


@pytest.mark.parametrize("kind", ["front", "curves", "parallel", "trade", "hypervolume"])
def test_the_figures_of_a_study_are_there_in_ink_for_both_themes(site: Site, kind: str) -> None:
    page = site.read("/study/1")
    link = re.search(rf'data-figure="(/tuner/figure/s1/{kind}[^"]*)"', page)
    assert link is not None
    status, headers, body = site.ask(link[1])
    assert (status, headers["content-type"]) == (200, "application/json")
    layout = json.loads(body)["layout"]
    assert layout["paper_bgcolor"] == layout["plot_bgcolor"] == "rgba(0,0,0,0)"


@pytest.mark.parametrize(
    "path", ["/study/99", "/tuner/figure/s1/nothing", "/tuner/figure/s99/front", "/tuner/x"]
)
def test_what_is_not_there_is_one_line(site: Site, path: str) -> None:
    site.read()
    status, _, body = site.ask(path)
    assert status == 404
    assert len(body.splitlines()) == 1


@pytest.mark.parametrize(("width", "dark"), [(1440, False), (390, True)])
def test_it_fits_a_desk_and_a_telephone_and_no_figure_is_white_in_the_dark(
    site: Site, screenshots: Path, width: int, dark: bool
) -> None:
    site.read()
    found = photographed(
        f"{site.url}/", screenshots / f"first-{width}.png", width=width, dark=dark, wait_s=3
    )
    assert found["width"] <= width
    assert found["figures"] >= 1
    assert found["ground"] == ("rgb(20, 23, 27)" if dark else "rgb(255, 255, 255)")
    assert found["whites"] == 0
    assert "demo-rmsnorm" in found["text"]


def test_optuna_dashboard_s_pages_lead_back(site: Site) -> None:
    assert 'href="/"' in site.ask("/dashboard/studies/1")[2]


def test_a_study_that_is_deleted_leaves_the_page(site: Site) -> None:
    optuna.delete_study(study_name="a stranger's", storage=site.database.optuna)
    deadline = time.monotonic() + PATIENCE_S
    while "stranger" in site.read() and time.monotonic() < deadline:
        time.sleep(0.2)
    assert "stranger" not in site.read()
