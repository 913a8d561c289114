"""`tuner bench`: our backends, darts and neuralforecast on the same job, batch and device; or the
ladder of one variant's settings.
"""

from __future__ import annotations

import datetime
import json as json_text
import os
import shlex
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from tuner.cli.command import option, switch, takes
from tuner.cli.device import chosen_device, waiting_for
from tuner.cli.options import (
    Cpu,
    DataDir,
    Json,
    OneGpu,
    TaskName,
    data_folder,
    note,
    print_json,
    printed_to_stderr,
)
from tuner.cli.replace import Force, check_bench_free
from tuner.config import Precision
from tuner.errors import TunerError, UsageError
from tuner.worker.process import as_given, become

if TYPE_CHECKING:
    from tuner.bench.contender import Contender, Job, Measurement
    from tuner.bench.entrants import Plan
    from tuner.bench.ladder import LadderRow, Trainings
    from tuner.bench.report import Circumstances
    from tuner.devices import CpuCores, Gpu


# The options of `tuner bench`.


DEFAULT_OUTPUT = Path("storage/bench")
LADDER_OUTPUT = Path("storage/ladder")
TRAIN_BUDGET_S = 600.0
HIDDEN, BATCH, BACKENDS = "64", "256", "all"
"""Of a bench where nobody says others; a ladder has no use for any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """The options of `tuner bench`; the hidden one is for itself in a fresh process."""

    task: TaskName = "etth"
    data_dir: DataDir = None
    variants: str = option("NAME[,NAME]|all", "Variants to run.", default="original")
    backends: str | None = option("NAME[,NAME]|all", f"Our backends to run [{BACKENDS}].")
    against: str | None = option(
        "NAME[,NAME]|none", "darts, neuralforecast (those installed), or none."
    )
    against_everywhere: bool = switch("Run these at all sizes, not only at the first.")
    hidden: str | None = option("N[,N]", f"Hidden sizes [{HIDDEN}].")
    batch: str | None = option("N[,N]", f"Batch sizes [{BATCH}].")
    precision: Precision = option(None, "Arithmetic of all contenders.", default=Precision.FP32)
    rounds: int = option("N", "Counted turns of each contender.", default=3, min=1)
    epochs: int = option("N", "Counted epochs in a turn.", default=3, min=1)
    gpu: OneGpu = None
    cpu: Cpu = False
    ladder: bool = switch(
        "One variant in fp32 and plain operations, then one setting after the other."
    )
    ladder_batch: int | None = option(
        "N", "The ladder's larger batch (default: 4 times the usual).", min=1
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
    carried: int | None = option(hidden=True)

    @property
    def folder(self) -> Path:
        """Where its files go."""
        return self.output or (LADDER_OUTPUT if self.ladder else DEFAULT_OUTPUT)


# What `tuner bench` does with its contenders, whoever they are: alone on the device, in a fresh
# process where the device is lost meanwhile.


MARK = "--carried"
"""The first of the words that are added to a fresh process's command line."""

More = Callable[[Sequence["Measurement"], Callable[[], object]], None]
Write = Callable[[Sequence["Measurement"], "Circumstances"], object]
"""Writes what was measured, under these circumstances."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A bench as it was asked for."""

    options: BenchOptions
    job: Job
    device: Gpu | CpuCores
    contenders: Sequence[Contender]


