"""What can be drawn: a study in a database, or one that was exported into a file."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tuner.figures.series import Curves
from tuner.storage import Stint, stints
from tuner.study import OpenStudy
from tuner.study.archive import Archive
from tuner.study.results import StudyResults, TrialRecord, read_results
from tuner.study.verified import Verified, group_runs, read_verified


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """A study to draw. What not every figure needs is read when it is asked for."""

    name: str
    results: StudyResults
    curves: Curves
    history: Callable[[], Sequence[Stint]]
    verified: Callable[[], Sequence[Verified]]


def of_study(opened: OpenStudy) -> Subject:
    """A study as the database has it now."""
    return Subject(
        name=opened.name,
        results=read_results(opened),
        curves=opened.epochs.of_trials,
        history=lambda: stints(opened.database.engine, opened.study_id),
        verified=lambda: read_verified(opened),
    )


def of_archive(archive: Archive) -> Subject:
    """A study as it was exported. Who had which trial is known of the attempts that counted."""
    return Subject(
        name=archive.name,
        results=archive.results,
        curves=lambda numbers: {number: archive.curves[number] for number in numbers if number in archive.curves},
        history=lambda: [stint for record in archive.records if (stint := _stint(record)) is not None],
        verified=lambda: group_runs(archive.name, archive.verifications, device_model=archive.device_model),
    )


def _stint(record: TrialRecord) -> Stint | None:
    if record.started is None or record.ended is None:
        return None
    return Stint(
        trial_number=record.number,
        worker=record.place or "unknown",
        state="finished",
        began=_seconds(record.started),
        ended=_seconds(record.ended),
        stopped_by=record.attributes.get("stopped_by"),
    )


def _seconds(iso: str) -> float:
    """Optuna's times are in UTC and do not say so."""
    return datetime.datetime.fromisoformat(iso).replace(tzinfo=datetime.UTC).timestamp()
