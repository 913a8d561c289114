"""How far trials are beyond the limits of their study,
where `trial.set_constraint` of Optuna puts it.

Optuna sets a constraint of a running trial once. The limits of a study may change with its next
launch, and then hold for the trials that ended before, too: other tools that read the study should
see the same trials as feasible as we do.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from optuna.storages._rdb.models import TrialModel, TrialSystemAttributeModel
from sqlalchemy import Engine, Table, delete, insert, select

from tuner.storage.schema import claims

PREFIX = "constraints:"
_trials: Table = TrialModel.__table__
_system_attributes: Table = TrialSystemAttributeModel.__table__


def replace_constraints(
    engine: Engine, study_id: int, constraints: Mapping[int, Mapping[str, float]]
) -> None:
    """Let the results of a study have `constraints`, by trial number, and no others."""
    c = _system_attributes.c
    with engine.begin() as connection:
        rows = connection.execute(
            select(_trials.c.trial_id, _trials.c.number).where(_trials.c.study_id == study_id)
        )
        ids = {row.number: row.trial_id for row in rows}
        mine = select(claims.c.trial_id).where(
            (claims.c.study_id == study_id) & (claims.c.state == "finished")
        )
        connection.execute(
            delete(_system_attributes).where(c.trial_id.in_(mine) & c.key.startswith(PREFIX))
        )
        new = [
            {"trial_id": ids[number], "key": f"{PREFIX}{key}", "value_json": json.dumps(value)}
            for number, of_trial in constraints.items()
            if number in ids  # else somebody deleted its row
            for key, value in of_trial.items()
        ]
        if new:
            connection.execute(insert(_system_attributes), new)
