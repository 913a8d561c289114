"""`--notify` and `--track`: who is told how work ended, and which tracker gets its trials."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.forked_cli import Done, run_here
from tests.support.recorded_studies import RecordedDatabase
from tuner.report.tracking import track
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.open import OpenStudy, open_study

FULL = ("launch", "--variant", "rmsnorm", "--task", "demo", "--cpu", "--trials", "12")


class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.heard.append(body)  # type: ignore[attr-defined]
        self.send_response(500 if "refuse" in self.path else 204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def hook() -> Iterator[Any]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hook) as server:
        server.heard = []  # type: ignore[attr-defined]
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server
        server.shutdown()


def notified(folder: Path, *words: str, to: str) -> Done:
    return run_here(*words, "--notify", to, folder=folder)


def test_a_webhook_hears_of_a_failure_and_one_that_fails_is_a_line(
    hook: Any, tmp_path: Path
) -> None:
    address = f"http://127.0.0.1:{hook.server_port}"
    done = notified(tmp_path, "launch", "--variant", "nope", to=f"{address}/secret")
    (document,) = hook.heard
    assert (document["event"], document["answer"]) == ("failure", done.error)
    refused = notified(tmp_path, "launch", "--variant", "nope", to=f"{address}/refuse-secret")
    assert (refused.code, refused.error) == (done.code, done.error) == (2, document["answer"])
    assert "tuner: --notify failed: HTTPError 500\n" in refused.err
    assert "secret" not in done.err + refused.err


def test_a_command_is_given_the_document(copied: Path) -> None:
    done = notified(copied, *FULL, to="tee 'a document.json'")
    assert done.code == 0, done.err
    document = json.loads((copied / "a document.json").read_text())
    assert document == {
        "what": "launch rmsnorm",
        "event": "end",
        "ended": "filled",
        "answer": "demo-rmsnorm: 12 of 12 trials finished",
    }
    failing = notified(copied, *FULL, to="false")
    assert (failing.code, "--notify failed: CalledProcessError 1" in failing.err) == (0, True)
    assert "expected https://" in notified(copied, *FULL, to="no-such-command x").error
    assert "unknown tracker 'nope'" in run_here(*FULL, "--track", "nope", folder=copied).error


@pytest.fixture
def study(recorded_database: RecordedDatabase, tmp_path: Path) -> Iterator[OpenStudy]:
    recorded_database.copied_into(tmp_path)
    address = parse_url(f"sqlite:///{tmp_path}/storage/tuner.db")
    with closing(open_database(address)) as database:
        yield open_study(database, "demo-rmsnorm")


def epochs_of(study: OpenStudy) -> dict[str, int]:
    return {f"trial-{n}": len(study.epochs.of_trial(n)) for n in range(12)}


def test_tensorboard_reads_every_trial_and_curve(study: OpenStudy, tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    reader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_multiplexer", reason="no reader without it"
    )
    for _ in range(2):
        track("tensorboard", [study])
    found = reader.EventMultiplexer().AddRunsFromDirectory(str(tmp_path / "storage/tensorboard"))
    found.Reload()
    curves = {
        run[run.index("trial-") :]: len(found.Scalars(run, "val_loss")) for run in found.Runs()
    }
    assert curves == epochs_of(study)


def test_mlflow_reads_every_trial_and_curve_once(study: OpenStudy, tmp_path: Path) -> None:
    mlflow = pytest.importorskip("mlflow", reason="an extra of its own")
    for _ in range(2):
        track("mlflow", [study])
    client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/storage/mlflow/mlflow.db")
    experiment = client.get_experiment_by_name("demo-rmsnorm")
    curves = {}
    for run in client.search_runs([experiment.experiment_id]):
        curves[run.info.run_name] = len(client.get_metric_history(run.info.run_id, "val_loss"))
        assert "learning_rate" in run.data.params
    assert curves == epochs_of(study)


def test_wandb_has_an_offline_run_of_every_trial(study: OpenStudy, tmp_path: Path) -> None:
    pytest.importorskip("wandb", reason="an extra of its own")
    for _ in range(2):
        track("wandb", [study])
    runs = list((tmp_path / "storage" / "wandb").glob("*/wandb/offline-run-*/*.wandb"))
    assert {run.parents[2].name.rpartition("-t")[2] for run in runs} == {
        f"rial-{n}" for n in range(12)
    }
    assert len(runs) == 12
