"""What another program changed or deleted: a check names it, a repair restores or removes it."""

from __future__ import annotations

import json
from pathlib import Path

import optuna
import pytest
from optuna.trial import TrialState
from sqlalchemy import delete, update

from tests.support.claims import start
from tests.support.databases import SQLITE_ALONE
from tests.support.foreign_trials import findings, finish_one, theirs
from tuner.cli.main import main
from tuner.storage import schema
from tuner.study.housekeeping import repair
from tuner.study.open import OpenStudy, open_study
from tuner.study.results import read_results

pytestmark = pytest.mark.usefixtures("at_first_sight")


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tuner.storage.check.SECOND_LOOK_S", 0.0)


def test_check_names_what_was_changed_and_repair_restores_it(
    study: OpenStudy, tmp_path: Path
) -> None:
    for _ in range(4):
        finish_one(study)
    m = optuna.storages._rdb.models
    trial_ids = [trial._trial_id for trial in theirs(study).trials]
    with study.database.engine.begin() as connection:
        values, params, attributes = m.TrialValueModel, m.TrialParamModel, m.TrialUserAttributeModel
        connection.execute(
            update(values).where(values.trial_id == trial_ids[0]).values(value=0.001)
        )
        of_dropout = (params.trial_id == trial_ids[1]) & (params.param_name == "dropout")
        connection.execute(update(params).where(of_dropout).values(param_value=0.999))
        of_seed = (attributes.trial_id == trial_ids[2]) & (attributes.key == "seed")
        connection.execute(update(attributes).where(of_seed).values(value_json='"x"'))
        for table in (values, params, attributes, m.TrialSystemAttributeModel, m.TrialModel):
            connection.execute(delete(table).where(table.trial_id == trial_ids[3]))
    before = read_results(open_study(study.database, study.name)).records
    assert [record.values for record in before] == [(2.0, 0.5)] * 4
    said = findings(study)
    assert "small trial 0: its values are 0.001, 0.001, recorded 2.0, 0.5" in said
    assert "small trial 1: its dropout is 0.999, recorded" in said
    assert 'small trial 2: its attribute seed is "x", recorded' in said
    assert "small trial 3: its row is gone" in said
    done = repair(study.database.address, tmp_path)
    assert len(done) == 4
    assert findings(study) == ""
    assert repair(study.database.address, tmp_path) == ()
    after = theirs(study).trials
    assert [(trial.state, trial.values) for trial in after] == [
        (TrialState.COMPLETE, [2.0, 0.5])
    ] * 4
    space = study.definition.space
    assert [trial.params for trial in after] == [space.held(record.params) for record in before]


@SQLITE_ALONE
def test_what_is_left_of_a_deleted_study_is_saved_and_removed(
    study: OpenStudy,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    finish_one(study)
    claim, _ = start(study)
    optuna.delete_study(study_name=study.name, storage=study.database.optuna)
    assert (
        "studies that were deleted by other means than tuner: 1 (study 1 (rmsnorm on "
        in findings(study)
    )
    (left,) = repair(study.database.address, tmp_path)
    assert "1 runs are still at work" in left
    with study.database.engine.begin() as connection:
        mine = schema.work.c.work_id == claim.work_id
        connection.execute(update(schema.work).where(mine).values(leased_until=0.0))
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main(["db", "check", "--repair", "--json", "--storage", study.database.address.full()])
    assert ended.value.code == 0
    (line,) = json.loads(capsys.readouterr().out)["repaired"]
    saved = json.loads(Path(line.rpartition(" ")[2]).read_text())
    assert [
        json.loads(row["result"])["values"] for row in saved["tables"]["work"] if row["result"]
    ] == [[2.0, 0.5]]
    assert findings(study) == ""
