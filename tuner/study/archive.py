"""A study in one file: compact, versioned JSON
with everything that was found, to read without a database.

It holds the study's definition and policy, its trials with their values and attributes, their
learning curves (to seven significant digits, what fp32 has) and the verification runs that ended.
Names ending in `.gz` are compressed; the same study gives the same bytes.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import gzip
import hashlib
import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from optuna.trial import TrialState
from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, model_validator

from tuner.errors import StorageError, UsageError
from tuner.files.durable import open_plain, put
from tuner.files.kinds import LARGEST_FIGURE, MOST_EPOCHS
from tuner.files.plain import (
    UNREADABLE,
    Count,
    Label,
    Loose,
    PlainTable,
    check_label,
    excerpt,
    explained,
    harmless_data,
    in_json,
    read_json,
    refuse_long_name,
)
from tuner.record import Recorded, checked
from tuner.search.history import generation, known_params
from tuner.spec.definition import StudyDefinition
from tuner.spec.membership import Membership
from tuner.spec.policy import Registered, SearchPolicy
from tuner.spec.ranges import ChoiceValue
from tuner.spec.space import ProgramConfiguration
from tuner.storage.queue.epochs import EpochRow
from tuner.storage.queue.gpu_hours import without_result_s
from tuner.storage.queue.verifications import (
    StoredPlan,
    VerificationRun,
    Verifications,
    stored_plan,
)
from tuner.storage.records import TrialResult
from tuner.study.baselines import Scored
from tuner.study.open import OpenStudy, registered_in
from tuner.study.own_file import MOST_BYTES, source_of
from tuner.study.results import StudyResults, TrialRecord, judged, read_results
from tuner.version import __version__

# What an exported study holds.


_ENDED = ("finished", "skipped")


@dataclass(frozen=True, slots=True, kw_only=True)
class Archive:
    """A study as it was exported."""

    name: str
    definition: StudyDefinition
    membership: Membership
    policy: SearchPolicy
    budget: int
    device_model: str | None
    records: tuple[TrialRecord, ...]
    """Trials in the order of their numbers. One that ran while it was exported waits here, with its
    configuration if it had one yet."""
    curves: Mapping[int, tuple[EpochRow, ...]] = field(default_factory=dict)
    """Learning curves by trial number."""
    verifications: tuple[VerificationRun, ...] = ()
    """Verification runs that ended. Their `work_id` and `study_id` mean nothing outside of the
    database that they come from."""
    notes: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """What a genetic sampler noted on its trials, by trial number."""
    retune: Registered | None = None
    """What a retune was asked for that is registered with it; None where none is."""
    without_result_s: float = 0.0
    """Seconds of device time that came to no result, which count where its hours are limited."""
    of_libraries: tuple[Scored, ...] = ()
    """What forecasts without a network came to: before, those of libraries alone."""
    code: str | None = None
    """The file with its own class, where its database has that."""
    loss_code: str | None = None
    """The file with the term of its loss, likewise."""
    exported_by: str = f"tuner {__version__}"

    @property
    def results(self) -> StudyResults:
        """The trials and their front, as `read_results` gives them of a study in a database."""
        own = (record for record in self.records if not record.recorded.foreign)
        return judged(own, self.definition.objectives, self.policy, self.of_libraries)


def archive_of(opened: OpenStudy) -> Archive:
    """What the database holds of a study now."""
    waiting: dict[int, dict[str, Any]] = {}
    notes: dict[int, Mapping[str, Any]] = {}
    for trial in opened.optuna.get_trials(deepcopy=False):
        if not trial.state.is_finished():
            waiting[trial.number] = known_params(trial, opened.definition.space)
        if noted := generation(trial):
            notes[trial.number] = noted
    results = read_results(opened)
    records = tuple(
        dataclasses.replace(
            record, state=TrialState.WAITING, params=waiting[record.number], started=None
        )
        if record.number in waiting
        else record
        for record in results.records
    )
    ended = [record.number for record in records if record.state.is_finished()]
    records = _in_place(records, opened.definition.objectives)
    runs = Verifications(opened.database.engine, [opened.study_id]).runs()
    counts = opened.ledger.counts()
    with opened.database.engine.connect() as connection:
        lost_s = without_result_s(connection, opened.study_id)
    return Archive(
        name=opened.name,
        definition=opened.definition,
        membership=opened.membership,
        policy=opened.policy(),
        budget=counts.budget,
        device_model=opened.device_model(),
        records=records,
        curves=opened.epochs.of_trials(ended),
        verifications=tuple(run for run in runs if run.state in _ENDED),
        notes=notes,
        retune=registered_in(opened.database, opened.name),
        without_result_s=lost_s,
        of_libraries=results.baselines,
        code=_code(opened, opened.definition.model_source),
        loss_code=_code(opened, opened.definition.loss_source),
    )


def _code(opened: OpenStudy, digest: str | None) -> str | None:
    content = source_of(opened.database.engine, digest) if digest is not None else None
    return None if content is None else content.decode()


def _in_place(
    records: Sequence[TrialRecord], objectives: tuple[str, ...]
) -> tuple[TrialRecord, ...]:
    """`records`, and where a number is another program's trial,
    a mark of that: ours keep their numbers.
    """
    by_number = {record.number: record for record in records}
    found = []
    for number in range(max(by_number, default=-1) + 1):
        mark = Recorded(foreign=True, failure="another program's trial")
        theirs = TrialRecord(number, TrialState.FAIL, {}, None, mark, None, None, objectives)
        found.append(by_number.get(number, theirs))
    return tuple(found)


# An exported study as plain data: every field with its type and range, before anything reads it.


MOST_TRIALS = 1_000_000
MOST_REPEATS = 1_000_000

Figure = Annotated[float, Field(ge=-LARGEST_FIGURE, le=LARGEST_FIGURE)]
Span = Annotated[float, Field(gt=0, le=LARGEST_FIGURE)]
Number = Annotated[int, Field(ge=0, lt=MOST_TRIALS)]


def _moment(text: str) -> str:
    if datetime.datetime.fromisoformat(text).tzinfo is not None:
        raise ValueError(f"{text} has an offset; moments are in UTC and do not say so")
    return text


Moment = Annotated[str, Field(max_length=40), AfterValidator(_moment)]


def _recorded(value: Any) -> Recorded:
    if not isinstance(value, dict):
        raise ValueError("should be a table")  # noqa: TRY004 - what pydantic takes for an answer
    for name in value:
        refuse_long_name(name, of="attribute ")
    return checked(value)


StoredRecord = Annotated[Recorded, PlainValidator(_recorded)]
Values = tuple[Span, Figure]


class Result(Loose):
    """What a trial or a verification run came to."""

    state: Literal["RUNNING", "COMPLETE", "PRUNED", "FAIL", "WAITING"]
    values: Values | None = None
    attributes: StoredRecord
    constraints: dict[Label, Figure] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if (self.state == "COMPLETE") != (self.values is not None):
            raise ValueError(f"its state is {self.state} and its values are {self.values}")
        return self


class Trial(Result):
    """A trial with its record."""

    number: Number
    params: dict[Label, ChoiceValue]
    started: Moment | None
    ended: Moment | None
    notes: dict[Label, Count] | None = None

    @model_validator(mode="after")
    def _is_a_configuration(self) -> Self:
        ProgramConfiguration.model_validate(self.params, strict=True)
        return self


class Curve(Loose):
    """The columns of a learning curve."""

    epoch: tuple[Annotated[int, Field(ge=0, le=MOST_EPOCHS)], ...]
    repeat: tuple[Annotated[int, Field(ge=0, le=MOST_REPEATS)], ...]
    train_loss: tuple[Figure | None, ...]
    val_loss: tuple[Figure | None, ...]
    learning_rate: tuple[Figure, ...]
    elapsed_s: tuple[Figure, ...]

    @model_validator(mode="after")
    def _is_a_table(self) -> Self:
        if len({len(getattr(self, name)) for name in type(self).model_fields}) > 1:
            raise ValueError("a curve's columns are not of one length")
        if len(set(zip(self.repeat, self.epoch, strict=True))) < len(self.epoch):
            raise ValueError("a curve has an epoch twice")
        return self


@functools.lru_cache(maxsize=64)
def _plain(text: str) -> Any:
    """One for all runs of a session, which have the same."""
    return harmless_data(read_json(text))


class Run(Loose):
    """A verification run that ended."""

    trial_number: Number
    params: dict[Label, ChoiceValue]
    seed: Count
    block: Number
    place: Number
    session: Annotated[Label, Field(max_length=32)]
    plan: Annotated[dict[str, Any], BeforeValidator(lambda given: _plain(json.dumps(given)))]
    state: Literal["finished", "skipped"]
    losses: Number
    worker: Annotated[Label, Field(max_length=120)] | None
    result: Result | None

    @functools.cached_property
    def design(self) -> StoredPlan:
        """What of its plan is read."""
        return stored_plan(json.dumps(self.plan))

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        ProgramConfiguration.model_validate(self.params, strict=True)
        if self.result is None or self.result.state == "RUNNING":
            raise ValueError(
                f"a verification run of trial {self.trial_number} ended without a result"
            )
        # One that was skipped for want of time names none.
        look = self.result.attributes.look
        if self.state == "skipped" and look is not None and look not in self.design.looks:
            raise ValueError(
                f"a verification run of trial {self.trial_number} was skipped at no planned look"
            )
        return self


Code = Annotated[str, Field(max_length=MOST_BYTES, pattern=r"^[^\x00]*$")]


def _named(place: Membership) -> Membership:
    """In a database a group may be called anything; a file's is a name."""
    check_label(place.group)
    return place


