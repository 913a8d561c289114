"""Studies and confirmations in which the limit of epochs cuts off the default: real records, drawn
figures."""

from __future__ import annotations

import dataclasses

from tests.support.drawn_verifications import drawn_result, missed
from tuner.config import StopReason
from tuner.storage.records import TrialResult
from tuner.study.archive import Archive
from tuner.study.results import TrialRecord
from tuner.trial.job import TrialJob


def ended(record: TrialRecord, how: StopReason) -> TrialRecord:
    recorded = dataclasses.replace(record.recorded, converged=False, stopped_by=how)
    return dataclasses.replace(record, recorded=recorded)


def with_default(archive: Archive, how: StopReason) -> Archive:
    """The same study, whose default ended so."""
    first, *others = archive.records
    return dataclasses.replace(archive, records=(ended(first, how), *others))


def faster(job: TrialJob) -> TrialResult:
    """Trial 0 is cut off on every seed, others converge in a quarter of its time."""
    return missed(job) if job.number == 0 else drawn_result(job, seconds=2.5, mql=0.79)
