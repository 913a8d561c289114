"""`--json`: exactly one document on stdout whatever the state; everything else goes to stderr."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from optuna.trial import TrialState

from tests.support.forked_cli import Done, run
from tests.support.json_schemas import BEST, DOCTOR, ERROR, LAUNCH, STATUS, VARIANTS
from tests.support.recorded_studies import RecordedDatabase
from tests.support.small_study import TASK, definition, write_files
from tuner.record import Recorded
from tuner.spec.study_file import builtin_variants
from tuner.storage.database import open_database
from tuner.storage.records import TrialResult
from tuner.storage.url import parse_url
from tuner.study.open import create_or_resume, open_study


def document(done: Done, schema: dict[str, Any]) -> Any:
    """The one document on stdout; `json.loads` refuses a second one, and we refuse what only Python
    calls JSON."""
    assert "Traceback" not in done.err, done.err
    found = json.loads(done.out, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    jsonschema.validate(found, schema)
    return found


def failed(done: Done, code: int) -> str:
    """The message of an error: the same in the document, on stderr, and its exit code in both
    places."""
    assert done.code == code, done.err
    error = document(done, ERROR)["error"]
    assert error == {"message": done.error, "exit_code": code}
    return str(error["message"])


@pytest.fixture
def copied(recorded_database: RecordedDatabase, tmp_path: Path) -> Path:
    """A folder with the recorded studies where the default database is."""
    (tmp_path / "storage").mkdir()
    with (
        sqlite3.connect(recorded_database.path) as source,
        sqlite3.connect(tmp_path / "storage" / "tuner.db") as target,
    ):
        source.backup(target)
    return tmp_path


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A folder whose default database holds a study without a finished trial; its one worker's loss
    is infinite."""
    database = open_database(parse_url(f"sqlite:///{tmp_path}/storage/tuner.db"))
    opened = create_or_resume(
        database, "demo-rmsnorm", definition(task=TASK | {"name": "demo"}), trials=10
    )
    opened.roster.join(
        "somewhere-1", host="somewhere", pid=1, device="CPU core 0", device_uuid="cpu-somewhere-0"
    )
    opened.roster.report("somewhere-1", trial_number=0, epoch=2, val_loss=float("inf"))
    database.close()
    return tmp_path