def measured(
    asked: Asked, write: Write, *, more: More = lambda _found, _write: None
) -> tuple[Sequence[Measurement], Circumstances]:
    """Alone on the device: the rounds, then `more`, which calls the function that it is given when
    it has more to write. A device that is lost in the rounds makes a fresh process of this one.
    """
    from tuner.bench.rounds import FreshProcessError, run_bench
    from tuner.devices import Gpu, Watch, exclusive

    options, device = asked.options, asked.device
    earlier, seen_before = _read_carried(options.carried, asked.contenders)
    # Now: a folder that cannot be is better known before than after.
    options.folder.mkdir(parents=True, exist_ok=True)
    with (
        printed_to_stderr(wanted=options.json),  # not around a fresh process: it would print there
        exclusive(device.lock_names, waiting=waiting_for(device.label)),
    ):
        watch = Watch(device)

        def describe(incomplete: str = "") -> Circumstances:
            seen = "; ".join(dict.fromkeys(filter(None, (seen_before, watch.finish().why))))
            return _circumstances(asked.job, device, seen, options.epochs, incomplete)

        def keep(measurements: Sequence[Measurement], number: int) -> None:
            """So that a bench that is interrupted has not measured in vain."""
            ahead = number == options.rounds and options.ladder and options.train
            done = f"{number} of {options.rounds} rounds done"
            write(measurements, describe("trainings under way" if ahead else done))

        lost = False
        try:
            measurements = run_bench(
                asked.contenders,
                rounds=options.rounds,
                epochs=options.epochs,
                gpu=device if isinstance(device, Gpu) else None,
                announce=note,
                after_round=keep,
                carried=earlier,
            )
        except FreshProcessError as error:
            measurements, lost = error.measurements, True
        if not lost:
            more(measurements, lambda: write(measurements, describe("trainings under way")))
        circumstances = describe()
    if lost:
        _go_on_afresh(measurements, circumstances.contamination, device)
    return measurements, circumstances


def job_of(options: BenchOptions, device: Gpu | CpuCores) -> Job:
    from tuner.bench.contender import Job, torch_device
    from tuner.data.prepare import prepare
    from tuner.data.task import load_task
    from tuner.devices import Gpu

    if options.precision is Precision.TF32 and not isinstance(device, Gpu):
        raise UsageError(
            "--precision tf32 is an arithmetic of CUDA GPUs; on the CPU choose fp32 or bf16"
        )
    return Job(
        prepared=prepare(load_task(options.task), data_dir=data_folder(options.data_dir)),
        device=torch_device(device),
        precision=options.precision,
    )


def _go_on_afresh(
    measurements: Sequence[Measurement], contamination: str, device: Gpu | CpuCores
) -> NoReturn:
    """Become the same command in a fresh process,
    with what was measured in an open file that has no name.
    """
    from tuner.bench.contender import as_text
    from tuner.devices import Gpu

    with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
        json_text.dump([as_text(measurements), contamination], file)
        file.flush()
        os.set_inheritable(file.fileno(), True)
        only_one = (
            ["--gpu", "0"] if isinstance(device, Gpu) else []
        )  # the only one that it sees by now
        become(as_given(sys.argv[1:], MARK), [MARK, str(file.fileno()), *only_one])


def _read_carried(
    descriptor: int | None, contenders: Sequence[Contender]
) -> tuple[list[Measurement] | None, str]:
    """What an earlier process measured, and why its timings are not to be trusted."""
    from tuner.bench.contender import from_text

    if descriptor is None:
        return None, ""
    try:
        with os.fdopen(descriptor, encoding="utf-8") as file:
            file.seek(0)
            measurements, contamination = json_text.load(file)
        return from_text(measurements, [contender.entry for contender in contenders]), str(
            contamination
        )
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{MARK} is for the fresh process of a bench that is under way: {error}"
        ) from None


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
        command=shlex.join(["tuner", *as_given(sys.argv[1:], MARK)]),
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

    _check(options)
    check_bench_free(options.folder, list(ladders.FIRST_LADDER_COLUMNS), force=options.force)
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
            batch_size=options.ladder_batch,
        )
    for rung in ladder.rungs:
        if rung.why_not:
            note(f"left out: {rung.change} ({rung.kind}): {rung.why_not}")
    trainings = ladders.Trainings()

    def rows(measurements: Sequence[Measurement]) -> list[LadderRow]:
        return ladders.ladder_rows(ladder, measurements, trainings, seeds=options.train)

    def train(measurements: Sequence[Measurement], write: Callable[[], object]) -> None:
        nonlocal trainings

        def keep(so_far: Trainings) -> None:
            nonlocal trainings
            trainings = so_far
            write()

        trainings = ladders.train_rungs(
            ladder,
            data,
            seeds=options.train,
            budget_s=options.train_budget,
            announce=note,
            after_each=keep,
            failed={n: each.failure for n, each in enumerate(measurements) if each.failure},
        )

    asked = Asked(options=options, job=job, device=device, contenders=ladder.contenders)
    measurements, circumstances = measured(
        asked,
        lambda found, done: ladders.write_ladder(rows(found), done, options.folder),
        more=train,
    )
    told = ("ladder", ladders.write_ladder, ladders.as_ladder_documents, ladders.print_ladder)
    return _report(options, rows(measurements), circumstances, told, "no rung could be measured")


