"""One run of a program for a trial, alone on its device: from what it is told to a result.

What the program does wrong is this trial's failure, in one line, and never the worker's end.
"""

from __future__ import annotations

import dataclasses
import logging
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from tuner.config import EpochRecord, Hyperparameters, StopReason
from tuner.devices import Carried, CpuCores, Watch
from tuner.errors import UsageError
from tuner.files.plain import excerpt
from tuner.spec.definition import StudyDefinition
from tuner.spec.program import Program
from tuner.storage.records import TrialResult
from tuner.trial.device_turn import alone_on
from tuner.trial.job import TrialJob
from tuner.trial.program.kept_folder import Earlier, KeptFolder
from tuner.trial.program.missing_extra import missing_extra
from tuner.trial.program.program_lines import ProgramError
from tuner.trial.program.program_process import NotStartedError, ProgramProcess
from tuner.trial.program.program_result import failed_program, program_result
from tuner.trial.program.program_training import GapError, KilledError, ProgramTraining
from tuner.trial.survival import TrainerLostError
from tuner.trial.time_left import TimeLeft

PROTOCOL = 1
"""Of the document that a program gets, and of its lines."""
NOTES_S = 1.0
"""Between two looks at the device while a program trains: what the last one saw goes to whoever
continues after a kill -9, and what was later is not known."""
WORKING = "a program"
_log = logging.getLogger(__name__)


def run_program(
    job: TrialJob,
    seed: int,
    left: TimeLeft,
    *,
    kept: KeptFolder | None,
    on_epoch: Callable[[EpochRecord], StopReason | None],
    on_begun: Callable[[Sequence[EpochRecord]], None],
) -> TrialResult | None:
    """Run the program of the job's study once, alone on its device; None if it was interrupted.

    Raises:
        TrainerLostError: the program's files or the clock are not those that the study was made
            with, or the machine cannot start one.
    """
    program = job.definition.program
    assert program is not None, "this study has one"
    refuse_another(job, program)
    asked = time.perf_counter()
    with alone_on(job.device, job.should_stop, job.on_phase, left) as held:
        if not held:
            return None
        run = _Run(job, program, seed, kept, on_epoch, on_begun)
        result = run.result()
    if result is None:
        return None
    waited = dataclasses.replace(result.recorded, wait_s=run.began - asked)
    return dataclasses.replace(result, recorded=waited)


def refuse_another(job: TrialJob, program: Program) -> None:
    """Raises TrainerLostError where the program is another one by now: no trial would
    compare.

    A folder that is not there is the program's own failure.
    """
    try:
        as_it_was = program.digest() == job.definition.model_source
    except UsageError as error:
        raise TrainerLostError(f"the program of study {job.study!r}: {error}") from None
    if Path(program.folder).is_dir() and not as_it_was:
        raise TrainerLostError(
            f"the program of study {job.study!r} in {program.folder} is not what it was when the "
            "study was made: restore its files, or start a new study with --study NAME"
        )


def told(
    definition: StudyDefinition,
    hyperparameters: Hyperparameters,
    *,
    study: str,
    number: int,
    seed: int,
    earlier: Earlier,
) -> dict[str, Any]:
    """What a program is told: docs/own-loops.md explains each key."""
    training = definition.training
    last = earlier.epochs[-1] if earlier.epochs else None
    return {
        "protocol": PROTOCOL,
        "study": study,
        "trial": number,
        "seed": seed,
        "hyperparameters": hyperparameters.as_dict(),
        "max_epochs": training.max_epochs,
        "patience": training.patience,
        "min_delta": training.min_delta,
        "clock": definition.clock.value,
        "objectives": list(definition.objectives),
        "task": definition.task,
        "resume": None if last is None else {"epoch": last.epoch, "elapsed_s": last.elapsed_s},
    }


