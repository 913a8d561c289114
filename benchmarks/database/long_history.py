"""A study with a long history, made by bulk insert as a worker would have left it."""

from __future__ import annotations

import json
import math
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, distribution_to_json
from optuna.storages._rdb import models
from optuna.trial import TrialState
from sqlalchemy import Connection, insert

from benchmarks.database.overhead import ATTRIBUTES, definition
from tuner.record import Recorded
from tuner.storage import schema
from tuner.storage.database import open_database
from tuner.storage.records import TrialResult
from tuner.storage.url import DatabaseUrl
from tuner.study.open import create_or_resume

NAME = "etth-original"
EPOCHS = 10
BLOCK = 1000
RESULT = TrialResult(TrialState.COMPLETE, (3.4, 0.804), Recorded.from_flat(ATTRIBUTES))


def fill(address: DatabaseUrl, trials: int) -> None:
    """Finished trials of a random search, each a point that a front could have."""
    database = open_database(address)
    opened = create_or_resume(database, NAME, definition(), trials=trials + 1000)
    claim = opened.ledger.claim(
        "filler"
    )  # the default configuration, which waits in every new study
    if claim is not None and claim.trial_number == 0:
        opened.ask(claim)
        opened.ledger.finish(claim, RESULT)
    elif claim is not None:
        raise SystemExit("this database is not empty")
    existing = 1
    for first in range(existing, trials, BLOCK):
        with database.engine.begin() as connection:
            _fill_block(connection, opened.study_id, range(first, min(first + BLOCK, trials)))
    database.close()


def _fill_block(connection: Connection, study_id: int, numbers: range) -> None:
    space = definition().space
    stored = space.stored()
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=numbers[0]))
    draw = random.Random(numbers[0])
    now = datetime.now(UTC).replace(tzinfo=None)
    rows: dict[Any, list[dict[str, Any]]] = {
        models.TrialParamModel.__table__: [],
        models.TrialValueModel.__table__: [],
        models.TrialUserAttributeModel.__table__: [],
        schema.work: [],
        schema.epochs: [],
    }
    for number in numbers:
        params = study.ask(stored).params
        trial_id = connection.execute(
            insert(models.TrialModel.__table__).values(
                number=number,
                study_id=study_id,
                state=TrialState.COMPLETE,
                datetime_start=now,
                datetime_complete=now + timedelta(seconds=5),
            )
        ).inserted_primary_key[0]
        time_s = 1.0 + 9 * draw.random()
        values = (time_s, 0.79 + 0.2 / time_s + 0.1 * draw.random())
        for table, found in _of_optuna(trial_id, params, stored, values).items():
            rows[table] += found
        rows[schema.work].append(_claim(study_id, number, trial_id, values))
        rows[schema.epochs] += [
            _epoch(study_id, number, epoch, time_s) for epoch in range(1, EPOCHS + 1)
        ]
    for table, found in rows.items():
        connection.execute(insert(table), found)


def _of_optuna(
    trial_id: int,
    params: dict[str, Any],
    stored: dict[str, BaseDistribution],
    values: tuple[float, float],
) -> dict[Any, list[dict[str, Any]]]:
    """A trial's rows in Optuna's tables, by their table."""
    finite = models.TrialValueModel.TrialValueType.FINITE
    return {
        models.TrialParamModel.__table__: [
            {
                "trial_id": trial_id,
                "param_name": name,
                "param_value": distribution.to_internal_repr(params[name]),
                "distribution_json": distribution_to_json(distribution),
            }
            for name, distribution in stored.items()
        ],
        models.TrialValueModel.__table__: [
            {"trial_id": trial_id, "objective": i, "value": v, "value_type": finite}
            for i, v in enumerate(values)
        ],
        models.TrialUserAttributeModel.__table__: [
            {"trial_id": trial_id, "key": key, "value_json": json.dumps(value)}
            for key, value in ATTRIBUTES.items()
        ],
    }


def _claim(
    study_id: int, number: int, trial_id: int, values: tuple[float, float]
) -> dict[str, Any]:
    result = TrialResult(TrialState.COMPLETE, values, Recorded.from_flat(ATTRIBUTES))
    return {
        "study_id": study_id,
        "kind": "trial",
        "token": f"{number:032x}",
        "worker": "filled",
        "state": "finished",
        "leased_until": 1e9,
        "claimed_at": 1e9,
        "trial_id": trial_id,
        "trial_number": number,
        "result": result.to_json(),
        "told": True,
    }


def _epoch(study_id: int, number: int, epoch: int, time_s: float) -> dict[str, Any]:
    return {
        "study_id": study_id,
        "trial_number": number,
        "work_id": number + 1,
        "repeat": 0,
        "epoch": epoch,
        "train_loss": 0.3 + math.exp(-epoch),
        "val_loss": 0.3 + math.exp(-epoch),
        "learning_rate": 1e-4 * 0.999**epoch,
        "elapsed_s": time_s * epoch / EPOCHS,
    }