def _check(options: BenchOptions) -> None:
    """Raises UsageError for options that a ladder has no use for."""
    for name in ("backends", "against", "against_everywhere", "hidden", "batch"):
        if getattr(options, name) not in (None, False):
            flag = f"--{name.replace('_', '-')}"
            raise UsageError(f"--ladder and {flag} exclude each other: {OWN_SIZES}")
    if options.train_budget != TRAIN_BUDGET_S and not options.train:
        raise UsageError("--train-budget is of trainings; add --train SEEDS, or leave it out")


@takes(BenchOptions)
def bench(options: BenchOptions) -> int:
    """Measure our backends against darts and neuralforecast, interleaved, on one device; or, with
    --ladder, what each setting of a training brings.

    Prints a table and writes results.csv and results.md, from the first round on after each.
    """
    from tuner.bench.report import FIRST_COLUMNS

    if options.ladder:
        return climb(options)
    if misplaced := _of_a_ladder(options):
        raise UsageError(f"{misplaced} is of a ladder; add --ladder, or leave it out")
    check_bench_free(options.folder, list(FIRST_COLUMNS), force=options.force)
    sizes = _sizes(options.hidden, HIDDEN, "--hidden"), _sizes(options.batch, BATCH, "--batch")
    device = chosen_device(gpu=options.gpu, cpu=options.cpu)
    with printed_to_stderr(wanted=options.json):
        job = job_of(options, device)
        plan = _plan(options, job, *sizes)
        for notice in plan.notices:
            note(notice)
    asked = Asked(options=options, job=job, device=device, contenders=plan.contenders)
    from tuner.bench.report import as_documents, print_table, summarise, write_results

    measurements, circumstances = measured(
        asked, lambda found, done: write_results(summarise(found), done, options.folder)
    )
    told = ("results", write_results, as_documents, print_table)
    nothing = "all contenders dropped out"
    return _report(options, summarise(measurements), circumstances, told, nothing)


def _plan(options: BenchOptions, job: Job, hidden: list[int], batch: list[int]) -> Plan:
    from tuner.bench.entrants import make_plan
    from tuner.data.windows import to_device

    return make_plan(
        job,
        to_device(job.prepared, job.device),
        variants=options.variants,
        backends=BACKENDS if options.backends is None else options.backends,
        against=options.against,
        hidden=hidden,
        batch=batch,
        against_everywhere=options.against_everywhere,
    )


def _report(
    options: BenchOptions,
    rows: Sequence[Any],
    circumstances: Circumstances,
    told: tuple[str, Callable[..., Any], Callable[..., Any], Callable[..., Any]],
    nothing: str,
) -> int:
    """Write the rows and print them. `told`: what they are in JSON, and what writes them, makes
    documents of them and prints them; `nothing` says that all of them failed.
    """
    what, write, documents, show = told
    written = [str(path) for path in write(rows, circumstances, options.folder)]
    if options.json:
        print_json({what: documents(rows, circumstances), "files": written})
    else:
        show(rows, circumstances)
    note(f"wrote {' and '.join(written)}")
    if not all(row.failure for row in rows):
        return 0
    if not options.json:
        raise TunerError(f"{nothing}, the first because: {rows[0].failure}")
    return TunerError.exit_code


def _of_a_ladder(options: BenchOptions) -> str:
    """The first option that was given and has a meaning with --ladder only; or nothing."""
    if options.ladder_batch is not None:
        return "--ladder-batch"
    if options.train:
        return "--train"
    return "--train-budget" if options.train_budget != TRAIN_BUDGET_S else ""


def _sizes(said: str | None, usual: str, flag: str) -> list[int]:
    text = usual if said is None else said
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(
            f"{flag}: {text!r} is no list of whole numbers; expected e.g. 64 or 64,128"
        ) from None
