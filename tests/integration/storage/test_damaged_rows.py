"""A damaged row of one study: who reads that study says which, and others are seen as before."""

from __future__ import annotations

import json

import pytest

from tests.support.damaged_rows import CLAIM, OF_THE_STUDY, OF_THE_TRIAL, RESULT, Hurt, one_line
from tests.support.small_study import definition
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.open import create_or_resume

READERS = ("status --study hurt", "trial 1 --study hurt", "study export hurt --output {}/e.json")


@pytest.mark.parametrize(("sql", "named"), OF_THE_TRIAL[:: len(RESULT)])
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


def test_an_epoch_without_numbers_is_named(hurt: Hurt) -> None:
    hurt.edit("update tuner_epochs set val_loss = 'x' where " + CLAIM)
    for command in READERS[1:]:
        code, _, stderr = hurt.run(command.format(hurt.path.parent))
        line = one_line(stderr)
        assert code == 1
        assert "study 'hurt' trial 1 cannot be read: tuner_epochs.val_loss: " in line


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
    assert "backup" in line
    code, stdout, _ = hurt.run("status --json")
    document = json.loads(stdout)
    assert code == 1
    assert [each["name"] for each in document["studies"]] == ["well"]
    assert list(document["unreadable"]) == ["hurt"]
    assert named in document["unreadable"]["hurt"]


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


def test_an_exported_study_with_a_range_of_no_kind_is_one_line(hurt: Hurt) -> None:
    file = hurt.path.with_name("study.json")
    assert hurt.run(f"study export well --output {file}")[0] == 0
    document = json.loads(file.read_text())
    document["definition"]["space"]["dropout"]["type"] = []
    file.write_text(json.dumps(document))
    code, _, stderr = hurt.run(f"compare {file} study:hurt")
    assert code == 2
    assert f"{file} is damaged: " in one_line(stderr)
