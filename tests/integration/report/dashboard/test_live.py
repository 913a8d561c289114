"""The dashboard on a study while it runs: what tuner adds to it, on both databases, and in a real
browser."""

from __future__ import annotations

import csv
import io
import json
import re
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
import pytest

from tests.support.browser import rendered
from tests.support.postgres_cluster import Cluster
from tests.support.postgres_roles import three_roles
from tests.support.recorded_studies import record_study
from tuner.errors import StorageError
from tuner.report.dashboard.additions import Additions, in_order
from tuner.report.dashboard.downloads import StudyFiles
from tuner.report.dashboard.server import ShownStorage, make_dashboard
from tuner.storage.database import open_database
from tuner.storage.queue.epochs import EpochRow
from tuner.storage.records import Claim
from tuner.storage.url import parse_url
from tuner.study.open import OpenStudy, open_study

STUDY = "demo-rmsnorm"
PATIENCE_S = 120


@dataclass(frozen=True)
class Page:
    """A dashboard on a study that is being worked on."""

    url: str
    number: int
    study: OpenStudy
    claim: Claim

    def get(self, path: str) -> bytes:
        with urllib.request.urlopen(self.url + path, timeout=PATIENCE_S) as answer:
            body: bytes = answer.read()
        return body

    def detail(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.get(f"/api/studies/{self.number}"))
        return found

    def figures(self) -> dict[str, dict[str, Any]]:
        return {
            each["id"].partition(".")[0]: json.loads(each["graph_object"])
            for each in self.detail()["plotly_graph_objects"]
        }


