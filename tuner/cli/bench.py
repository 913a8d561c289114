"""`tuner bench`: our backends, darts and neuralforecast on the same job, batch and device; or the
ladder of one variant's settings.
"""

from __future__ import annotations

import datetime
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.cli.command import option, switch, takes
from tuner.cli.device import OneDeviceOptions, alone_on, chosen_device, refuse_tf32
from tuner.cli.options import Json, TaskName, data_folder
from tuner.cli.output import note, print_json, printed_to_stderr
from tuner.cli.replace import Force, check_bench_free
from tuner.config import Precision
from tuner.errors import TunerError, UsageError

if TYPE_CHECKING:
    from tuner.bench.contender import Contender, Job, Measurement
    from tuner.bench.report import Circumstances, Results
    from tuner.devices import CpuCores, Gpu


# The options of `tuner bench`.


DEFAULT_OUTPUT = Path("storage/bench")
LADDER_OUTPUT = Path("storage/ladder")
TRAIN_BUDGET_S = 600.0
HIDDEN, BATCH, BACKENDS = "64", "256", "all"
"""Of a bench where nobody says others; a ladder has no use for any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions(OneDeviceOptions):
    """The options of `tuner bench`."""

    task: TaskName = "etth"
    variants: str = option("NAME[,NAME]|all", "Variants to run.", default="original")
    backends: str | None = option("NAME[,NAME]|all", f"Our backends to run [{BACKENDS}].")
    against: str | None = option(
        "NAME[,NAME]|none", "darts, neuralforecast (those installed), or none."
    )
    hidden: str | None = option("N[,N]", f"Hidden sizes [{HIDDEN}].")
    batch: str | None = option("N[,N]", f"Batch sizes [{BATCH}].")
    precision: Precision = option(None, "Arithmetic of all contenders.", default=Precision.FP32)
    rounds: int = option("N", "Counted turns of each contender.", default=3, min=1)
    epochs: int = option("N", "Counted epochs in a turn.", default=3, min=1)
    ladder: bool = switch(
        "One variant in fp32 and plain operations, then one setting after the other."
    )
    train: int = option(
        "SEEDS", "Train the ladder's rungs to convergence, so often each.", default=0, min=0
    )
    train_budget: float = option(
        "S", "Seconds for all these trainings.", default=TRAIN_BUDGET_S, min=0.0
    )
    output: Path | None = option(
        "DIR",
        f"Where results.csv and results.md go ({DEFAULT_OUTPUT}, of a ladder {LADDER_OUTPUT}).",
    )
    force: Force = False
    json: Json = False

    @property
    def folder(self) -> Path:
        """Where its files go."""
        return self.output or (LADDER_OUTPUT if self.ladder else DEFAULT_OUTPUT)


# What `tuner bench` does with its contenders, whoever they are: alone on the device.


AHEAD = "trainings under way"

Found = Sequence["Measurement"]
More = Callable[[Found, Callable[[], object]], None]
Tabled = Callable[[Found, "Circumstances"], "Results"]
"""What was measured, under these circumstances, as it is written and shown."""


def measured(
    options: BenchOptions,
    job: Job,
    device: Gpu | CpuCores,
    contenders: Sequence[Contender],
    tabled: Tabled,
    *,
    more: More = lambda _found, _write: None,
) -> Results:
    """Alone on the device: the rounds, then `more`, which calls the function that it is given when
    it has more to write.
    """
    from tuner.bench.contender import run_bench
    from tuner.devices import Gpu, Watch

    # Now: a folder that cannot be is better known before than after.
    options.folder.mkdir(parents=True, exist_ok=True)
    with printed_to_stderr(wanted=options.json), alone_on(device):
        watch = Watch(device)

        def results(measurements: Found, incomplete: str = "") -> Results:
            found = _circumstances(job, device, watch.finish().why, options.epochs, incomplete)
            return tabled(measurements, found)

        def keep(measurements: Found, number: int) -> None:
            """So that a bench that is interrupted has not measured in vain."""
            ahead = number == options.rounds and options.ladder and options.train
            done = f"{number} of {options.rounds} rounds done"
            results(measurements, AHEAD if ahead else done).write(options.folder)

        measurements = run_bench(
            contenders,
            rounds=options.rounds,
            epochs=options.epochs,
            gpu=device if isinstance(device, Gpu) else None,
            announce=note,
            after_round=keep,
        )
        more(measurements, lambda: results(measurements, AHEAD).write(options.folder))
        return results(measurements)


def job_of(options: BenchOptions, device: Gpu | CpuCores) -> Job:
    from tuner.bench.contender import Job, torch_device
    from tuner.data.prepare import prepare
    from tuner.data.task import load_task

    refuse_tf32(options.precision, device)
    return Job(
        prepared=prepare(load_task(options.task), data_dir=data_folder(options.data_dir)),
        device=torch_device(device),
        precision=options.precision,
    )


def _circumstances(
    job: Job, device: Gpu | CpuCores, contamination: str, epochs: int, incomplete: str
) -> Circumstances:
    from tuner.bench.entrants import library_versions
    from tuner.bench.report import Circumstances
    from tuner.trial.run import git_revision, versions

    found = versions() | library_versions()
    return Circumstances(
        date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        device=device.model,
        task=job.prepared.task.name,
        precision=job.precision.value,
        epochs_per_round=epochs,
        command=shlex.join(["tuner", *sys.argv[1:]]),
        versions=", ".join(f"{name} {version}" for name, version in found.items() if version),
        git_revision=git_revision() or "",
        contamination=contamination,
        incomplete=incomplete,
    )


# `tuner bench --ladder`: what each setting of a training brings, alone and beside others.


OWN_SIZES = "a ladder begins with the variant's own sizes and settings"


def climb(options: BenchOptions) -> int:
    """Measure the rungs interleaved, train them where that was asked for, and report."""
    from tuner.bench import ladder as ladders
    from tuner.bench.entrants import names
    from tuner.data.windows import to_device
    from tuner.spec.study_file import load_study_file

    _refuse_misplaced(options)
    check_bench_free(options.folder, ladders.FIRST_LADDER_COLUMNS, force=options.force)
    (variant, *others) = names(options.variants, "--variants")
    if others or variant == "all":
        raise UsageError(f"--variants: {options.variants!r}; a ladder is of one variant")
    device = chosen_device(gpu=options.gpu, cpu=options.cpu)
    with printed_to_stderr(wanted=options.json):
        job = job_of(options, device)
        data = to_device(job.prepared, job.device)
        ladder = ladders.make_ladder(
            job,
            data,
            load_study_file(variant),
            precision=Precision.BF16 if options.precision is Precision.FP32 else options.precision,
        )
    for rung in ladder.rungs:
        if rung.why_not:
            note(f"left out: {rung.change} ({rung.kind}): {rung.why_not}")
    trainings = ladders.Trainings()

    def tabled(found: Found, circumstances: Circumstances) -> Results:
        rows = ladders.ladder_rows(ladder, found, trainings, seeds=options.train)
        return ladders.ladder_results(rows, circumstances)

    def train(found: Found, write: Callable[[], object]) -> None:
        trainings.failures |= {n: each.failure for n, each in enumerate(found) if each.failure}
        ladders.train_rungs(
            ladder,
            data,
            trainings,
            seeds=options.train,
            budget_s=options.train_budget,
            announce=note,
            after_each=write,
        )

    results = measured(options, job, device, ladder.contenders, tabled, more=train)
    return _report(options, results, "no rung could be measured")


def _refuse_misplaced(options: BenchOptions) -> None:
    """Raises UsageError for options that the other kind of bench has a use for."""
    others = ("backends", "against", "hidden", "batch")
    for name in others if options.ladder else ("train", "train_budget"):
        if getattr(options, name) in (None, False, TRAIN_BUDGET_S):
            continue
        flag = f"--{name.replace('_', '-')}"
        if options.ladder:
            raise UsageError(f"--ladder and {flag} exclude each other: {OWN_SIZES}")
        raise UsageError(f"{flag} is of a ladder; add --ladder, or leave it out")
    if options.train_budget != TRAIN_BUDGET_S and not options.train:
        raise UsageError("--train-budget is of trainings; add --train SEEDS, or leave it out")


@takes(BenchOptions)
def bench(options: BenchOptions) -> int:
    """Measure our backends against darts and neuralforecast, interleaved, on one device; or, with
    --ladder, what each setting of a training brings.

    Prints a table and writes results.csv and results.md, from the first round on after each.
    """
    from tuner.bench.entrants import make_plan
    from tuner.bench.report import FIRST_COLUMNS, results_of
    from tuner.data.windows import to_device

    if options.ladder:
        return climb(options)
    _refuse_misplaced(options)
    check_bench_free(options.folder, FIRST_COLUMNS, force=options.force)
    hidden = _sizes(options.hidden, HIDDEN, "--hidden")
    batch = _sizes(options.batch, BATCH, "--batch")
    device = chosen_device(gpu=options.gpu, cpu=options.cpu)
    with printed_to_stderr(wanted=options.json):
        job = job_of(options, device)
        plan = make_plan(
            job,
            to_device(job.prepared, job.device),
            variants=options.variants,
            backends=BACKENDS if options.backends is None else options.backends,
            against=options.against,
            hidden=hidden,
            batch=batch,
        )
        for notice in plan.notices:
            note(notice)
    results = measured(options, job, device, plan.contenders, results_of)
    return _report(options, results, "all contenders dropped out")


def _report(options: BenchOptions, results: Results, nothing: str) -> int:
    """Write the results and print them; `nothing` says that all of them failed."""
    written = [str(path) for path in results.write(options.folder)]
    if options.json:
        print_json({results.name: results.documents(), "files": written})
    else:
        results.show()
    note(f"wrote {' and '.join(written)}")
    if not all(row.failure for row in results.rows):
        return 0
    if not options.json:
        raise TunerError(f"{nothing}, the first because: {results.rows[0].failure}")
    return TunerError.exit_code


def _sizes(said: str | None, usual: str, flag: str) -> list[int]:
    text = usual if said is None else said
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(
            f"{flag}: {text!r} is no list of whole numbers; expected e.g. 64 or 64,128"
        ) from None
