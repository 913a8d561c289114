"""One run of a program for a trial, alone on its device: from what it is told to a result.

What the program does wrong is this trial's failure, in one line, and never the worker's end.
"""

from __future__ import annotations

import dataclasses
import logging
import re
import resource
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from optuna.trial import TrialState

from tuner.config import EpochRecord, Hyperparameters, StopReason
from tuner.devices import Carried, CpuCores, Watch
from tuner.devices.watch import Observation
from tuner.errors import UsageError
from tuner.files.plain import excerpt
from tuner.record import Recorded
from tuner.spec.definition import StudyDefinition
from tuner.spec.objectives import Ended, measured_times
from tuner.spec.program import Program
from tuner.storage.records import TrialResult
from tuner.trial.job import TimeLeft, TrainerLostError, TrialJob, on_device, with_energy
from tuner.trial.program.program_process import NotStartedError, ProgramError, ProgramProcess
from tuner.trial.program.program_training import (
    Earlier,
    GapError,
    KeptFolder,
    KilledError,
    ProgramTraining,
)
from tuner.trial.run import alone_on, valued
from tuner.version import __version__

# Which extra of tuner's a program lacks, by what it printed.


EXTRAS = {
    "accelerate": "huggingface",
    "lightning": "lightning",
    "pytorch_lightning": "lightning",
    "transformers": "huggingface",
}
"""By the package that is not there; the callbacks of tuner need them."""

_NOT_THERE = re.compile(r"No module named '(\w+)")


def missing_extra(printed: Iterable[str]) -> str:
    """How to install it, after a semicolon; empty where nothing of the kind was printed."""
    for line in printed:
        found = _NOT_THERE.search(line)
        if found and found[1] in EXTRAS:
            return f"; pip install 'tuner[{EXTRAS[found[1]]}]'"
    return ""


# What a program's run came to, as the result of its trial.


def failed_program(job: TrialJob, seed: int, why: str) -> TrialResult:
    """The result of a run whose program did not what it should."""
    recorded = Recorded(
        stopped_by=StopReason.ERROR.value,
        failure=f"the program failed: {why}",
        seed=seed,
        converged=False,
        **_of_program(job.definition.program),
    )
    return TrialResult(TrialState.FAIL, None, on_device(recorded, job.device).storable())


def program_result(
    job: TrialJob,
    seed: int,
    training: ProgramTraining,
    seen: Observation,
    parts: Sequence[tuple[float, float]],
) -> TrialResult:
    """The result of a run that ended or was ended; `parts` are those of attempts before it."""
    stopped_by = training.stopped_by
    assert stopped_by is not None, "it has ended"
    recorded = Recorded(
        stopped_by=stopped_by.value,
        converged=stopped_by is StopReason.CONVERGED,
        epochs=len(training.history),
        setup_s=training.setup_s,
        seed=seed,
        contaminated=seen.contaminated,
        contamination=seen.why,
        device_watch=seen.details,
        timed_from=training.timed_from,
        timed_until=training.timed_until,
        timed_earlier=list(parts) or None,
        resumed_from_epoch=training.resumed_from or None,
        **_of_program(job.definition.program),
        **_of_epochs(training, job.definition.target_val_loss),
        **_of_final(training),
    )
    recorded = with_energy(on_device(recorded, job.device), seen.energy_j)
    if not stopped_by.completed:
        state = TrialState.PRUNED if stopped_by is StopReason.PRUNED else TrialState.FAIL
        if stopped_by is StopReason.DIVERGED:
            why = f"the program failed: {training.diverged_in_words()}"
            recorded = dataclasses.replace(recorded, failure=why)
        return TrialResult(state, None, recorded.storable())
    error = job.definition.objectives[1]
    if recorded.named(error) is None:
        return failed_program(job, seed, lacks(error))
    return valued(recorded, job.definition)


def lacks(error: str) -> str:
    """What is wrong with final values that are without this one."""
    return f"its final values lack {error}, which its study minimises"


def _of_program(program: Program | None) -> dict[str, Any]:
    assert program is not None, "its study has one"
    return {"clock": program.clock, "versions": {"tuner": __version__}}


def _of_final(training: ProgramTraining) -> dict[str, Any]:
    final = training.final
    if final is None:
        return {}
    named = ("test_mql", "val_mql", "n_parameters", "peak_memory_bytes")
    figures = {name: getattr(final, name) for name in named}
    return figures | {"evaluation_s": training.evaluation_s}


def _of_epochs(training: ProgramTraining, target_val_loss: float | None) -> dict[str, Any]:
    """Losses and every time, as of a training by tuner's loop: one place says what each time is."""
    if not training.history:
        return {}
    last, best = training.history[-1], training.best
    ended = Ended(
        history=training.history,
        wall_clock_s=last.elapsed_s,
        time_to_best_s=best.elapsed_s,
        total_s=training.total_s,
        target_val_loss=target_val_loss,
    )
    return {
        "best_epoch": best.epoch,
        "val_loss": best.val_loss,
        "s_per_epoch": last.elapsed_s / len(training.history),
        **measured_times(ended),
    }


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
    return None if result is None else result.noting(wait_s=run.began - asked)


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
    last: EpochRecord | None = None,
) -> dict[str, Any]:
    """What a program is told: docs/own-loop.md explains each key. `last`: the epoch that it goes on
    from.
    """
    training = definition.training
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
        "devices": definition.training.gpus_per_trial,
        "resume": None if last is None else {"epoch": last.epoch, "elapsed_s": last.elapsed_s},
    }


