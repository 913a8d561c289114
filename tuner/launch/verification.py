"""A verification as workers and as a function: configurations run again on fresh seeds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from tuner.devices.lock import check_folder
from tuner.launch.launcher import Crew
from tuner.launch.outcome import Outcome
from tuner.launch.plan import choose_devices
from tuner.launch.progress import Notes, Progress, Quiet
from tuner.launch.request import DeviceChoice, Number, Positive, checked, names_of
from tuner.launch.stopping import StopRequests
from tuner.storage.database import open_database
from tuner.storage.queue.verifications import Verifications
from tuner.storage.remedies import in_one_sentence
from tuner.storage.url import DEFAULT_URL, absolute, parse_url
from tuner.study.group import all_meant
from tuner.study.open import OpenStudy, open_study
from tuner.study.trust import require_trust
from tuner.verdict.expected_front import Choice
from tuner.verdict.verification_plan import plan_verification, study_names, verifications_of
from tuner.verdict.verified import Verified, read_verified
from tuner.worker.paths import WorkerPaths, deliver, working_folder


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationRequest:
    """Which studies to verify together, and how thoroughly."""

    variants: str | Sequence[str]
    task: str = "etth"
    studies: str | None = None
    """Names of studies, or `group:NAME`, with commas; where not given all searches of
    `<task>-<variant>`."""
    top: Number = 5
    """Configurations along each front, its knee included."""
    choice: Choice = Choice.FRONT
    seeds: Number = 10
    stop_early: bool = False
    devices: DeviceChoice = field(default_factory=DeviceChoice)
    data_dir: Path | None = None
    storage: str = DEFAULT_URL
    timeout_s: Positive | None = None
    trust: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class VerificationOutcome:
    """How a verification ended, and what is verified by now."""

    ended: Outcome
    verified: dict[str, tuple[Verified, ...]]
    """By study, in the order of the request."""
    missing: tuple[str, ...]
    """What cannot be verified yet, and why."""
    notes: tuple[str, ...]
    """All lines that a person would have been told, in order."""


def run(
    request: VerificationRequest,
    *,
    progress: Progress | None = None,
    stop: StopRequests | None = None,
) -> VerificationOutcome:
    """Run the front's configurations and the default one again, on seeds that the search never
    used. Ends as `tuner.launch.run` does.

    Raises:
        UsageError: studies or devices that are not there, or do not go together.
        StorageError: a database that cannot be used.
        TunerError: the workers could not be kept alive.
    """
    request = checked(request)
    notes = Notes(progress or Quiet())
    variants = ",".join(names_of(request.variants))
    asked = study_names(variants, task=request.task, studies=request.studies)
    address = absolute(parse_url(request.storage))
    with in_one_sentence(), closing(open_database(address, create=False)) as database:
        names = all_meant(database, asked, variants=request.studies is None)
        opened = [open_study(database, name) for name in names]
        for each in opened:
            notes.note(require_trust(each, trust=request.trust))
        devices, notice = choose_devices(request.devices, environment=os.environ)
        check_folder()
        for each in opened:
            each.refuse_other_device(devices[0].model)
        planned = plan_verification(
            opened,
            top=request.top,
            seeds=request.seeds,
            choice=request.choice,
            stop_early=request.stop_early,
        )
        for line in (*planned.missing, *planned.notes, notice):
            notes.note(line)
        crew = Crew(
            devices=devices,
            task=request.task,
            data_dir=request.data_dir,
            timeout_s=request.timeout_s,
            options=["--verify"],
        )
        ended = _work_off(opened, crew, notes, stop or StopRequests())
        return VerificationOutcome(
            ended=ended,
            verified={each.name: tuple(read_verified(each)) for each in opened},
            missing=planned.missing,
            notes=tuple(notes.lines),
        )


def _work_off(opened: Sequence[OpenStudy], crew: Crew, notes: Notes, stop: StopRequests) -> Outcome:
    work = VerificationWork.of(opened)
    deliver(opened, WorkerPaths(working_folder(opened[0].database.address)))
    work.ledger.reap()
    counts = work.ledger.counts()
    if counts.left == 0:
        if counts.budget:
            notes.note(
                f"nothing to do: {counts.finished} of {counts.budget} verification runs are "
                "finished"
            )
        return Outcome.FILLED
    return crew.work([work], opened, notes.progress, stop)


@dataclass(frozen=True, slots=True)
class Rosters:
    """The rosters of several studies, which one worker joins all."""

    opened: Sequence[OpenStudy]

    def leave(self, worker: str) -> None:
        for each in self.opened:
            each.roster.leave(worker)


@dataclass(frozen=True, slots=True)
class VerificationWork:
    """One queue for all the studies: their runs are interleaved."""

    name: str
    ledger: Verifications
    roster: Rosters

    @staticmethod
    def of(opened: Sequence[OpenStudy]) -> VerificationWork:
        return VerificationWork(
            name=",".join(each.name for each in opened),
            ledger=verifications_of(opened),
            roster=Rosters(opened),
        )
