"""`tuner db check` names each row that cannot be read, and puts back what tuner recorded."""

from __future__ import annotations

import pytest

from tests.support.damaged_rows import (
    CLAIM,
    NOT_READ,
    OF_THE_STUDY,
    OF_THE_TRIAL,
    RESULT,
    TRIAL,
    Hurt,
)


@pytest.mark.parametrize(("sql", "named"), [*OF_THE_TRIAL, *OF_THE_STUDY, *NOT_READ])
def test_check_names_what_is_damaged(hurt: Hurt, sql: str, named: str) -> None:
    if sql == RESULT[0]:
        assert (hurt.findings(), hurt.run("status")[0]) == ([], 0), "nothing of whole rows"
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
    assert "hurt trial 1: " in line or "hurt: " in line or "study 'hurt'" in line
    if (sql, named) in NOT_READ:
        assert named in line


def test_what_tuner_recorded_is_put_back(hurt: Hurt) -> None:
    for sql in (
        f"update trial_user_attributes set value_json = '{{bro' where trial_id = {TRIAL}",
        f"update trial_values set value = 'x' where trial_id = {TRIAL}",
        f"update trial_params set param_value = 'x' where trial_id = {TRIAL}",
        "update trials set state = 'ODD', number = 77 where study_id = 1 and number = 1",
    ):
        hurt.edit(sql)
    code, stdout, stderr = hurt.run("db check --repair")
    assert (code, stderr) == (0, "")
    assert "restored hurt trial 1" in stdout
    assert hurt.findings() == []
    assert hurt.run("status")[0] == 0


def test_repair_leaves_a_damaged_study_as_it_is(hurt: Hurt) -> None:
    hurt.edit(RESULT[0])
    hurt.edit("update tuner_work set told = 0 where " + CLAIM)
    code, stdout, _ = hurt.run("db check --repair")
    assert code == 1
    assert "left hurt as it is: study 'hurt' trial 1 cannot be read" in stdout


def test_a_study_with_much_damage_has_twenty_lines(hurt: Hurt) -> None:
    hurt.edit(
        "insert into tuner_work (study_id, kind, trial_number, trial_id, state, worker, "
        "claimed_at, leased_until, had_s, told, result) "
        "with recursive n(i) as (select 2 union all select i + 1 from n where i < 31) "
        "select 1, 'trial', i, i, 'finished', 'ann', 0, 0, 0, 0, '{bro' from n"
    )
    said = hurt.findings()
    assert said[20] == ("error", "hurt: more of it is damaged than these 20 lines")


def test_a_verification_run_that_cannot_be_read_is_named(hurt: Hurt) -> None:
    hurt.edit(
        "insert into tuner_work (study_id, kind, trial_number, params, seed, block, place, "
        "session, plan, state, worker, claimed_at, leased_until, had_s, told, result) values "
        "(1, 'run', 1, '{}', 5, 0, 0, 's', '{}', 'finished', 'ann', 0, 0, 0, false, '{bro')"
    )
    ((level, what),) = hurt.findings()
    assert level == "error"
    assert what.startswith("hurt trial 1: tuner_work.result: ")


def test_a_policy_of_a_newer_tuner_asks_for_that(hurt: Hurt) -> None:
    hurt.edit("update tuner_studies set policy = '{\"later\": 1}' where study_id = 1")
    ((level, what),) = hurt.findings()
    assert level == "error"
    assert what.startswith("the policy of study 'hurt' holds settings that this tuner does not")
    assert "later" in what