def test_status_of_nothing_is_an_empty_list(tmp_path: Path) -> None:
    done = run("status", "--json", folder=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert document(done, STATUS)["studies"] == []
    assert list(tmp_path.iterdir()) == []


def test_status_of_a_study_without_finished_trials(begun: Path) -> None:
    done = run("status", "--json", folder=begun)
    assert (done.code, done.err) == (0, "")
    (study,) = document(done, STATUS)["studies"]
    assert study["trials"] == {"complete": 0, "running": 0, "waiting": 1, "pruned": 0, "failed": 0}
    assert (study["budget"], study["front"], study["hypervolume"]) == (10, [], None)
    (worker,) = study["workers"]
    assert (worker["trial"], worker["epoch"], worker["val_loss"]) == (0, 2, None)


def test_status_of_finished_studies(copied: Path, recorded_database: RecordedDatabase) -> None:
    done = run("status", "--json", folder=copied)
    assert (done.code, done.err) == (0, "")
    studies = document(done, STATUS)["studies"]
    assert [study["name"] for study in studies] == list(recorded_database.studies)
    for study in studies:
        results = recorded_database.results(study["name"])
        assert study["trials"] == {
            "complete": 11,
            "running": 0,
            "waiting": 0,
            "pruned": 0,
            "failed": 1,
        }
        assert [row["trial"] for row in study["front"]] == [each.number for each in results.front]
        assert study["hypervolume"] == pytest.approx(results.hypervolume)
    (one,) = document(run("status", "--study", "demo-original", "--json", folder=copied), STATUS)[
        "studies"
    ]
    assert one == studies[1]


def test_best_of_a_finished_study(copied: Path, recorded_database: RecordedDatabase) -> None:
    of = ("--variant", "rmsnorm", "--task", "demo")
    arguments = ("best", *of, "--pick", "mql", "--values", "single")
    done = run(*arguments, "--json", folder=copied)
    assert (done.code, done.err) == (0, "")
    best = document(done, BEST)
    last = recorded_database.results("demo-rmsnorm").front[-1]
    assert (best["trial"], best["params"], best["verified"]) == (last.number, last.params, None)
    assert (best["variant"], best["task"], best["study"], best["pick"]) == (
        "rmsnorm",
        "demo",
        "demo-rmsnorm",
        "mql",
    )
    assert run(*arguments, "--format", "json", folder=copied) == done


def test_doctor_says_what_it_found(copied: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    empty = tmp_path_factory.mktemp("empty")
    done = run("doctor", "--json", folder=empty)
    nothing = {check["name"]: check for check in document(done, DOCTOR)["checks"]}
    assert (done.code, done.err) == (0, "")
    assert nothing["database"]["level"] == "notice"
    assert list(empty.iterdir()) == []
    finished = document(run("doctor", "--json", folder=copied), DOCTOR)
    assert finished["healthy"]
    assert {check["name"]: check["level"] for check in finished["checks"]}["database"] == "ok"


def test_a_doctor_with_bad_news_still_prints_its_findings(tmp_path: Path) -> None:
    done = run("doctor", "--storage", "postgresql://ann@127.0.0.1:1/x", "--json", folder=tmp_path)
    assert done.code == 1
    found = document(done, DOCTOR)
    assert not found["healthy"]
    database = next(check for check in found["checks"] if check["name"] == "database")
    assert database["level"] == "error"
    assert "refused" in database["detail"]


def test_variants_are_listed(tmp_path: Path) -> None:
    done = run("variants", "--json", folder=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert [row["name"] for row in document(done, VARIANTS)["variants"]] == list(builtin_variants())


def test_launch_in_every_state(tmp_path: Path) -> None:
    """Stopped before anything finished, then with nothing but a failure; another one filled, and
    left with nothing to do."""
    study, task = write_files(tmp_path)
    arguments = ("launch", "--cpu", "--variant", study.name, "--task", task.name, "--trials", "1")
    endless = (*arguments, "--max-epochs", "100000", "--json")
    done = run(*endless, "--timeout", "0.1s", folder=tmp_path)
    assert done.code == 0, done.err
    stopped = document(done, LAUNCH)
    assert stopped["outcome"] == "timed_out"
    assert stopped["studies"][0]["front"] == []
    assert stopped["studies"][0]["changed"] == {}

    database = open_database(parse_url(f"sqlite:///{tmp_path}/storage/tuner.db"))
    opened = open_study(database, "tiny-small")
    claim = opened.ledger.claim("somewhere-1")
    assert claim is not None
    assert opened.ask(claim) is not None
    assert opened.ledger.finish(
        claim, TrialResult(TrialState.FAIL, None, Recorded(failure="the loss became nan"))
    )
    database.close()
    message = failed(run(*endless, folder=tmp_path), 1)
    assert message == "every trial of tiny-small failed, the first with: the loss became nan"

    quick = (*arguments, "--study", "quick", "--json")
    policy = ("--max-epochs", "1", "--no-prune", "--max-time", "500", "--sampler", "random")
    done = run(*quick, *policy, folder=tmp_path)
    assert done.code == 0, done.err
    filled = document(done, LAUNCH)
    assert filled["outcome"] == "filled"
    assert filled["studies"][0]["trials"]["complete"] == 1
    done = run(*quick, "--max-time", "none", "--prune", folder=tmp_path)
    assert done.code == 0, done.err
    assert "tuner: quick keeps --max-epochs 1 --sampler random\n" in done.err
    assert "nothing to do: quick holds 1 of 1 finished trials" in done.err
    (again,) = document(done, LAUNCH)["studies"]
    assert again["front"] == filled["studies"][0]["front"]
    assert (again["policy"]["sampler"], again["policy"]["prune"]) == ("random", True)
    assert again["changed"] == {
        "prune": {"from": False, "to": True},
        "max_time_s": {"from": 500.0, "to": None},
    }
