"""`tuner bench`: our backends, darts and neuralforecast on the same job, batch and device."""

from __future__ import annotations

import datetime
import json as json_text
import os
import shlex
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from tuner.cli.command import takes
from tuner.cli.device import chosen_device, waiting_for
from tuner.cli.options import Cpu, DataDir, Json, OneGpu, TaskName, data_folder, note
from tuner.cli.output import print_json
from tuner.cli.replace import Force, check_bench_free
from tuner.config import Precision
from tuner.errors import TunerError, UsageError
from tuner.worker.restart import as_given, become

if TYPE_CHECKING:
    from tuner.bench import Circumstances, Plan
    from tuner.bench.contender import Job
    from tuner.bench.measurement import Measurement
    from tuner.devices import CpuCores, Gpu

DEFAULT_OUTPUT = Path("storage/bench")

MARK = "--carried"
"""The first of the words that are added to a fresh process's command line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """The options of `tuner bench`; the hidden one is for itself in a fresh process."""

    task: TaskName = "etth"
    data_dir: DataDir = None
    variants: Annotated[str, typer.Option(metavar="NAME[,NAME]|all", help="Variants to run.")] = (
        "original"
    )
    backends: Annotated[
        str, typer.Option(metavar="NAME[,NAME]|all", help="Our backends to run.")
    ] = "all"
    against: Annotated[
        str | None,
        typer.Option(
            metavar="NAME[,NAME]|none", help="darts, neuralforecast (those installed), or none."
        ),
    ] = None
    against_everywhere: Annotated[
        bool,
        typer.Option("--against-everywhere", help="Run these at all sizes, not only at the first."),
    ] = False
    hidden: Annotated[str, typer.Option(metavar="N[,N]", help="Hidden sizes.")] = "64"
    batch: Annotated[str, typer.Option(metavar="N[,N]", help="Batch sizes.")] = "256"
    precision: Annotated[Precision, typer.Option(help="Arithmetic of all contenders.")] = (
        Precision.FP32
    )
    rounds: Annotated[
        int, typer.Option(min=1, metavar="N", help="Counted turns of each contender.")
    ] = 3
    epochs: Annotated[int, typer.Option(min=1, metavar="N", help="Counted epochs in a turn.")] = 3
    gpu: OneGpu = None
    cpu: Cpu = False
    output: Annotated[
        Path, typer.Option(metavar="DIR", help="Where results.csv and results.md go.")
    ] = DEFAULT_OUTPUT
    force: Force = False
    json: Json = False
    carried: Annotated[int | None, typer.Option(hidden=True)] = None


@takes(BenchOptions)
def bench(options: BenchOptions) -> int:
    """Measure our backends against darts and neuralforecast, interleaved, on one device.

    Prints a table and writes results.csv and results.md, from the first round on after each.
    """
    from tuner.bench.report import FIRST_COLUMNS

    check_bench_free(options.output, list(FIRST_COLUMNS), force=options.force)
    sizes = _sizes(options.hidden, "--hidden"), _sizes(options.batch, "--batch")
    device = chosen_device(gpu=options.gpu, cpu=options.cpu)
    job = _job(options, device)
    plan = _plan(options, job, *sizes)
    for notice in plan.notices:
        note(notice)
    carried = _read_carried(options.carried, plan)
    # Now: a folder that cannot be is better known before than after.
    options.output.mkdir(parents=True, exist_ok=True)
    measurements, circumstances = _measure(options, plan, job, device, *carried)
    return _report(options, measurements, circumstances)


def _plan(options: BenchOptions, job: Job, hidden: list[int], batch: list[int]) -> Plan:
    from tuner.bench import make_plan
    from tuner.data.windows import to_device

    return make_plan(
        job,
        to_device(job.prepared, job.device),
        variants=options.variants,
        backends=options.backends,
        against=options.against,
        hidden=hidden,
        batch=batch,
        against_everywhere=options.against_everywhere,
    )


def _measure(
    options: BenchOptions,
    plan: Plan,
    job: Job,
    device: Gpu | CpuCores,
    earlier: list[Measurement] | None,
    seen_before: str,
) -> tuple[Sequence[Measurement], Circumstances]:
    """Alone on the device. A device that is lost meanwhile makes a fresh process of this one."""
    from tuner.bench import FreshProcessError, run_bench, summarise, write_results
    from tuner.devices import Gpu, Watch, exclusive

    with exclusive(device.lock_names, waiting=waiting_for(device.label)):
        watch = Watch(device)

        def describe(incomplete: str = "") -> Circumstances:
            seen = "; ".join(dict.fromkeys(filter(None, (seen_before, watch.finish().why))))
            return _circumstances(job, device, seen, options.epochs, incomplete)

        def keep(measurements: Sequence[Measurement], number: int) -> None:
            """So that a bench that is interrupted has not measured in vain."""
            done = describe(f"{number} of {options.rounds} rounds done")
            write_results(summarise(measurements), done, options.output)

        lost = False
        try:
            measurements = run_bench(
                plan.contenders,
                rounds=options.rounds,
                epochs=options.epochs,
                gpu=device if isinstance(device, Gpu) else None,
                announce=note,
                after_round=keep,
                carried=earlier,
            )
        except FreshProcessError as error:
            measurements, lost = error.measurements, True
        circumstances = describe()
    if lost:
        _go_on_afresh(measurements, circumstances.contamination, device)
    return measurements, circumstances


def _report(
    options: BenchOptions, measurements: Sequence[Measurement], circumstances: Circumstances
) -> int:
    from tuner.bench import as_documents, print_table, summarise, write_results

    rows = summarise(measurements)
    written = write_results(rows, circumstances, options.output)
    if options.json:
        print_json(
            {"results": as_documents(rows, circumstances), "files": [str(path) for path in written]}
        )
    else:
        print_table(rows, circumstances)
    note(f"wrote {' and '.join(str(path) for path in written)}")
    if not all(row.failure for row in rows):
        return 0
    if not options.json:
        raise TunerError(f"all contenders dropped out, the first because: {rows[0].failure}")
    return TunerError.exit_code


def _go_on_afresh(
    measurements: Sequence[Measurement], contamination: str, device: Gpu | CpuCores
) -> NoReturn:
    """Become the same command in a fresh process,
    with what was measured in an open file that has no name.
    """
    from tuner.bench.measurement import as_text
    from tuner.devices import Gpu

    with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
        json_text.dump([as_text(measurements), contamination], file)
        file.flush()
        os.set_inheritable(file.fileno(), True)
        only_one = (
            ["--gpu", "0"] if isinstance(device, Gpu) else []
        )  # the only one that it sees by now
        become(as_given(sys.argv[1:], MARK), [MARK, str(file.fileno()), *only_one])


def _read_carried(descriptor: int | None, plan: Plan) -> tuple[list[Measurement] | None, str]:
    """What an earlier process measured, and why its timings are not to be trusted."""
    from tuner.bench.measurement import from_text

    if descriptor is None:
        return None, ""
    try:
        with os.fdopen(descriptor, encoding="utf-8") as file:
            file.seek(0)
            measurements, contamination = json_text.load(file)
        return from_text(measurements, [contender.entry for contender in plan.contenders]), str(
            contamination
        )
    except (OSError, ValueError) as error:
        raise UsageError(
            f"{MARK} is for the fresh process of a bench that is under way: {error}"
        ) from None


def _sizes(text: str, flag: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(
            f"{flag}: {text!r} is no list of whole numbers; expected e.g. 64 or 64,128"
        ) from None


def _job(options: BenchOptions, device: Gpu | CpuCores) -> Job:
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


def _circumstances(
    job: Job, device: Gpu | CpuCores, contamination: str, epochs: int, incomplete: str
) -> Circumstances:
    from tuner.bench import Circumstances
    from tuner.bench.entrants import library_versions
    from tuner.trial.provenance import git_revision, versions

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