@dataclass(slots=True)
class _Run:
    """The program's run, with what is watched beside it."""

    job: TrialJob
    program: Program
    seed: int
    kept: KeptFolder | None
    on_epoch: Callable[[EpochRecord], StopReason | None]
    on_begun: Callable[[Sequence[EpochRecord]], None]
    began: float = field(default_factory=time.perf_counter)
    _carried: Carried = field(default_factory=Carried)
    _since: float = field(default_factory=time.time)
    _noted: float = 0.0
    _earlier: Earlier = field(default_factory=Earlier)
    _guard: int | None = None

    def result(self) -> TrialResult | None:
        self.job.on_phase(WORKING)
        watch = Watch(
            self.job.device,
            own_cpu_s=self._own_cpu_s,
            on_gpu=self._is_on_gpu(),
            program=lambda: [each.pid for each in _living(self._guard)],
        )
        try:
            try:
                training = self._followed_to_its_end(watch)
            except KilledError as error:  # as a worker that was killed: another attempt goes on
                _log.warning("trial %d is trained again: the program: %s", self.job.number, error)
                training = self._followed_to_its_end(watch)
        except NotStartedError as error:
            raise TrainerLostError(f"the program of study {self.job.study!r}: {error}") from None
        except ProgramError as error:
            return failed_program(self.job, self.seed, str(error))
        if training.stopped_by is StopReason.INTERRUPTED:
            return None
        seen = self._carried.merged(watch.finish())
        return program_result(self.job, self.seed, training, seen, self._carried.parts)

    def _followed_to_its_end(self, watch: Watch) -> ProgramTraining:
        try:
            return self._followed(watch)
        except GapError:  # its checkpoint is ahead of what it had told
            assert self.kept is not None, "else there was nothing before it"
            self.kept.begin_anew()
            return self._followed(watch)

    def _followed(self, watch: Watch) -> ProgramTraining:
        self._earlier = Earlier() if self.kept is None else self.kept.earlier()
        training = ProgramTraining(
            program=self.program,
            max_epochs=self.job.definition.training.max_epochs,
            earlier=self._earlier,
            rate=float(self.job.hyperparameters.as_dict().get("learning_rate", 0.0)),
            on_begun=self._begun,
            on_epoch=lambda record: self._epoch_ended(record, watch),
            should_stop=self.job.should_stop,
            on_wait=lambda: self.job.on_phase(WORKING),
        )
        running = ProgramProcess(
            self.program.command,
            Path(self.program.folder),
            told(
                self.job.definition,
                self.job.hyperparameters,
                study=self.job.study,
                number=self.job.number,
                seed=self.seed,
                earlier=self._earlier,
            ),
            None if self.kept is None else self.kept.own,
        )
        try:
            with running:
                self._guard = running.pid
                training.follow(running)
        except ProgramError as error:
            printed = running.last_printed()
            for line in printed:
                _log.error("trial %d printed: %s", self.job.number, line)
            if not printed:
                raise
            last = excerpt(printed[-1], at_most=200)
            said = f"{error}; it printed last: {last}{missing_extra(printed)}"
            raise type(error)(said) from None
        finally:
            self._guard = None
        if training.stopped_by is StopReason.INTERRUPTED:
            self._note(watch)
        return training

    def _begun(self, earlier: Sequence[EpochRecord]) -> None:
        if earlier:
            self._carried.take(self._earlier.notes or {})
            self.on_begun(earlier)
        if self.kept is not None:
            self.kept.went_on_from(earlier)

    def _epoch_ended(self, record: EpochRecord, watch: Watch) -> StopReason | None:
        if self.kept is not None:
            self.kept.add(record)  # first: a worker may be killed while its database is slow
        reason = self.on_epoch(record)
        if self.kept is not None and time.monotonic() > self._noted + NOTES_S:
            self._noted = time.monotonic()
            self._note(watch)
        return reason

    def _note(self, watch: Watch) -> None:
        if self.kept is not None:
            self.kept.note(self._carried.notes(watch.finish(), self._since, time.time()))

    def _own_cpu_s(self) -> float:
        """What this process and all that it started have used: a program that has ended counts with
        the guard that waited for it.
        """
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        return time.process_time() + ended.ru_utime + ended.ru_stime + _living_cpu_s(self._guard)

    def _is_on_gpu(self) -> bool:
        if isinstance(self.job.device, CpuCores):
            return False
        import torch

        return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]


def _living(guard: int | None) -> list[psutil.Process]:
    """A program's guard, and all that it started."""
    if guard is None:
        return []
    try:
        first = psutil.Process(guard)
        return [first, *first.children(recursive=True)]
    except psutil.Error:
        return []


def _living_cpu_s(guard: int | None) -> float:
    total = 0.0
    for each in _living(guard):
        try:
            used = each.cpu_times()
        except psutil.Error:
            continue
        total += used.user + used.system + used.children_user + used.children_system
    return total
