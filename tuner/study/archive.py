"""A study in one file: compact, versioned JSON with everything that was found, to read without a database.

It holds the study's definition and policy, its trials with their values and attributes, their learning curves (to seven
significant digits, what fp32 has) and the verification runs that ended. Names ending in `.gz` are compressed; the same
study gives the same bytes.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from optuna.trial import TrialState

from tuner.errors import UsageError
from tuner.storage import EpochRow, TrialResult, VerificationRun, Verifications
from tuner.study.definition import StudyDefinition
from tuner.study.mirror import generation, known_params
from tuner.study.opened import OpenStudy
from tuner.study.policy import SearchPolicy
from tuner.study.results import StudyResults, TrialRecord, judged, read_results
from tuner.version import __version__

FORMAT = "tuner study"
VERSION = 1
ENDINGS = (".json", ".json.gz")
_FLOATS = ("train_loss", "val_loss", "learning_rate", "elapsed_s")
_ENDED = ("finished", "skipped")


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """A study as it was exported."""

    name: str
    definition: StudyDefinition
    policy: SearchPolicy
    budget: int
    device_model: str | None
    records: tuple[TrialRecord, ...]
    """Trials in the order of their numbers. One that ran while it was exported waits here, with its configuration if it
    had one yet."""
    curves: Mapping[int, tuple[EpochRow, ...]] = field(default_factory=dict)
    """Learning curves by trial number."""
    verifications: tuple[VerificationRun, ...] = ()
    """Verification runs that ended; their `run_id` and `study_id` mean nothing outside the database they come from."""
    notes: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """What a genetic sampler noted on its trials, by trial number."""
    exported_by: str = f"tuner {__version__}"

    @property
    def results(self) -> StudyResults:
        """The trials and their front, as `read_results` gives them of a study in a database."""
        return judged(self.records, self.definition.objectives, self.policy)


def archive_of(opened: OpenStudy) -> Archive:
    """What the database holds of a study now."""
    waiting: dict[int, dict[str, Any]] = {}
    notes: dict[int, Mapping[str, Any]] = {}
    for trial in opened.optuna.get_trials(deepcopy=False):
        if not trial.state.is_finished():
            waiting[trial.number] = known_params(trial)
        if noted := generation(trial):
            notes[trial.number] = noted
    records = tuple(
        dataclasses.replace(record, state=TrialState.WAITING, params=waiting[record.number], started=None)
        if record.number in waiting
        else record
        for record in read_results(opened).records
    )
    ended = [record.number for record in records if record.state.is_finished()]
    runs = Verifications(opened.database.engine, [opened.study_id]).runs()
    return Archive(
        name=opened.name,
        definition=opened.definition,
        policy=opened.policy(),
        budget=opened.ledger.counts().budget,
        device_model=opened.device_model(),
        records=records,
        curves=opened.epochs.of_trials(ended),
        verifications=tuple(run for run in runs if run.state in _ENDED),
        notes=notes,
    )


def write_archive(archive: Archive, path: Path) -> None:
    """Write `archive` to `path`, compressed where its name ends in `.gz`.

    Raises:
        UsageError: the name has another ending than `.json` or `.json.gz`.
        OSError: the file cannot be written.
    """
    if not is_archive_name(str(path)):
        raise UsageError(f"{path}: an exported study is a .json or .json.gz file; choose such a name")
    text = json.dumps(_as_dict(archive), separators=(",", ":"), allow_nan=False).encode()
    path.write_bytes(gzip.compress(text, mtime=0) if path.name.endswith(".gz") else text)


def read_archive(path: Path) -> Archive:
    """The study that `write_archive` wrote to `path`.

    Raises:
        UsageError: no such file, no exported study, or one of a newer tuner.
    """
    try:
        raw = path.read_bytes()
        data = json.loads(gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw)
    except FileNotFoundError:
        raise UsageError(f"there is no file {path}; 'tuner study export NAME --output FILE' writes one") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be read as an exported study: {error.strerror or error}") from None
    except (EOFError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} is no exported study: {error or type(error).__name__}") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise UsageError(f"{path} is no exported study; 'tuner study export NAME --output FILE' writes one")
    if data.get("version") != VERSION:
        raise UsageError(
            f"{path} has version {data.get('version')} of the format, this tuner reads {VERSION}; "
            "use the tuner that wrote it, or a newer one"
        )
    try:
        return _from_dict(data)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{path} is damaged: {type(error).__name__} {error}; export the study again") from None


def is_archive_name(name: str) -> bool:
    """True for what `write_archive` takes as a file's name."""
    return name.endswith(ENDINGS)


