"""`tuner bench`: our backends, darts and neuralforecast on the same job, batch and device."""

from __future__ import annotations

import datetime
import json as json_text
import os
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from tuner.cli.afresh import as_given, become
from tuner.cli.device import chosen_device, waiting_for
from tuner.cli.options import DataDir, Json, TaskName, data_folder, note
from tuner.cli.output import print_json
from tuner.config import Precision
from tuner.errors import TunerError, UsageError

if TYPE_CHECKING:
    from tuner.bench import Circumstances, Plan
    from tuner.bench.contender import Job
    from tuner.bench.measurement import Measurement
    from tuner.devices import CpuCores, Gpu

DEFAULT_OUTPUT = Path("storage/bench")

MARK = "--carried"
"""The first of the words that are added to a fresh process's command line."""


def bench(
    task: TaskName = "etth",
    data_dir: DataDir = None,
    variants: Annotated[str, typer.Option(metavar="NAME[,NAME]|all", help="Variants to run.")] = "original",
    backends: Annotated[str, typer.Option(metavar="NAME[,NAME]|all", help="Our backends to run.")] = "all",
    against: Annotated[
        str | None, typer.Option(metavar="NAME[,NAME]|none", help="darts, neuralforecast (those installed), or none.")
    ] = None,
    against_everywhere: Annotated[
        bool, typer.Option("--against-everywhere", help="Run these at all sizes, not only at the first.")
    ] = False,
    hidden: Annotated[str, typer.Option(metavar="N[,N]", help="Hidden sizes.")] = "64",
    batch: Annotated[str, typer.Option(metavar="N[,N]", help="Batch sizes.")] = "256",
    precision: Annotated[Precision, typer.Option(help="Arithmetic of all contenders.")] = Precision.FP32,
    rounds: Annotated[int, typer.Option(min=1, metavar="N", help="Counted turns of each contender.")] = 3,
    epochs: Annotated[int, typer.Option(min=1, metavar="N", help="Counted epochs in a turn.")] = 3,
    gpu: Annotated[
        int | None, typer.Option(min=0, metavar="INDEX", help="The GPU to run on (0 if there is one).")
    ] = None,
    cpu: Annotated[bool, typer.Option("--cpu", help="Run on the CPU.")] = False,
    output: Annotated[Path, typer.Option(metavar="DIR", help="Where results.csv and results.md go.")] = DEFAULT_OUTPUT,
    json: Json = False,
    carried: Annotated[int | None, typer.Option(hidden=True)] = None,
) -> int:
    """Measure our backends against darts and neuralforecast, interleaved, on one device.

    Prints a table and writes results.csv and results.md, from the first round on after each.
    """
    sizes = _sizes(hidden, "--hidden"), _sizes(batch, "--batch")
    device = chosen_device(gpu=gpu, cpu=cpu)
    from tuner.bench import FreshProcessError, as_documents, make_plan, print_table, run_bench, summarise, write_results
    from tuner.data.windows import to_device
    from tuner.devices import Gpu, Watch, exclusive

    if precision is Precision.TF32 and not isinstance(device, Gpu):
        raise UsageError("--precision tf32 is an arithmetic of CUDA GPUs; on the CPU choose fp32 or bf16")
    job = _job(task, data_folder(data_dir), device, precision)
    plan = make_plan(
        job,
        to_device(job.prepared, job.device),
        variants=variants,
        backends=backends,
        against=against,
        hidden=sizes[0],
        batch=sizes[1],
        against_everywhere=against_everywhere,
    )
    for notice in plan.notices:
        note(notice)
    earlier, seen_before = _read_carried(carried, plan)
    output.mkdir(parents=True, exist_ok=True)  # now: a folder that cannot be is better known before than after
    with exclusive(device.lock_names, waiting=waiting_for(device.label)):
        watch = Watch(device)

        def describe(incomplete: str = "") -> Circumstances:
            seen = filter(None, (seen_before, watch.finish().why))
            return _circumstances(job, device, "; ".join(dict.fromkeys(seen)), epochs, incomplete)

        def keep(measurements: Sequence[Measurement], number: int) -> None:
            """So that a bench that is interrupted has not measured in vain."""
            write_results(summarise(measurements), describe(f"{number} of {rounds} rounds done"), output)

        lost = False
        try:
            measurements = run_bench(
                plan.contenders,
                rounds=rounds,
                epochs=epochs,
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
    rows = summarise(measurements)
    written = write_results(rows, circumstances, output)
    if json:
        print_json({"results": as_documents(rows, circumstances), "files": [str(path) for path in written]})
    else:
        print_table(rows, circumstances)
    note(f"wrote {' and '.join(str(path) for path in written)}")
    if not all(row.failure for row in rows):
        return 0
    if not json:
        raise TunerError(f"all contenders dropped out, the first because: {rows[0].failure}")
    return TunerError.exit_code


def _go_on_afresh(measurements: Sequence[Measurement], contamination: str, device: Gpu | CpuCores) -> NoReturn:
    """Become the same command in a fresh process, with what was measured in an open file that has no name."""
    from tuner.bench.measurement import as_text
    from tuner.devices import Gpu

    with tempfile.TemporaryFile("w+", encoding="utf-8") as file:
        json_text.dump([as_text(measurements), contamination], file)
        file.flush()
        os.set_inheritable(file.fileno(), True)
        only_one = ["--gpu", "0"] if isinstance(device, Gpu) else []  # the only one that it sees by now
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
        return from_text(measurements, [contender.entry for contender in plan.contenders]), str(contamination)
    except (OSError, ValueError) as error:
        raise UsageError(f"{MARK} is for the fresh process of a bench that is under way: {error}") from None


def _sizes(text: str, flag: str) -> list[int]:
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UsageError(f"{flag}: {text!r} is no list of whole numbers; expected e.g. 64 or 64,128") from None


def _job(task: str, data_dir: Path | None, device: Gpu | CpuCores, precision: Precision) -> Job:
    from tuner.bench.contender import Job, torch_device
    from tuner.data.prepare import prepare
    from tuner.data.task import load_task

    return Job(prepared=prepare(load_task(task), data_dir=data_dir), device=torch_device(device), precision=precision)


def _circumstances(job: Job, device: Gpu | CpuCores, contamination: str, epochs: int, incomplete: str) -> Circumstances:
    from tuner.bench import Circumstances
    from tuner.bench.plan import library_versions
    from tuner.objective import git_revision, versions

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