class ArchivedStudy(Loose):
    """The whole document, but for its definition and policy, which have readers of their own."""

    exported_by: Label
    name: Label
    definition: PlainTable
    code: Code | None = None
    """Absent where no class of somebody's own is in it."""
    loss_code: Code | None = None
    """Absent where its training loss has no term of somebody's own."""
    search: Annotated[Membership, AfterValidator(_named)] | None = None
    """Absent from files of before there were groups: then it is by itself."""
    policy: PlainTable
    budget: Annotated[int, Field(ge=1, le=MOST_TRIALS)]
    retune: Registered | None = None
    """Absent where no retune is registered with it."""
    without_result_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """Absent where all of its device time came to results."""
    of_libraries: tuple[Scored, ...] = ()
    """Absent where none was scored."""
    device_model: Annotated[Label, Field(max_length=200)] | None
    trials: tuple[Trial, ...] = Field(max_length=MOST_TRIALS)
    curves: dict[Annotated[str, Field(pattern=r"^(0|[1-9][0-9]{0,8})$")], Curve]
    verifications: tuple[Run, ...] = Field(max_length=MOST_TRIALS)

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if [trial.number for trial in self.trials] != list(
            range(len(self.trials))
        ):  # as the database will number them
            raise ValueError("its trials are not 0, 1, 2 and so on")
        ended = {trial.number for trial in self.trials if trial.state not in ("WAITING", "RUNNING")}
        if others := {int(number) for number in self.curves} - ended:
            raise ValueError(f"there are curves of trials that did not end: {sorted(others)[:9]}")
        complete = {trial.number for trial in self.trials if trial.state == "COMPLETE"}
        seen: set[tuple[int, int]] = set()
        for run in self.verifications:
            if run.trial_number not in complete:
                raise ValueError(
                    f"there is a verification run of trial {run.trial_number}, which is not "
                    "complete"
                )
            if (run.trial_number, run.seed) in seen:
                raise ValueError(f"trial {run.trial_number} is verified twice on seed {run.seed}")
            seen.add((run.trial_number, run.seed))
            if others := run.design.picked(self.name) - complete:
                raise ValueError(
                    f"a verification picked trial {min(others)}, which is not complete"
                )
        return self


