"""Two verified variants in a database, and archives of them, for what compares them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass

from tests.support.drawn_verifications import drawn_result
from tuner.storage.queue.verifications import VerificationRun
from tuner.storage.records import TrialResult
from tuner.study.snapshot import StudySnapshot
from tuner.trial.job import TrialJob
from tuner.verdict.compare.findings import Report, compare
from tuner.verdict.compare.studies import read_studies

BOTH = ["original", "rmsnorm"]


def known(job: TrialJob) -> TrialResult:
    """Retuned takes two thirds of the default's time; rmsnorm 0.6 of original's; both forecast
    alike."""
    seconds = 10.0 * (1.0 if job.number else 1.5) * (0.6 if "rmsnorm" in job.study else 1.0)
    return drawn_result(job, seconds=seconds)


@dataclass(frozen=True)
class Compared:
    """A database with verified studies, and archives of them."""

    url: str
    archives: list[str]

    def studies(self, *names: str) -> list[StudySnapshot]:
        return read_studies(names or BOTH, task="demo", storage=self.url)

    def report(self, *names: str, pick: str = "knee") -> Report:
        return compare(self.studies(*names), pick=pick)


def with_runs(study: StudySnapshot, runs: Iterable[VerificationRun]) -> StudySnapshot:
    found = tuple(runs)
    return dataclasses.replace(study, read_runs=lambda: found)
