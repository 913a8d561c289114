"""All the runs of a trial: one for each of its seeds, again where a timing was contaminated, and
what they come to.

With several seeds (`StudyDefinition.seeds_per_trial`) the trial's values are the medians of its
seeds'. The rule for seeds that go wrong: the first seed that does not complete (diverged, out of
memory, an error, pruned) ends the trial with that outcome, and the rest are not run. A seed that a
limit cut completes, but did not converge: then neither did the trial, whatever the others did.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import torch
from optuna.trial import TrialState

from tuner.config import StopReason
from tuner.data.windows import DeviceData
from tuner.devices import Gpu
from tuner.files.durable import read_regular, write_durably
from tuner.files.kinds import In
from tuner.files.plain import digest_of
from tuner.models.own_modules import EditedError, keep_to_file
from tuner.record import Recorded, names_in
from tuner.spec.definition import StudyDefinition
from tuner.spec.membership import seed_of_trial
from tuner.storage.records import TrialResult
from tuner.study.results import over_runs
from tuner.training import EpochRecord
from tuner.training.checkpoint import CheckpointFiles
from tuner.training.engines.choose import identifying_backend, what_auto_means
from tuner.training.engines.pool import EnginePool
from tuner.training.engines.ranks import Ranks
from tuner.trial.job import TimeLeft, TrainerLostError, TrialJob
from tuner.trial.program.program_training import KeptFolder
from tuner.trial.program.run_program import run_program
from tuner.trial.run import alone_on, run_config, run_trial, windows_of
from tuner.version import __version__

# A process trains a study with the class and the term that it began with, also where somebody
# edits their files meanwhile.


def keep_to_code(definition: StudyDefinition) -> None:
    """To be called before a study's network is built.

    Raises:
        TrainerLostError: a file is not what the study was made with, so that each trial would fail.
        UsageError: it cannot be imported, or read.
    """
    if definition.files is not None and (problem := definition.files.problem()):
        raise TrainerLostError(problem)
    loss = definition.training.loss
    try:
        keep_to_file(definition.architecture.model, definition.model_source)
        if loss is not None:
            keep_to_file(loss.term, definition.loss_source)
    except EditedError as error:
        raise TrainerLostError(str(error)) from None


# What `auto` means for a job whose backend is to be measured, before any of its trainings.


def with_backend(job: TrialJob, data: DeviceData, left: TimeLeft) -> TrialJob | None:
    """The job with the backend that all runs of its sizes have in this study; None where it was to
    stop before that was measured.

    Measured once, alone on the device and before any clock runs; the job's `on_backend` is told.

    Raises:
        UsageError: an architecture that cannot be built.
    """
    if job.backend is not None or not isinstance(job.device, Gpu):
        return job
    config = run_config(job.definition, job.hyperparameters, 0)
    data = data.seeing(job.hyperparameters.input_size)
    with alone_on(job.device, job.should_stop, job.on_phase, left) as held:
        if not held:
            return None
        job.on_phase("set-up")
        choice = what_auto_means(config, data)
    return job if choice is None else dataclasses.replace(job, backend=job.on_backend(choice))


# A trial's result from those of its seeds: what each thing comes to over all of them.


def combined(results: Sequence[TrialResult], seeds: int) -> TrialResult:
    """A trial's result from those of its seeds: values and figures are medians over the seeds.

    Where one did not complete, it is the last, and the trial's outcome is its outcome.
    """
    if seeds == 1:
        return results[0]
    last = results[-1]
    runs = [_of_a_run(run.recorded) for run in results]
    if last.state is not TrialState.COMPLETE:
        return last.noting(runs=runs)
    values = map(statistics.median, zip(*(run.values or () for run in results), strict=True))
    cut = next((run for run in results if not run.recorded.converged), last)
    whole = over_runs([run.recorded for run in results])
    recorded = dataclasses.replace(whole, stopped_by=cut.recorded.stopped_by, runs=runs)
    return dataclasses.replace(last, values=tuple(values), recorded=recorded)


def _of_a_run(recorded: Recorded) -> dict[str, Any]:
    """What is kept of each seed's run, where a trial has several."""
    flat = recorded.to_flat()
    return {name: flat[name] for name in names_in(In.RUNS) if name in flat}


