"""One run of a program for a trial, alone on its device: from what it is told to a result.

What the program does wrong is this trial's failure, in one line, and never the worker's end.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import resource
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from optuna.trial import TrialState

from tuner.config import Backend, EpochRecord, Precision, StopReason
from tuner.devices import Carried, CpuCores, Watch
from tuner.devices.watch import Observation
from tuner.record import Recorded
from tuner.spec.program import Program
from tuner.spec.time_objectives import Ended, measured_times
from tuner.storage.records import TrialResult
from tuner.training import FitResult
from tuner.trial.device_turn import alone_on
from tuner.trial.job import TrialJob, on_device
from tuner.trial.program.kept_folder import Earlier, KeptFolder
from tuner.trial.program.program_lines import ProgramError
from tuner.trial.program.program_process import ProgramProcess
from tuner.trial.program.program_training import GapError, ProgramTraining
from tuner.trial.survival import TrainerLostError
from tuner.trial.valued import valued
from tuner.version import __version__

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
    *,
    kept: KeptFolder | None,
    on_epoch: Callable[[EpochRecord], StopReason | None],
    on_begun: Callable[[Sequence[EpochRecord]], None],
) -> TrialResult | None:
    """Run the program of the job's study once, alone on its device; None if it was interrupted.

    Raises:
        TrainerLostError: the program's files are not those that the study was made with.
    """
    program = job.definition.program
    assert program is not None, "this study has one"
    refuse_other_files(job, program)
    asked = time.perf_counter()
    with alone_on(job.device, job.should_stop, job.on_phase) as held:
        if not held:
            return None
        run = _Run(job, program, seed, kept, on_epoch, on_begun)
        result = run.result()
    if result is None:
        return None
    waited = dataclasses.replace(result.recorded, wait_s=run.began - asked)
    return dataclasses.replace(result, recorded=waited)


def refuse_other_files(job: TrialJob, program: Program) -> None:
    """Raises TrainerLostError where the program is another one by now: no trial of it would compare.

    A folder that is not there is the program's own failure.
    """
    if Path(program.folder).is_dir() and program.digest() != job.definition.model_source:
        raise TrainerLostError(
            f"the program of study {job.study!r} in {program.folder} is not what it was when the "
            "study was made: restore its files, or start a new study with --study NAME"
        )


def told(job: TrialJob, program: Program, seed: int, earlier: Earlier) -> dict[str, Any]:
    """What a program is told: docs/own-loops.md explains each key."""
    definition, training = job.definition, job.definition.training
    last = earlier.epochs[-1] if earlier.epochs else None
    return {
        "protocol": PROTOCOL,
        "study": job.study,
        "trial": job.number,
        "seed": seed,
        "hyperparameters": job.hyperparameters.as_dict(),
        "max_epochs": training.max_epochs,
        "patience": training.patience,
        "min_delta": training.min_delta,
        "clock": program.clock,
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
        watch = Watch(self.job.device, own_cpu_s=self._own_cpu_s, on_gpu=self._is_on_gpu())
        try:
            try:
                training = self._followed(watch)
            except GapError:  # its checkpoint is ahead of what it had told
                assert self.kept is not None, "else there was nothing before it"
                self.kept.begin_anew()
                training = self._followed(watch)
        except ProgramError as error:
            return self._failed(str(error))
        if training.stopped_by is StopReason.INTERRUPTED:
            return None
        return _result(self, training, self._carried.merged(watch.finish()))

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
            told(self.job, self.program, self.seed, self._earlier),
            None if self.kept is None else self.kept.own,
        )
        try:
            with running:
                self._guard = running.pid
                training.follow(running)
        except ProgramError:
            for line in running.last_printed():
                _log.error("trial %d printed: %s", self.job.number, line)
            raise
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
        reason = self.on_epoch(record)
        if self.kept is not None:
            self.kept.add(record)
            if time.monotonic() > self._noted + NOTES_S:
                self._noted = time.monotonic()
                self._note(watch)
        return reason

    def _note(self, watch: Watch) -> None:
        if self.kept is not None:
            self.kept.note(self._carried.notes(watch.finish(), self._since, time.time()))

    def _failed(self, why: str) -> TrialResult:
        recorded = Recorded(
            stopped_by=StopReason.ERROR.value,
            failure=f"the program failed: {why}",
            seed=self.seed,
            converged=False,
            **_of_program(self.program),
        )
        return TrialResult(TrialState.FAIL, None, on_device(recorded, self.job.device).storable())

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

        return torch.cuda.is_initialized()


def _living_cpu_s(guard: int | None) -> float:
    if guard is None:
        return 0.0
    try:
        first = psutil.Process(guard)
        living = [first, *first.children(recursive=True)]
    except psutil.Error:
        return 0.0
    total = 0.0
    for each in living:
        try:
            used = each.cpu_times()
        except psutil.Error:
            continue
        total += used.user + used.system + used.children_user + used.children_system
    return total


def _of_program(program: Program) -> dict[str, Any]:
    return {
        "clock": program.clock,
        "clock_version": program.clock_version,
        "versions": {"tuner": __version__},
    }


def _result(run: _Run, training: ProgramTraining, seen: Observation) -> TrialResult:
    final, stopped_by = training.final, training.stopped_by
    assert stopped_by is not None, "it has ended"
    history = training.history
    recorded = Recorded(
        stopped_by=stopped_by.value,
        converged=stopped_by is StopReason.CONVERGED,
        epochs=len(history),
        setup_s=training.setup_s,
        seed=run.seed,
        contaminated=seen.contaminated,
        contamination=seen.why,
        device_watch=seen.details,
        timed_from=training.timed_from,
        timed_until=training.timed_until,
        timed_earlier=run._carried.parts or None,  # noqa: SLF001 - of this module
        resumed_from_epoch=training.resumed_from or None,
        **_of_program(run.program),
        **_figures(training),
    )
    if final is not None:
        recorded = dataclasses.replace(
            recorded,
            test_mql=final.test_mql,
            val_mql=final.val_mql,
            n_parameters=final.n_parameters,
            peak_memory_bytes=final.peak_memory_bytes,
            evaluation_s=training.evaluation_s,
        )
    recorded = dataclasses.replace(
        on_device(recorded, run.job.device), **_times(training, run.job.definition.target_val_loss)
    )
    if not stopped_by.completed:
        state = TrialState.PRUNED if stopped_by is StopReason.PRUNED else TrialState.FAIL
        if stopped_by is StopReason.DIVERGED:
            recorded = dataclasses.replace(recorded, failure="the program told a loss that is none")
        return TrialResult(state, None, recorded.storable())
    missing = [name for name in run.job.definition.objectives[1:] if recorded.named(name) is None]
    if missing:
        return run._failed(  # noqa: SLF001 - of this module
            f"its final values lack {missing[0]}, which its study minimises"
        )
    return valued(recorded, run.job.definition)


def _figures(training: ProgramTraining) -> Mapping[str, Any]:
    if not training.history:
        return {}
    best = training.best
    return {
        "best_epoch": best.epoch,
        "val_loss": best.val_loss,
        "s_per_epoch": training.s_per_epoch,
    }


def _times(training: ProgramTraining, target_val_loss: float | None) -> dict[str, float | None]:
    """Every time of the trial, as of a training by tuner's loop: one place says what each is."""
    if not training.history or training.stopped_by is None:
        return {}
    last, best = training.history[-1], training.best
    as_fitted = FitResult(
        stopped_by=training.stopped_by,
        message="",
        epochs=len(training.history),
        best_epoch=best.epoch,
        best_val_loss=best.val_loss,
        wall_clock_s=last.elapsed_s,
        setup_s=training.setup_s,
        time_to_best_s=best.elapsed_s,
        total_s=training.total_s - training.evaluation_s,
        s_per_epoch=training.s_per_epoch,
        samples_per_s=math.nan,
        peak_memory_bytes=0,
        n_parameters=0,
        backend=Backend.EAGER,
        backend_fallback="",
        precision=Precision.FP32,
        history=tuple(training.history),
        model=None,
    )
    return measured_times(
        Ended(
            training=as_fitted,
            evaluation_s=training.evaluation_s,
            target_val_loss=target_val_loss,
        )
    )
