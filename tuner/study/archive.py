"""A study in one file: compact, versioned JSON with everything that was found, to read without a
database.

It holds the study's definition and policy, its trials with their values and attributes, their
learning curves (to seven significant digits, what fp32 has) and the verification runs that ended.
Names ending in `.gz` are compressed; the same study gives the same bytes.
"""

from __future__ import annotations

import dataclasses
import gzip
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from optuna.trial import TrialState

from tuner.errors import StorageError, UsageError
from tuner.files.plain import explained, read_json, shown
from tuner.record import Recorded
from tuner.search.history import generation, known_params
from tuner.spec.definition import StudyDefinition
from tuner.spec.policy import SearchPolicy
from tuner.spec.space import FloatRange, SearchSpace
from tuner.storage.queue.epochs import EpochRow
from tuner.storage.queue.runs import VerificationRun
from tuner.storage.queue.verifications import Verifications
from tuner.study.archived import ArchivedStudy, Curve, Run, Trial
from tuner.study.open import OpenStudy
from tuner.study.results import StudyResults, TrialRecord, judged, read_results
from tuner.version import __version__

FORMAT = "tuner study"
VERSION = 1
ENDINGS = (".json", ".json.gz")
_FLOATS = ("train_loss", "val_loss", "learning_rate", "elapsed_s")
_ENDED = ("finished", "skipped")
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
AT_MOST_BYTES = 64 << 20
"""Of JSON in an exported study: some ten thousand trials with their curves."""
ROUNDING = 1e-9
"""By how much a database may have rounded the end of a range."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """A study as it was exported."""

    name: str
    definition: StudyDefinition
    policy: SearchPolicy
    budget: int
    device_model: str | None
    records: tuple[TrialRecord, ...]
    """Trials in the order of their numbers. One that ran while it was exported waits here, with its
    configuration if it had one yet."""
    curves: Mapping[int, tuple[EpochRow, ...]] = field(default_factory=dict)
    """Learning curves by trial number."""
    verifications: tuple[VerificationRun, ...] = ()
    """Verification runs that ended; their `run_id` and `study_id` mean nothing outside the database
    they come from."""
    notes: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """What a genetic sampler noted on its trials, by trial number."""
    exported_by: str = f"tuner {__version__}"

    @property
    def results(self) -> StudyResults:
        """The trials and their front, as `read_results` gives them of a study in a database."""
        own = (record for record in self.records if not record.recorded.foreign)
        return judged(own, self.definition.objectives, self.policy)


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
        dataclasses.replace(
            record, state=TrialState.WAITING, params=waiting[record.number], started=None
        )
        if record.number in waiting
        else record
        for record in read_results(opened).records
    )
    ended = [record.number for record in records if record.state.is_finished()]
    records = _in_place(records, opened.definition.objectives)
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


def _in_place(
    records: Sequence[TrialRecord], objectives: tuple[str, ...]
) -> tuple[TrialRecord, ...]:
    """`records`, and where a number is another program's trial, a mark of that: ours keep their
    numbers.
    """
    by_number = {record.number: record for record in records}
    found = []
    for number in range(max(by_number, default=-1) + 1):
        mark = Recorded(foreign=True, failure="another program's trial")
        theirs = TrialRecord(number, TrialState.FAIL, {}, None, mark, None, None, objectives)
        found.append(by_number.get(number, theirs))
    return tuple(found)


def write_archive(archive: Archive, path: Path) -> None:
    """Write `archive` to `path`, compressed where its name ends in `.gz`.

    Raises:
        UsageError: the name has another ending than `.json` or `.json.gz`, or the study is too
            large to be read again.
        OSError: the file cannot be written.
    """
    if not is_archive_name(str(path)):
        raise UsageError(
            f"{path}: an exported study is a .json or .json.gz file; choose such a name"
        )
    text = json.dumps(_as_dict(archive), separators=(",", ":"), allow_nan=False).encode()
    if len(text) > AT_MOST_BYTES:
        raise UsageError(
            f"study {archive.name!r} comes to more than {AT_MOST_BYTES >> 20} MiB of JSON, which "
            "no tuner would read; "
            "copy its database instead"
        )
    path.write_bytes(gzip.compress(text, mtime=0) if path.name.endswith(".gz") else text)


def read_archive(path: Path) -> Archive:
    """The study that `write_archive` wrote to `path`.

    Raises:
        UsageError: no such file, no exported study, or one of a newer tuner.
    """
    try:
        data = read_json(_text(path))
    except FileNotFoundError:
        raise UsageError(
            f"there is no file {path}; 'tuner study export NAME --output FILE' writes one"
        ) from None
    except gzip.BadGzipFile as error:
        raise UsageError(f"{path} is no exported study: {explained(error)}") from None
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read as an exported study: {error.strerror or error}"
        ) from None
    except (EOFError, ValueError, zlib.error) as error:
        raise UsageError(f"{path} is no exported study: {explained(error)}") from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise UsageError(
            f"{path} is no exported study; 'tuner study export NAME --output FILE' writes one"
        )
    if data.get("version") != VERSION:
        raise UsageError(
            f"{path} has version {shown(repr(data.get('version')))} of the format, this tuner "
            f"reads {VERSION}; "
            "use the tuner that wrote it, or a newer one"
        )
    try:
        return _from_dict(data)
    except (ValueError, StorageError) as error:
        raise UsageError(f"{path} is damaged: {explained(error)}; export the study again") from None


def is_archive_name(name: str) -> bool:
    """True for what `write_archive` takes as a file's name."""
    return name.endswith(ENDINGS)


# -- as plain data ---------------------------------------------------------------------------------


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
    study = ArchivedStudy.model_validate_json(json.dumps(data), strict=True)
    definition = StudyDefinition.from_dict(study.definition)
    for trial in study.trials:
        if outside := _outside(definition.space, trial):
            raise ValueError(f"trial {trial.number}: {outside}")
    return Archive(
        name=study.name,
        definition=definition,
        policy=SearchPolicy.from_json(json.dumps(study.policy)),
        budget=study.budget,
        device_model=study.device_model,
        records=tuple(_record(trial, definition.objectives) for trial in study.trials),
        curves={int(number): _rows(curve) for number, curve in study.curves.items()},
        verifications=tuple(_run(run) for run in study.verifications),
        notes={trial.number: trial.notes for trial in study.trials if trial.notes},
        exported_by=study.exported_by,
    )


def _outside(space: SearchSpace, trial: Trial) -> str | None:
    """What of a trial's configuration no sampler of its study can have chosen; None where all of it
    is possible.
    """
    for name, value in trial.params.items():
        span = space.ranges[name]
        low = 0.0 if isinstance(span, FloatRange) and span.zero else span.low
        if not low * (1 - ROUNDING) <= value <= span.high * (1 + ROUNDING):
            return f"{name} = {value:g} is outside of the study's space"
    return None


def _text(path: Path) -> bytes:
    """The file's text, inflated where it is compressed, up to `AT_MOST_BYTES` of it."""
    with path.open("rb") as file:
        compressed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        if compressed:
            with gzip.GzipFile(fileobj=file) as inflated:
                text = inflated.read(AT_MOST_BYTES + 1)
        else:
            text = file.read(AT_MOST_BYTES + 1)
    if len(text) > AT_MOST_BYTES:
        raise ValueError(f"it holds more than {AT_MOST_BYTES >> 20} MiB of JSON")
    return text


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
    names = ("epoch", "repeat", *_FLOATS)
    columns = zip(*(getattr(curve, name) for name in names), strict=True)
    return tuple(EpochRow(**dict(zip(names, row, strict=True))) for row in columns)


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