TIMED = (TrialState.COMPLETE, TrialState.PRUNED)
"""Results that depend on the clock: a contaminated one of these is run again."""
JOURNAL_BYTES = 16 << 20
_log = logging.getLogger(__name__)


def run_job(
    job: TrialJob,
    data: Mapping[str, DeviceData],
    *,
    engines: EnginePool | None = None,
    ranks: Ranks | None = None,
) -> TrialResult | None:
    """What a worker runs: the job's configuration trained on `data`,
    by data hash; None when it was interrupted.

    `engines` are those of earlier jobs in this process, which this one may use; it leaves its own.
    `ranks` train a network together.
    """
    own, left = None, TimeLeft(job.may_take_s, job.on_wait)
    if job.definition.program is None:
        keep_to_code(job.definition)
        own = data[job.definition.data_hash]
        decided = with_backend(job, own, left)
        if decided is None:
            return None
        job = decided
    if job.seed is not None:
        return _OfOneSeed(job, own, 0, job.seed, engines, left, ranks).result()
    results: list[TrialResult] = []
    for repeat in range(job.definition.seeds_per_trial):
        if results and left.is_over:
            return None  # the seeds that are done are in its journal
        seed = seed_of_trial(job.number, repeat, root=job.seed_root)
        result = _OfOneSeed(job, own, repeat, seed, engines, left, ranks).result()
        if result is None:
            return None
        results.append(result)
        if result.state is not TrialState.COMPLETE:
            break
    return combined(results, job.definition.seeds_per_trial)


@dataclass(slots=True)
class _OfOneSeed:
    """The runs of a job with one seed: one, and more where a timing was contaminated."""

    job: TrialJob
    data: DeviceData | None
    """None where a program trains, which reads its own."""
    repeat: int
    seed: int
    engines: EnginePool | None = None
    left: TimeLeft = field(default_factory=TimeLeft)
    ranks: Ranks | None = None

    def result(self) -> TrialResult | None:
        """The cleanest run's; None when it was interrupted. Runs that an earlier attempt finished
        are not repeated.
        """
        folder = self.job.checkpoints
        path = None if folder is None else folder / f"{self._stem}-runs.json"
        journal = _Journal(path, self._identity())
        runs = journal.read()
        curves: dict[int, list[EpochRecord]] = {}
        while not runs or (self._again(runs) and not self.left.is_over):
            if runs:
                why = runs[-1].recorded.contamination
                _log.warning("trial %d is run again: %s", self.job.number, why)
            result = self._run(len(runs), curves.setdefault(len(runs), []))
            if result is None:
                return None
            runs.append(result)
            if _spoiled(result) or self.job.definition.seeds_per_trial > 1:
                journal.write(runs)
        counts = _number_of_cleanest(runs)
        if counts < len(runs) - 1 and counts in curves:  # another run's times were told last
            self.job.on_curve(curves[counts], self.repeat)
        return cleanest(runs)

    def _again(self, runs: Sequence[TrialResult]) -> bool:
        return _spoiled(runs[-1]) and len(runs) <= self.job.policy.reruns

    def _run(self, attempt: int, curve: list[EpochRecord]) -> TrialResult | None:
        """One run; its epochs are added to `curve`."""

        def went_on_from(earlier: Sequence[EpochRecord]) -> None:
            curve[:] = earlier
            self.job.on_curve(earlier, self.repeat)

        def epoch_ended(record: EpochRecord) -> StopReason | None:
            # A training that begins again, for want of memory, tells its first epochs anew.
            del curve[record.epoch - 1 :]
            curve.append(record)
            return self.job.epoch_ended(record, self.repeat)

        if self.job.definition.program is not None:
            return run_program(
                dataclasses.replace(self.job, should_stop=self._stop_of_program),
                self.seed,
                self.left,
                kept=self._kept(attempt),
                on_epoch=epoch_ended,
                on_begun=went_on_from,
            )
        return run_trial(
            self.job.definition,
            self.job.hyperparameters,
            self.seed,
            cast("DeviceData", self.data),
            self.job.device,
            on_epoch=epoch_ended,
            should_stop=self.job.should_stop,
            on_phase=self.job.on_phase,
            checkpoints=self._files(attempt),
            on_resume=lambda checkpoint: went_on_from(checkpoint.progress.history),
            engines=self.engines,
            windows=windows_of(self.job.definition, confirms=self.job.confirms),
            backend=self.job.backend,
            left=self.left,
            ranks=self.ranks,
        )

    def _stop_of_program(self) -> StopReason | None:
        """A program cannot be made to say its values: at the end of its time it is handed back."""
        return StopReason.INTERRUPTED if self.left.is_over else self.job.should_stop()

    def _files(self, attempt: int) -> CheckpointFiles | None:
        if self.job.checkpoints is None:
            return None
        return CheckpointFiles(
            folder=self.job.checkpoints,
            stem=f"{self._stem}-run-{attempt}",
            identity=self._identity() | {"run": attempt},
            every_s=self.job.policy.checkpoint_s,
        )

    def _kept(self, attempt: int) -> KeptFolder | None:
        if self.job.checkpoints is None or not self.job.policy.checkpoint_s:
            return None
        return KeptFolder(
            folder=self.job.checkpoints / f"{self._stem}-run-{attempt}-program",
            identity=self._identity() | {"run": attempt},
        )

    @property
    def _stem(self) -> str:
        if self.job.seed is not None:
            return f"verify-{self.job.number:06d}-seed-{self.seed}"
        return f"{stem_of(self.job.number)}-seed-{self.repeat}"

    def _identity(self) -> dict[str, str | int]:
        """All that a run depends on, its clock included:
        what differs in any of it is not continued.
        """
        job = self.job
        whole: dict[str, str | int] = {
            "study": job.study_key,
            "definition": job.definition.identity(),
            "trial": job.number,
            "repeat": self.repeat,
            "seed": self.seed,
            "device": job.device.model,
            "tuner": __version__,
        }
        if job.definition.program is not None:
            return whole | {"configuration": digest_of(job.hyperparameters.as_dict())}
        data = cast("DeviceData", self.data)
        config = run_config(job.definition, job.hyperparameters, self.seed, job.backend)
        device, streamed = data.minimum.device, data.streamed
        return whole | {
            "configuration": digest_of(dataclasses.asdict(config)),
            "backend": identifying_backend(config, data.shapes, device, streamed).value,
            "torch": torch.__version__,
        }