@pytest.fixture(scope="module")
def page(postgres: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """Eight finished trials and one at work, which slows down, shown by the role that may only
    read; SQLite's file is shown to the other tests of the dashboard."""
    roles = three_roles(postgres, tmp_path_factory.mktemp("running"))
    working, reading = roles.url("worker"), roles.url("reader")
    record_study(working, variant="rmsnorm", trials=8)
    database = open_database(parse_url(working), create=False)
    study = open_study(database, STUDY)
    claim = begin_a_trial(study)
    server = make_dashboard(parse_url(reading), host="127.0.0.1", port=0)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield Page(f"http://127.0.0.1:{server.server_port}", study.study_id, study, claim)
    server.shutdown()
    server.server_close()
    database.close()


@pytest.fixture(autouse=True)
def _alive(request: pytest.FixtureRequest) -> None:
    """The page's worker is at work in each test, however long the browsers before it took."""
    if "page" in request.fixturenames:
        page: Page = request.getfixturevalue("page")
        page.study.roster.report("worker-7")
        assert page.study.ledger.renew(page.claim)


def begin_a_trial(study: OpenStudy) -> Claim:
    study.ledger.set_budget(10)
    study.roster.join("worker-7", host="here", pid=7, device="GPU 3", device_uuid="GPU-3")
    claim = study.ledger.claim("worker-7")
    assert claim is not None
    assert study.ask(claim) is not None
    clocks = [0.1 * epoch + 0.3 * max(0, epoch - 12) for epoch in range(1, 25)]
    rows = [EpochRow(e, 1.0, 0.9 / e, 1e-3, clock) for e, clock in enumerate(clocks, start=1)]
    study.epochs.write(claim.trial_number, claim.work_id, rows)
    study.roster.report("worker-7", trial_number=claim.trial_number, epoch=24, val_loss=0.0375)
    return claim


def words(html: str) -> str:
    return " ".join(
        re.sub(
            r"<[^>]+>", " ", re.sub(r"<(style|script).*?</\1>", "", html, flags=re.DOTALL)
        ).split()
    )


def test_the_api_has_figures_in_their_order_with_the_running_trial_in_them(page: Page) -> None:
    figures = page.figures()
    names = "front curves hypervolume trade throughput"
    assert list(figures) == names.split()
    assert "demo-rmsnorm: default hyperparameters" in [
        trace["name"] for trace in figures["front"]["data"]
    ]
    slowed = f"trial {page.claim.trial_number}: slowed"
    assert [trace["name"] for trace in figures["throughput"]["data"]] == ["steady trials", slowed]
    assert figures["throughput"]["data"][1]["y"][-1] == pytest.approx(0.25)


def test_axes_carry_units_and_the_note_says_where_the_study_stands(page: Page) -> None:
    detail = page.detail()
    assert detail["objective_names"] == ["wall_clock_s (seconds)", "test_mql (units of the data)"]
    note = detail["note"]["body"]
    assert note.startswith("## rmsnorm on demo")
    assert "8 of 10 trials finished, 1 running, 1 failed" in note
    assert f"(/study/{page.number})" in note, "who works on it stands there"
    assert f"Throughput fell:\n- trial {page.claim.trial_number}\\: throughput fell" in note
    assert "- trial 7: the loss became nan in epoch 2" in note
    assert "usually bears a larger rate" in note  # why its range is what it is
    assert "normalises by the root mean square" in note


@pytest.mark.parametrize("fresh_s", [0.0, 3600.0])
def test_what_is_shown_follows_the_study_once_it_is_no_longer_fresh(
    page: Page, fresh_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuner.report.dashboard.additions.FRESH_S", fresh_s)
    monkeypatch.setattr("tuner.report.dashboard.additions.SHARE", 0)
    database, loss = page.study.database, 0.123 + fresh_s / 1e6
    additions = Additions(database, optuna.storages.get_storage(database.optuna), StudyFiles())
    before = additions(page.number)
    row = EpochRow(3, 1.0, loss, 1e-3, 0.3)
    page.study.epochs.write(page.claim.trial_number, page.claim.work_id, [row])
    after = additions(page.number)
    (curves,) = [
        text for key, text in after.items() if key.startswith("dashboard:plot_data:curves")
    ]
    assert (str(loss) in curves) is (fresh_s == 0.0)
    assert (after is before) is (fresh_s > 0.0)


def test_files_of_a_study_and_of_the_trials_on_its_front_can_be_opened(page: Page) -> None:
    detail = page.detail()
    files = {each["filename"]: each["artifact_id"] for each in detail["artifacts"]}
    table = page.get(f"/artifacts/{page.number}/{files['trials.csv']}").decode()
    rows = list(csv.DictReader(io.StringIO(table)))
    assert [row["trial"] for row in rows] == [str(number) for number in range(9)]
    definition = json.loads(page.get(f"/artifacts/{page.number}/{files['definition.json']}"))
    assert definition["variant"] == "rmsnorm"

    trial = next(
        each for each in detail["trials"] if each["number"] == detail["best_trials"][0]["number"]
    )
    files = {each["filename"]: each["artifact_id"] for each in trial["artifacts"]}
    where = f"/artifacts/{page.number}/{trial['trial_id']}"
    curve = list(csv.DictReader(io.StringIO(page.get(f"{where}/{files['curve.csv']}").decode())))
    card = json.loads(page.get(f"{where}/{files['trial.json']}"))
    assert card["trial"] == trial["number"]
    assert len(curve) == card["epochs"]
    with pytest.raises(urllib.error.HTTPError):
        page.get(f"/artifacts/{page.number}/00000000-0000-0000-0000-000000000000")


def test_a_browser_shows_front_curves_table_and_note_of_a_running_study(
    page: Page, screenshots: Path, request: pytest.FixtureRequest
) -> None:
    kind = "postgresql"
    study = f"{page.url}/dashboard/studies/{page.number}"
    html = rendered(study, screenshot=screenshots / f"running-{kind}.png", height=3100)
    shown = words(html)
    for text in (
        "Pareto Front",
        "wall_clock_s (seconds)",
        "Time against error",
        "demo-rmsnorm: default hyperparameters",
        "Learning curves",
        "other trials",
        "Does the search still find better ones?",
        "Fewer epochs, or faster ones",
        "Did a training slow down?",
        "trial 8: slowed",
    ):
        assert text in shown, text
    assert html.count('class="point"') >= 14  # Optuna's front and ours


def test_a_browser_shows_the_note_with_the_way_to_the_answer(page: Page, screenshots: Path) -> None:
    if page.study.database.address.is_sqlite:
        pytest.skip("seen once, on the other database")
    html = rendered(
        f"{page.url}/dashboard/studies/{page.number}/note", screenshot=screenshots / "note.png"
    )
    shown = words(html)
    assert "seconds of training and validation" in shown
    assert "The answer, and what trains now" in shown


def test_whoever_reaches_the_storage_itself_cannot_write_through_it(page: Page) -> None:
    shown = ShownStorage(page.study.database.optuna, lambda _: {})
    study = optuna.load_study(study_name=STUDY, storage=shown)
    before = len(study.get_trials(deepcopy=False))
    for write in (
        study.ask,
        lambda: study.set_user_attr("a", 1),
        lambda: shown.delete_study(page.number),
        lambda: shown.set_study_system_attr(page.number, "a", 1),
        lambda: shown.set_trial_state_values(1, optuna.trial.TrialState.COMPLETE, [0.0, 0.0]),
        lambda: optuna.create_study(storage=shown),
    ):
        with pytest.raises(StorageError, match="read-only"):
            write()
    assert len(page.study.optuna.get_trials(deepcopy=False)) == before


def test_a_list_of_studies_makes_no_figures(page: Page) -> None:
    asked: list[int] = []

    def ask(number: int) -> dict[str, Any]:
        asked.append(number)
        return {"artifacts:x": "1"}

    shown = ShownStorage(page.study.database.optuna, ask)
    (study,) = shown.get_all_studies()
    assert study.system_attrs.get("preferential") is None
    assert asked == []
    assert study.system_attrs["artifacts:x"] == "1"
    assert asked == [page.number]


def test_names_keep_their_order_in_a_set() -> None:
    names = ["front", "curves", "workers", "hypervolume", "trade", "throughput"]
    numbered = in_order(names)
    assert list(set(numbered)) == numbered
    assert [name.partition(".")[0] for name in numbered] == names