# An exported study as plain data, as JSON has it.


FORMAT = "tuner study"
VERSION = 1
_SAME = (
    *("name", "budget", "device_model", "retune", "without_result_s", "of_libraries"),
    *("code", "loss_code", "exported_by"),
)
_RUN = tuple(name for name in Run.model_fields if name != "result")


def as_dict(archive: Archive) -> dict[str, Any]:
    """The whole document."""
    absent = in_json(archive, "code", "loss_code", "retune", "without_result_s")
    absent["of_libraries"] = [each.stored() for each in archive.of_libraries] or None
    return {
        "format": FORMAT,
        "version": VERSION,
        **in_json(archive, "exported_by", "name", "definition"),
        "definition_hash": archive.definition.identity(),
        "search": archive.membership.model_dump(),
        "policy": json.loads(archive.policy.to_json()),
        **in_json(archive, "budget", "device_model"),
        **{name: value for name, value in absent.items() if value not in (None, 0.0)},
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
    # A program's clock had a version once.
    study.definition.get("process", {}).pop("clock_version", None)
    definition = StudyDefinition.from_dict(study.definition)
    for trial in study.trials:
        whole = trial.state == "COMPLETE"
        if outside := definition.space.impossible(trial.params, whole=whole):
            raise ValueError(f"trial {trial.number}: {outside}")
    for run in study.verifications:
        if lacks := definition.space.impossible(run.params, whole=True):
            raise ValueError(f"a verification run of trial {run.trial_number}: {lacks}")
    codes = (study.code, definition.model_source), (study.loss_code, definition.loss_source)
    for code, digest in codes:
        content = b"" if code is None else code.encode(errors="replace")
        if code is not None and hashlib.sha256(content).hexdigest() != digest:
            raise ValueError("the code in it is not what its definition names by hash")
    same: dict[str, Any] = {name: getattr(study, name) for name in _SAME}
    return Archive(
        definition=definition,
        membership=study.search or Membership(group=study.name),
        policy=SearchPolicy.from_json(json.dumps(study.policy)),
        records=tuple(_record(trial, definition.objectives) for trial in study.trials),
        curves={int(number): _rows(curve) for number, curve in study.curves.items()},
        verifications=tuple(_run(run) for run in study.verifications),
        notes={trial.number: trial.notes for trial in study.trials if trial.notes},
        **same,
    )


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
    return {
        name: [_seven_digits(getattr(row, name)) for row in rows] for name in Curve.model_fields
    }


def _rows(curve: Curve) -> tuple[EpochRow, ...]:
    in_order = (getattr(curve, each.name) for each in dataclasses.fields(EpochRow))
    return tuple(map(EpochRow, *in_order))


def _seven_digits(value: float | None) -> float | None:
    return float(f"{value:.7g}") if isinstance(value, float) else value


def _verification(run: VerificationRun) -> dict[str, Any]:
    plain = {name: getattr(run, name) for name in _RUN} | {"worker": run.worker or None}
    return plain | {"result": json.loads(run.result.to_json()) if run.result else None}


def _run(run: Run) -> VerificationRun:
    known = {name: getattr(run, name) for name in _RUN} | {"worker": run.worker or ""}
    return VerificationRun(
        work_id=0,
        study_id=0,
        token=None,
        result=_result(run.result) if run.result else None,
        **known,
    )


def _result(stored: Result) -> TrialResult:
    state = TrialState[stored.state]
    return TrialResult(state, stored.values, stored.attributes, stored.constraints)


ENDINGS = (".json", ".json.gz")
AT_MOST_BYTES = 64 << 20
"""Of JSON in an exported study: some ten thousand trials with their curves."""


def write_archive(archive: Archive, path: Path) -> None:
    """Write `archive` to `path`, compressed where its name ends in `.gz`.

    Raises:
        UsageError: the name has another ending than `.json` or `.json.gz`, or the study is too
            large to be read again.
        OSError: the file cannot be written; what was there before stays.
    """
    if not is_archive_name(str(path)):
        raise UsageError(
            f"{path}: an exported study is a .json or .json.gz file; choose such a name"
        )
    text = json.dumps(as_dict(archive), separators=(",", ":"), allow_nan=False).encode()
    if len(text) > AT_MOST_BYTES:
        raise UsageError(
            f"study {archive.name!r} comes to more than {AT_MOST_BYTES >> 20} MiB of JSON, which "
            "no tuner would read; "
            "copy its database instead"
        )
    put(path, gzip.compress(text, mtime=0) if path.name.endswith(".gz") else text)


def read_archive(path: Path) -> Archive:
    """The study that `write_archive` wrote to `path`.

    Raises:
        UsageError: no such file, no exported study, or one of a newer tuner.
    """
    try:
        text = _text(path)
        data = read_json(text)
    except FileNotFoundError:
        raise UsageError(
            f"there is no file {path}; 'tuner study export NAME --output FILE' writes one"
        ) from None
    except (gzip.BadGzipFile, EOFError, ValueError, zlib.error) as error:
        raise UsageError(
            f"{path} is no exported study: {explained(error)}; copy it again, or write it anew "
            "with 'tuner study export NAME --output FILE'"
        ) from None
    except OSError as error:
        raise UsageError(
            f"{path} cannot be read as an exported study: {error.strerror or error}"
        ) from None
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise UsageError(
            f"{path} is no exported study; 'tuner study export NAME --output FILE' writes one"
        )
    if data.get("version") != VERSION:
        raise UsageError(
            f"{path} has version {excerpt(repr(data.get('version')))} of the format, this tuner "
            f"reads {VERSION}; "
            "use the tuner that wrote it, or a newer one"
        )
    try:
        return from_json(text) if json.detect_encoding(text) == "utf-8" else from_dict(data)
    except (*UNREADABLE, StorageError) as error:
        raise UsageError(f"{path} is damaged: {explained(error)}; export the study again") from None


def is_archive_name(name: str) -> bool:
    """True for what `write_archive` takes as a file's name."""
    return name.endswith(ENDINGS)


def _text(path: Path) -> bytes:
    """The file's text, inflated where it is compressed, up to `AT_MOST_BYTES` of it."""
    with open_plain(path) as file:
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
