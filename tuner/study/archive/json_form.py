"""An exported study as plain data, as JSON has it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from optuna.trial import TrialState

from tuner.config import Value
from tuner.files.plain import excerpt
from tuner.spec.definition import StudyDefinition
from tuner.spec.membership import Membership
from tuner.spec.policy import SearchPolicy
from tuner.spec.ranges import ChoiceRange, is_number
from tuner.spec.space import SearchSpace
from tuner.storage.queue.epochs import EpochRow
from tuner.storage.queue.runs import VerificationRun
from tuner.study.archive.content import Archive
from tuner.study.archive.json_schema import ArchivedStudy, Curve, Run, Trial
from tuner.study.results import TrialRecord

FORMAT = "tuner study"
VERSION = 1
_FLOATS = ("train_loss", "val_loss", "learning_rate", "elapsed_s")
_RUN = (
    "trial_number",
    "params",
    "seed",
    "block",
    "place",
    "session",
    "plan",
    "state",
    "losses",
    "worker",
)
ROUNDING = 1e-9
"""By how much a database may have rounded the end of a range."""


def as_dict(archive: Archive) -> dict[str, Any]:
    """The whole document. A study from before there were groups is written as it was then."""
    stopped = archive.little_left
    retune = archive.retune
    by_itself = archive.membership == Membership(group=archive.name)
    return {
        "format": FORMAT,
        "version": VERSION,
        "exported_by": archive.exported_by,
        "name": archive.name,
        "definition": archive.definition.as_dict(),
        "definition_hash": archive.definition.identity(),
        **({"code": archive.code} if archive.code is not None else {}),
        **({"loss_code": archive.loss_code} if archive.loss_code is not None else {}),
        **({} if by_itself else {"search": archive.membership.as_dict()}),
        "policy": json.loads(archive.policy.to_json()),
        "budget": archive.budget,
        **({"little_left": dataclasses.asdict(stopped)} if stopped is not None else {}),
        **({"retune": retune.as_dict()} if retune is not None else {}),
        **({"without_result_s": archive.without_result_s} if archive.without_result_s else {}),
        "device_model": archive.device_model,
        "trials": [_trial(record, archive.notes.get(record.number)) for record in archive.records],
        "curves": {str(number): _columns(rows) for number, rows in sorted(archive.curves.items())},
        "verifications": [_verification(run) for run in archive.verifications],
    }


def from_dict(data: Mapping[str, Any]) -> Archive:
    """The same as `from_json` of plain data."""
    return from_json(json.dumps(data))


def from_json(text: str | bytes) -> Archive:
    """What a document holds, which `read_json` has taken for plain; bytes are UTF-8.

    Raises:
        ValueError: it is not as `as_dict` writes one, or its trials are outside of its space.
        StorageError: a newer tuner wrote its policy.
    """
    study = ArchivedStudy.model_validate_json(text, strict=True)
    definition = StudyDefinition.from_dict(study.definition)
    for trial in study.trials:
        whole = trial.state == "COMPLETE"
        if outside := _outside(definition.space, trial.params, whole=whole):
            raise ValueError(f"trial {trial.number}: {outside}")
    for run in study.verifications:
        if lacks := _outside(definition.space, run.params, whole=True):
            raise ValueError(f"a verification run of trial {run.trial_number}: {lacks}")
    codes = (study.code, definition.model_source), (study.loss_code, definition.loss_source)
    if any(code is not None and _sha256(code) != digest for code, digest in codes):
        raise ValueError("the code in it is not what its definition names by hash")
    return Archive(
        name=study.name,
        definition=definition,
        membership=study.membership,
        policy=SearchPolicy.from_json(json.dumps(study.policy)),
        budget=study.budget,
        device_model=study.device_model,
        records=tuple(_record(trial, definition.objectives) for trial in study.trials),
        curves={int(number): _rows(curve) for number, curve in study.curves.items()},
        verifications=tuple(_run(run) for run in study.verifications),
        notes={trial.number: trial.notes for trial in study.trials if trial.notes},
        little_left=study.little_left.as_record() if study.little_left is not None else None,
        retune=study.retune,
        without_result_s=study.without_result_s,
        code=study.code,
        loss_code=study.loss_code,
        exported_by=study.exported_by,
    )


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()


def _outside(space: SearchSpace, params: Mapping[str, Value], *, whole: bool) -> str | None:
    """What of a configuration, or of a part of one, no sampler of its study can have chosen; None
    where all of it is possible.
    """
    for name, value in params.items():
        if name not in space.ranges:
            return f"{name!r} is no hyperparameter of the study"
        r = space.ranges[name]
        if isinstance(r, ChoiceRange):
            wrong = r.outside(value) is not None
        else:
            low, high = r.bounds()
            span = low * (1 - ROUNDING), high * (1 + ROUNDING)
            wrong = not (is_number(value) and min(span) <= value <= max(span))
        if wrong:
            return f"{name} = {excerpt(str(value))} is outside of the study's space"
    if whole and not space.whole(params):
        missing = sorted(space.there(params).keys() - params.keys())
        return f"it lacks the hyperparameter {missing[0]}"
    return None


def _trial(record: TrialRecord, notes: Mapping[str, Any] | None) -> dict[str, Any]:
    plain: dict[str, Any] = {
        "number": record.number,
        "state": record.state.name,
        "params": record.params,
    }
    if record.values is not None:
        plain["values"] = list(record.values)
    flat = record.recorded.to_flat()
    plain |= {"started": record.started, "ended": record.ended, "attributes": flat}
    return plain | ({"notes": dict(notes)} if notes else {})


def _record(trial: Trial, objectives: tuple[str, ...]) -> TrialRecord:
    return TrialRecord(
        number=trial.number,
        state=TrialState[trial.state],
        params=trial.params,
        values=trial.values,
        recorded=trial.attributes,
        started=trial.started,
        ended=trial.ended,
        objectives=objectives,
    )


def _columns(rows: Sequence[EpochRow]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {
        "epoch": [row.epoch for row in rows],
        "repeat": [row.repeat for row in rows],
    }
    return columns | {name: [_seven_digits(getattr(row, name)) for row in rows] for name in _FLOATS}


def _rows(curve: Curve) -> tuple[EpochRow, ...]:
    in_order = (getattr(curve, each.name) for each in dataclasses.fields(EpochRow))
    return tuple(map(EpochRow, *in_order))


def _seven_digits(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.7g}")


def _verification(run: VerificationRun) -> dict[str, Any]:
    plain = {name: getattr(run, name) for name in _RUN}
    return plain | {"result": json.loads(run.result.to_json()) if run.result else None}


def _run(run: Run) -> VerificationRun:
    known = {name: getattr(run, name) for name in _RUN}
    return VerificationRun(
        run_id=0,
        study_id=0,
        token=None,
        result=run.result.as_result() if run.result else None,
        **known,
    )
