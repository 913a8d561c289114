"""A damaged row of one study, as an edit or a failing disk leaves it: whoever reads that study says
which row, `tuner db check` says it too, and the other studies are seen as before."""

from __future__ import annotations

import json
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
READERS = ("status --study hurt", "trial 1 --study hurt", "study export hurt --output {}/e.json")
# What is done to the database, which readers of the study fail, and what is named.
RESULT = [
    ("update tuner_claims set result = '{bro' where " + CLAIM),
    ("update tuner_claims set result = NULL where " + CLAIM),
    (
        "update tuner_claims set result = json_set(result, '$.values', json('[1, \"x\"]')) where "
        + CLAIM
    ),
    ("update tuner_claims set result = json_set(result, '$.values', json('[1.0]')) where " + CLAIM),
]
OF_THE_TRIAL = [
    *((sql, "tuner_claims.result") for sql in RESULT),
    ("update trials set datetime_start = 'garbage' where study_id = 1 and number = 1", "trials.da"),
    ("update trials set state = 'ODD' where study_id = 1 and number = 1", "trials.state"),
    (f"update trial_params set param_value = 'x' where trial_id = {TRIAL}", "trial_params.par"),
    (
        (
            "insert into trial_system_attributes (trial_id, key, value_json) "
            f"values ({TRIAL}, 'x', '{{bro')"
        ),
        "trial_system_attributes.value_json (x)",
    ),
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
    (
        f"update trial_user_attributes set value_json = '{{bro' where trial_id = {TRIAL}",
        "its attributes",
    ),
    (f"update trial_values set value = 'x' where trial_id = {TRIAL}", "its values are x, x"),
    ("update trials set number = 77 where study_id = 1 and number = 1", "its number is 77"),
    ("update tuner_claims set claimed_at = 'x' where " + CLAIM, "tuner_claims.claimed_at"),
    ("update tuner_epochs set val_loss = 'x' where " + CLAIM, "tuner_epochs.val_loss"),
    ("update tuner_claims set state = 'odd' where " + CLAIM, "tuner_claims.state"),
]


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.storage.check.SECOND_LOOK_S", 0.0)
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A database with two studies, `hurt` and `well`, of two finished trials each."""
    path = tmp_path_factory.mktemp("whole") / "tuner.db"
    database = open_database(parse_url(f"sqlite:///{path}"))
    for name in ("hurt", "well"):
        study = create_or_resume(database, name, definition(), trials=4)
        finish_one(study)
        claim, _ = start(study)
        study.epochs.write(1, claim.claim_id, [EpochRow(1, 0.5, 0.5, 1e-3, 0.1)])
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
def hurt(tmp_path: Path, whole: bytes, capsys: pytest.CaptureFixture[str]) -> Hurt:
    path = tmp_path / "tuner.db"
    path.write_bytes(whole)
    return Hurt(path, capsys)


def one_line(said: str) -> str:
    (line,) = said.splitlines()
    return line


def test_nothing_is_found_of_whole_rows(hurt: Hurt) -> None:
    assert hurt.findings() == []
    assert hurt.run("status")[0] == 0


@pytest.mark.parametrize(("sql", "named"), OF_THE_TRIAL)
def test_readers_name_the_study_and_the_trial(hurt: Hurt, sql: str, named: str) -> None:
    hurt.edit(sql)
    for command in READERS:
        code, _, stderr = hurt.run(command.format(hurt.path.parent))
        line = one_line(stderr)
        assert code == 1
        assert "study 'hurt' trial 1 cannot be read" in line
        assert named in line
        assert "backup" in line
        assert "db check" in line
    assert hurt.run("status --study well")[0] == 0


@pytest.mark.parametrize(("sql", "named"), OF_THE_STUDY)
def test_readers_name_the_study(hurt: Hurt, sql: str, named: str) -> None:
    hurt.edit(sql)
    code, _, stderr = hurt.run("status --study hurt")
    line = one_line(stderr)
    assert code == 1
    assert "study 'hurt'" in line
    assert named in line
    assert "backup" in line
    assert hurt.run("status --study well")[0] == 0


@pytest.mark.parametrize("command", READERS[1:])
def test_an_epoch_without_numbers_is_named(hurt: Hurt, command: str) -> None:
    hurt.edit("update tuner_epochs set val_loss = 'x' where " + CLAIM)
    code, _, stderr = hurt.run(command.format(hurt.path.parent))
    line = one_line(stderr)
    assert code == 1
    assert "study 'hurt' trial 1 cannot be read: tuner_epochs.val_loss holds 'x'" in line


@pytest.mark.parametrize(("sql", "named"), [*OF_THE_TRIAL, *OF_THE_STUDY])
def test_status_shows_the_other_studies(hurt: Hurt, sql: str, named: str) -> None:
    hurt.edit(sql)
    code, stdout, stderr = hurt.run("status")
    assert code == 1
    assert "well" in stdout
    assert "hurt" not in stdout
    line = one_line(stderr)
    assert line.startswith("tuner: error: ")
    assert "'hurt'" in line
    assert named in line
    code, stdout, _ = hurt.run("status --json")
    document = json.loads(stdout)
    assert code == 1
    assert [each["name"] for each in document["studies"]] == ["well"]
    assert list(document["unreadable"]) == ["hurt"]
    assert named in document["unreadable"]["hurt"]


@pytest.mark.parametrize(("sql", "named"), [*OF_THE_TRIAL, *OF_THE_STUDY, *NOT_READ])
def test_check_names_what_is_damaged(hurt: Hurt, sql: str, named: str) -> None:
    hurt.edit(sql)
    # Another study's fault, to be found beside it.
    hurt.edit(
        "update trial_values set value = 9.0 where trial_id in (select trial_id from trials "
        "where study_id = 2 and number = 0)"
    )
    said = hurt.findings()
    errors = [what for level, what in said if level == "error"]
    of_hurt = [what for what in errors if "hurt" in what]
    assert any("well trial 0: its values are" in what for what in errors)
    (line,) = of_hurt
    assert "hurt trial 1: " in line or line.startswith("hurt: ")
    if (sql, named) in NOT_READ:
        assert named in line
    assert hurt.run("db check")[0] == 1


@pytest.mark.parametrize(
    "sql",
    [
        f"update trial_user_attributes set value_json = '{{bro' where trial_id = {TRIAL}",
        f"update trial_values set value = 'x' where trial_id = {TRIAL}",
        f"update trial_params set param_value = 'x' where trial_id = {TRIAL}",
        "update trials set state = 'ODD' where study_id = 1 and number = 1",
        "update trials set number = 77 where study_id = 1 and number = 1",
    ],
)
def test_what_tuner_recorded_is_put_back(hurt: Hurt, sql: str) -> None:
    hurt.edit(sql)
    code, stdout, stderr = hurt.run("db check --repair")
    assert (code, stderr) == (0, "")
    assert "restored hurt trial 1" in stdout
    assert hurt.findings() == []
    assert hurt.run("status")[0] == 0


def test_repair_leaves_a_damaged_study_as_it_is(hurt: Hurt) -> None:
    hurt.edit(RESULT[0])
    hurt.edit("update tuner_claims set told = 0 where " + CLAIM)
    code, stdout, _ = hurt.run("db check --repair")
    assert code == 1
    assert "left hurt as it is: study 'hurt' trial 1 cannot be read" in stdout


def test_a_study_with_much_damage_has_twenty_lines(hurt: Hurt) -> None:
    hurt.edit(
        "insert into trial_system_attributes (trial_id, key, value_json) "
        f"with recursive n(i) as (select 1 union all select i + 1 from n where i < 30) "
        f"select {TRIAL}, 'k' || i, '{{bro' from n"
    )
    said = hurt.findings()
    assert len(said) == 21
    assert said[-1] == ("error", "hurt: more of it is damaged than these 20 lines")


def test_each_study_that_cannot_be_read_has_its_line(hurt: Hurt) -> None:
    hurt.edit("update tuner_studies set policy = '{bro'")
    code, stdout, stderr = hurt.run("status")
    assert (code, stdout) == (1, "")
    first, second = stderr.splitlines()
    assert first.startswith("tuner: the policy of study 'well' cannot be read")
    assert second.startswith("tuner: error: the policy of study 'hurt' cannot be read")


def test_a_watched_status_leaves_out_what_cannot_be_read(
    hurt: Hurt, monkeypatch: pytest.MonkeyPatch
) -> None:
    def leave(_: float) -> None:
        raise KeyboardInterrupt

    hurt.edit(RESULT[0])
    monkeypatch.setattr("tuner.cli.status.time.sleep", leave)
    code, stdout, stderr = hurt.run("status --watch")
    assert code == 130
    assert "well" in stdout
    assert "study 'hurt' trial 1 cannot be read" in one_line(stderr)


def test_a_damaged_study_is_in_no_new_ones_way(hurt: Hurt) -> None:
    hurt.edit(OF_THE_STUDY[0][0])
    database = open_database(parse_url(hurt.url))
    create_or_resume(database, "new", definition(), trials=4)
    database.close()
    assert "new" in hurt.run("status")[1]


def test_a_verification_run_that_cannot_be_read_is_named(hurt: Hurt) -> None:
    hurt.edit(
        "insert into tuner_verifications (study_id, trial_number, params, seed, block, place, "
        "session, plan, state, losses, result) "
        "values (1, 1, '{}', 5, 0, 0, 's', '{}', 'finished', 0, '{bro')"
    )
    assert hurt.findings() == [
        (
            "error",
            (
                "verification runs that cannot be read: 1 (hurt trial 1 seed 5); "
                "restore them from a backup"
            ),
        )
    ]


def test_a_policy_of_a_newer_tuner_asks_for_that(hurt: Hurt) -> None:
    hurt.edit("update tuner_studies set policy = '{\"later\": 1}' where study_id = 1")
    ((level, what),) = hurt.findings()
    assert level == "error"
    assert what.startswith("hurt: tuner_studies.policy cannot be read (")
    assert "later" in what
    assert "use the version of tuner that wrote it" in what


def test_an_exported_study_with_a_range_of_no_kind_is_one_line(hurt: Hurt) -> None:
    file = hurt.path.with_name("study.json")
    assert hurt.run(f"study export well --output {file}")[0] == 0
    document = json.loads(file.read_text())
    document["definition"]["space"]["dropout"]["type"] = []
    file.write_text(json.dumps(document))
    code, _, stderr = hurt.run(f"compare {file} study:hurt")
    assert code == 2
    assert f"{file} is damaged: " in one_line(stderr)
