"""What an exported study holds."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from optuna.trial import TrialState

from tuner.record import Recorded
from tuner.search.history import generation, known_params
from tuner.spec.definition import StudyDefinition
from tuner.spec.membership import Membership
from tuner.spec.policy import SearchPolicy
from tuner.spec.retune import Registered
from tuner.storage.code_texts import source_of
from tuner.storage.queue.epochs import EpochRow
from tuner.storage.queue.gpu_hours import without_result_s
from tuner.storage.queue.runs import VerificationRun
from tuner.storage.queue.verifications import Verifications
from tuner.study.open import OpenStudy
from tuner.study.registered_retune import registered_in
from tuner.study.results import StudyResults, TrialRecord, judged, read_results
from tuner.version import __version__

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
    """Verification runs that ended; their `run_id` and `study_id` mean nothing outside the database
    they come from."""
    notes: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """What a genetic sampler noted on its trials, by trial number."""
    retune: Registered | None = None
    """What a retune was asked for that is registered with it; None where none is."""
    without_result_s: float = 0.0
    """Seconds of device time that came to no result, which count where its hours are limited."""
    code: str | None = None
    """The file with its own class, where its database has that."""
    loss_code: str | None = None
    """The file with the term of its loss, likewise."""
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
