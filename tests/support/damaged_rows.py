"""A database of two studies of which a row was damaged, as an edit or a failing disk leaves it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from tests.support.claims import start
from tests.support.foreign_trials import finish_one
from tests.support.small_study import definition
from tuner.cli.main import main
from tuner.storage.check import check_database
from tuner.storage.database import open_database
from tuner.storage.queue.epochs import EpochRow
from tuner.storage.url import parse_url
from tuner.study.open import create_or_resume

TRIAL = "(select trial_id from trials where study_id = 1 and number = 1)"
CLAIM = "study_id = 1 and trial_number = 1"
# What is done to the database, and what is named.
RESULT = [
    ("update tuner_work set result = '{bro' where " + CLAIM),
    ("update tuner_work set result = NULL where " + CLAIM),
    (
        "update tuner_work set result = json_set(result, '$.values', json('[1, \"x\"]')) where "
        + CLAIM
    ),
    ("update tuner_work set result = json_set(result, '$.values', json('[1.0]')) where " + CLAIM),
]
OF_THE_TRIAL = [
    *((sql, "tuner_work.result") for sql in RESULT),
    ("update tuner_work set params = '{bro' where " + CLAIM, "tuner_work.params"),
    ("update tuner_work set params = '[1]' where " + CLAIM, "tuner_work.params"),
    (
        "update tuner_work set params = json_set(params, '$.dropout', 'x') where " + CLAIM,
        "tuner_work.params: dropout = x is outside",
    ),
    (
        "update tuner_work set params = json_remove(params, '$.dropout') where " + CLAIM,
        "tuner_work.params: it lacks the hyperparameter dropout",
    ),
    ("update tuner_work set notes = '[1]' where " + CLAIM, "tuner_work.notes"),
    (
        'update tuner_work set notes = \'{"x:generation": "[red]"}\' where ' + CLAIM,
        "tuner_work.notes: x:generation = '[red]'",
    ),
    ("update tuner_work set claimed_at = 'x' where " + CLAIM, "tuner_work.claimed_at"),
]
OF_THE_STUDY = [
    (
        (
            "update study_user_attributes set value_json = '{bro' "
            "where study_id = 1 and key = 'tuner_search'"
        ),
        "tuner_search",
    ),
    (
        (
            "update study_user_attributes set value_json = '\"oops\"' "
            "where study_id = 1 and key = 'tuner_search'"
        ),
        "tuner_search",
    ),
    ("update tuner_studies set policy = '{bro' where study_id = 1", "policy"),
    ("update tuner_studies set budget = 'x' where study_id = 1", "tuner_studies.budget"),
    (
        (
            "update tuner_studies set definition = "
            "json_set(definition, '$.space.dropout', json('{\"type\": []}')) where study_id = 1"
        ),
        "definition",
    ),
    ("update study_directions set direction = 'X' where study_id = 1", "study_directions.dir"),
]
NOT_READ = [  # by `status`; `check` names them all the same
    ("update trials set state = 'ODD' where study_id = 1 and number = 1", "its state is ODD"),
    (f"update trial_params set param_value = 'x' where trial_id = {TRIAL}", "its "),
    (
        f"update trial_user_attributes set value_json = '{{bro' where trial_id = {TRIAL}",
        "its attribute ",
    ),
    (f"update trial_values set value = 'x' where trial_id = {TRIAL}", "its values are x, x"),
    ("update trials set number = 77 where study_id = 1 and number = 1", "its number is 77"),
    ("update tuner_epochs set val_loss = 'x' where " + CLAIM, "tuner_epochs.val_loss"),
    ("update tuner_work set state = 'odd' where " + CLAIM, "tuner_work.state"),
]


@pytest.fixture(scope="session")
def whole_database(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A database with two studies, `hurt` and `well`, of two finished trials each."""
    path = tmp_path_factory.mktemp("whole") / "tuner.db"
    database = open_database(parse_url(f"sqlite:///{path}"))
    for name in ("hurt", "well"):
        study = create_or_resume(database, name, definition(), trials=4)
        finish_one(study)
        claim, _ = start(study)
        study.epochs.write(1, claim.work_id, [EpochRow(1, 0.5, 0.5, 1e-3, 0.1)])
        study.ledger.give_back(claim)
        finish_one(study, 0.4)
    database.close()
    with sqlite3.connect(path) as file:
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    file.close()
    return path.read_bytes()


class Hurt:
    """That database after an edit, and what commands say of it."""

    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.path, self._capsys = path, capsys
        self.url = f"sqlite:///{path}"

    def edit(self, sql: str) -> None:
        with sqlite3.connect(self.path) as file:
            assert file.execute(sql).rowcount > 0
        file.close()

    def run(self, command: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main([*command.split(), "--storage", self.url])
        code = ended.value.code
        assert isinstance(code, int)
        return code, *self._capsys.readouterr()

    def findings(self) -> list[tuple[str, str]]:
        return [(each.level, each.what) for each in check_database(parse_url(self.url)).findings]


@pytest.fixture
def hurt(
    tmp_path: Path,
    whole_database: bytes,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Hurt:
    """One of its own. A check looks twice without waiting."""
    monkeypatch.setattr("tuner.storage.check.SECOND_LOOK_S", 0.0)
    monkeypatch.setenv("COLUMNS", "200")
    path = tmp_path / "tuner.db"
    path.write_bytes(whole_database)
    return Hurt(path, capsys)


def one_line(said: str) -> str:
    """What was said, if that is one."""
    (line,) = said.splitlines()
    return line