def command_of(definition: StudyDefinition) -> tuple[str, ...]:
    """The words that start it: `{devices}` in them is how many a trial has, as for `torchrun
    --nproc-per-node {devices}`.
    """
    assert definition.program is not None, "it has one"
    devices = str(definition.training.gpus_per_trial)
    return tuple(word.replace("{devices}", devices) for word in definition.program.command)


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
            on_started=watch.clock_starts,
            on_begun=self._begun,
            on_epoch=lambda record: self._epoch_ended(record, watch),
            should_stop=self.job.should_stop,
            on_wait=lambda: self.job.on_phase(WORKING),
        )
        running = ProgramProcess(
            command_of(self.job.definition),
            Path(self.program.folder),
            told(
                self.job.definition,
                self.job.hyperparameters,
                study=self.job.study,
                number=self.job.number,
                seed=self.seed,
                last=next(reversed(self._earlier.epochs), None),
            ),
            None if self.kept is None else self.kept.own,
        )
        watch.clock_starts()  # of a program that never says that it started, its whole life counts
        try:
            with running:
                self._guard = running.pid
                training.follow(running)
        except ProgramError as error:
            printed = running.last_printed
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
            self._carried.energy_j = None  # its notes are not of the epoch that it goes on from
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


# A program tried before its study: does it speak as it should, and do its seed and its
# hyperparameters change anything? One that ignores its seed would be found sure of itself: fresh
# seeds would say the same as the first one, bit for bit, and every interval would be a point.


EPOCHS = 2
"""Of each run."""
SEEDS = (0, 1)
ELSEWHERE = 0.25
"""Of each range: where the third run is, or else at three quarters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedProgram:
    """What three short runs of it showed."""

    epochs: int
    setup_s: float
    s_per_epoch: float
    ignores_seed: bool
    ignores_hyperparameters: bool

    @property
    def notices(self) -> tuple[str, ...]:
        found = []
        if self.ignores_seed:
            found.append(
                f"the program ignores its seed: seeds {SEEDS[0]} and {SEEDS[1]} gave the same "
                "values bit for bit, so no verdict on fresh seeds would mean anything; have it use "
                "the seed that it is told"
            )
        if self.ignores_hyperparameters:
            found.append(
                "the program ignores its hyperparameters: other values of all of them gave the same"
                " result bit for bit; have it use those that it is told"
            )
        return tuple(found)


def check_program(definition: StudyDefinition) -> CheckedProgram:
    """Run the program of a study three times for a few epochs: its default configuration on two
    seeds, and another configuration on the first of them.

    Raises:
        ProgramError: it did not what it should.
    """
    training = definition.training.but(max_epochs=min(EPOCHS, definition.training.max_epochs))
    short = dataclasses.replace(definition, training=training)
    first, second = (_run(short, definition.defaults, seed) for seed in SEEDS)
    other = _elsewhere(definition)
    third = None if other is None else _run(short, other, SEEDS[0])
    return CheckedProgram(
        epochs=len(first.history),
        setup_s=first.setup_s,
        s_per_epoch=first.history[-1].elapsed_s / len(first.history),
        ignores_seed=_values(first) == _values(second),
        ignores_hyperparameters=third is not None and _values(first) == _values(third),
    )


def _run(
    definition: StudyDefinition, hyperparameters: Hyperparameters, seed: int
) -> ProgramTraining:
    program = definition.program
    assert program is not None, "it has one"
    training = ProgramTraining(
        program=program,
        max_epochs=definition.training.max_epochs,
        on_epoch=lambda _record: None,
        should_stop=lambda: None,
    )
    trial = told(definition, hyperparameters, study="check", number=0, seed=seed)
    running = ProgramProcess(command_of(definition), Path(program.folder), trial, None)
    try:
        with running:
            training.follow(running)
    except ProgramError as error:
        lines = running.last_printed
        printed = f"; it printed: {' | '.join(lines)}" if lines else ""
        raise ProgramError(f"the program failed: {error}{printed}{missing_extra(lines)}") from None
    error_name = definition.objectives[1]
    if training.stopped_by is StopReason.DIVERGED or training.final is None:
        raise ProgramError(f"the program failed: {training.diverged_in_words()}")
    if getattr(training.final, error_name) is None:
        raise ProgramError(f"the program failed: {lacks(error_name)}")
    return training


def _elsewhere(definition: StudyDefinition) -> Hyperparameters | None:
    """Another configuration: none of what can change is as in the default one, where that is
    possible.
    """
    space, default = definition.space, definition.defaults.as_dict()
    cubes = [space.at([share] * space.dimensions) for share in (ELSEWHERE, 1 - ELSEWHERE)]
    best = max(cubes, key=lambda each: sum(each[name] != default.get(name) for name in each))
    return None if best == default else definition.hyperparameters(best)


def _values(training: ProgramTraining) -> list[Any]:
    """All that it told but its clock."""
    losses = [(epoch.train_loss, epoch.val_loss) for epoch in training.history]
    final = training.final
    assert final is not None, "else it failed"
    return [losses, final.test_mql, final.val_mql]