# -- as plain data ----------------------------------------------------------------------------------------------------


def _as_dict(archive: Archive) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": VERSION,
        "exported_by": archive.exported_by,
        "name": archive.name,
        "definition": archive.definition.as_dict(),
        "definition_hash": archive.definition.identity(),
        "policy": json.loads(archive.policy.to_json()),
        "budget": archive.budget,
        "device_model": archive.device_model,
        "trials": [_trial(record, archive.notes.get(record.number)) for record in archive.records],
        "curves": {str(number): _columns(rows) for number, rows in sorted(archive.curves.items())},
        "verifications": [_verification(run) for run in archive.verifications],
    }


def _from_dict(data: Mapping[str, Any]) -> Archive:
    definition = StudyDefinition.from_dict(data["definition"])
    records = tuple(_record(trial, definition.objectives) for trial in data["trials"])
    curves = {int(number): _rows(columns) for number, columns in data["curves"].items()}
    if [record.number for record in records] != list(range(len(records))):  # as the database will number them
        raise ValueError("its trials are not 0, 1, 2 and so on")
    if others := curves.keys() - {record.number for record in records if record.state.is_finished()}:
        raise ValueError(f"there are curves of trials that did not end: {sorted(others)}")
    return Archive(
        name=data["name"],
        definition=definition,
        policy=SearchPolicy.from_json(json.dumps(data["policy"])),
        budget=data["budget"],
        device_model=data["device_model"],
        records=records,
        curves=curves,
        verifications=tuple(_run(run) for run in data["verifications"]),
        notes={trial["number"]: trial["notes"] for trial in data["trials"] if "notes" in trial},
        exported_by=data["exported_by"],
    )


def _trial(record: TrialRecord, notes: Mapping[str, Any] | None) -> dict[str, Any]:
    plain: dict[str, Any] = {"number": record.number, "state": record.state.name, "params": record.params}
    if record.values is not None:
        plain["values"] = list(record.values)
    plain |= {"started": record.started, "ended": record.ended, "attributes": record.attributes}
    return plain | ({"notes": dict(notes)} if notes else {})


def _record(trial: Mapping[str, Any], objectives: tuple[str, ...]) -> TrialRecord:
    values = trial.get("values")
    return TrialRecord(
        number=trial["number"],
        state=TrialState[trial["state"]],
        params=trial["params"],
        values=(values[0], values[1]) if values else None,
        attributes=trial["attributes"],
        started=trial["started"],
        ended=trial["ended"],
        objectives=objectives,
    )


def _columns(rows: Sequence[EpochRow]) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {"epoch": [row.epoch for row in rows], "repeat": [row.repeat for row in rows]}
    return columns | {name: [_seven_digits(getattr(row, name)) for row in rows] for name in _FLOATS}


def _rows(columns: Mapping[str, Sequence[Any]]) -> tuple[EpochRow, ...]:
    names = ("epoch", "repeat", *_FLOATS)
    return tuple(
        EpochRow(**dict(zip(names, row, strict=True))) for row in zip(*(columns[name] for name in names), strict=True)
    )


def _seven_digits(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.7g}")


def _verification(run: VerificationRun) -> dict[str, Any]:
    kept = ("trial_number", "params", "seed", "block", "place", "session", "plan", "state", "losses", "worker")
    plain = {name: getattr(run, name) for name in kept}
    return plain | {"result": json.loads(run.result.to_json()) if run.result else None}


def _run(plain: Mapping[str, Any]) -> VerificationRun:
    result = plain["result"]
    known = {key: value for key, value in plain.items() if key != "result"}
    parsed = TrialResult.from_json(json.dumps(result)) if result else None
    return VerificationRun(run_id=0, study_id=0, token=None, result=parsed, **known)