@dataclass(slots=True)
class _Journal:
    """The finished runs of a seed on disk, for the attempt that may come after this one."""

    path: Path | None
    identity: dict[str, str | int]

    def read(self) -> list[TrialResult]:
        """What was written for this very training; nothing where that cannot be read."""
        if self.path is None or not self.path.exists():
            return []
        try:
            content = json.loads(read_regular(self.path, at_most=JOURNAL_BYTES))
            if content["sha256"] != digest_of([content["runs"], self.identity]):
                raise ValueError("damaged, or another training's")  # noqa: TRY301 - refused like all the rest
            return [TrialResult.from_json(text) for text in content["runs"]]
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.warning("the finished runs in %s are not used: %s", self.path, error)
            return []

    def write(self, runs: Sequence[TrialResult]) -> None:
        if self.path is None:
            return
        texts = [run.to_json() for run in runs]
        content = {"runs": texts, "sha256": digest_of([texts, self.identity])}
        try:
            write_durably(self.path, json.dumps(content).encode())
        except OSError as error:
            _log.warning("a finished run could not be noted in %s: %s", self.path, error.strerror)


def stem_of(trial_number: int) -> str:
    """How the names of all files of a trial begin."""
    return f"trial-{trial_number:06d}"


def _spoiled(result: TrialResult) -> bool:
    return result.state in TIMED and bool(result.recorded.contaminated)


def cleanest(runs: Sequence[TrialResult]) -> TrialResult:
    """The run whose time is to be trusted most:
    a clean one, else that with the least seen beside it.

    Where there are several, all their times are recorded as `timings`.
    """
    if len(runs) == 1:
        return runs[0]
    best = runs[_number_of_cleanest(runs)]
    return best.noting(timings=[run.recorded.kept_in(In.TIMINGS) for run in runs])


def _number_of_cleanest(runs: Sequence[TrialResult]) -> int:
    return min(range(len(runs)), key=lambda number: _suspicion(runs[number]))


def _suspicion(run: TrialResult) -> tuple[bool, float, float]:
    watched = run.recorded.device_watch or {}
    share = watched.get("foreign_cpu_share", len(watched.get("other_processes", ())))
    return _spoiled(run), float(share), run.recorded.wall_clock_s or 0.0
