"""A study to compare: the same records whether it lies in a database or in an archive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import UsageError
from tuner.storage import VerificationRun, absolute, open_database, parse_url
from tuner.study import OpenStudy, SearchPolicy, StudyDefinition, open_study
from tuner.study.archive import Archive, is_archive_name, read_archive
from tuner.study.picks import picks_judged
from tuner.study.results import StudyResults, TrialRecord, read_results
from tuner.study.verification import study_names, verifications_of
from tuner.study.verified import Verified, group_runs

DEFAULT = "default"
"""The role of the default configuration among a subject's picks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A study's search and its verification."""

    name: str
    definition: StudyDefinition
    policy: SearchPolicy
    device_model: str | None
    results: StudyResults
    runs: tuple[VerificationRun, ...]

    @property
    def variant(self) -> str:
        return self.definition.variant

    @property
    def picks(self) -> dict[str, int]:
        """`default`, and the `time`, `knee` and `mql` of the front that was verified, as trial numbers."""
        return picks_judged(self.results, self.runs, self.name)

    @property
    def verified(self) -> dict[int, Verified]:
        """Configurations with verification runs, by trial number."""
        found = group_runs(self.name, self.runs, device_model=self.device_model)
        return {each.trial_number: each for each in found}

    @property
    def finished(self) -> int:
        """Trials that the search finished, however they ended."""
        return sum(record.state.is_finished() for record in self.results.records)

    def record(self, number: int) -> TrialRecord:
        return next(record for record in self.results.records if record.number == number)


def labels(subjects: Sequence[Subject]) -> list[str]:
    """What each is called beside the others: its variant; its study's name where variants repeat."""
    variants = [subject.variant for subject in subjects]
    return [subject.variant if variants.count(subject.variant) == 1 else subject.name for subject in subjects]


def subject_of_study(opened: OpenStudy) -> Subject:
    return Subject(
        name=opened.name,
        definition=opened.definition,
        policy=opened.policy(),
        device_model=opened.device_model(),
        results=read_results(opened),
        runs=verifications_of([opened]).runs(),
    )


def subject_of_archive(archive: Archive) -> Subject:
    return Subject(
        name=archive.name,
        definition=archive.definition,
        policy=archive.policy,
        device_model=archive.device_model,
        results=archive.results,
        runs=archive.verifications,
    )


def read_subjects(named: Sequence[str], *, task: str, storage: str) -> list[Subject]:
    """The studies that `named` means: variants on `task` (several with commas), studies as `study:NAME`, or archives.

    The database is opened only where a name needs it.

    Raises:
        UsageError: a name that means nothing, an archive that cannot be read, or a study named twice.
        StorageError: the database cannot be read.
    """
    subjects: list[Subject] = []
    database = None
    try:
        for name in named:
            if is_archive_name(name):
                subjects.append(subject_of_archive(read_archive(Path(name))))
                continue
            # First the name, then the database: a misspelt variant is not a database that is missing.
            studies = [name.removeprefix("study:")] if name.startswith("study:") else study_names(name, task=task)
            if database is None:
                database = open_database(absolute(parse_url(storage)), create=False)
            subjects += [subject_of_study(open_study(database, study)) for study in studies]
    finally:
        if database is not None:
            database.close()
    names = [subject.name for subject in subjects]
    if twice := {name for name in names if names.count(name) > 1}:
        raise UsageError(f"study {min(twice)!r} is named twice; name each once")
    return subjects
