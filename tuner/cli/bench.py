"""`tuner bench`: our backends, darts and neuralforecast on the same job, batch and device."""

from __future__ import annotations

import datetime
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tuner.cli.device import chosen_device, waiting_for
from tuner.cli.options import DataDir, Json, TaskName, data_folder, note
from tuner.cli.output import print_json
from tuner.config import Precision
from tuner.errors import TunerError, UsageError

if TYPE_CHECKING:
    from tuner.bench import Circumstances
    from tuner.bench.contender import Job
    from tuner.devices import CpuCores, Gpu, Observation

DEFAULT_OUTPUT = Path("storage/bench")


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
) -> int:
    """Measure our backends against darts and neuralforecast, interleaved, on one device.

    Prints a table and writes results.csv and results.md.
    """
    sizes = _sizes(hidden, "--hidden"), _sizes(batch, "--batch")
    device = chosen_device(gpu=gpu, cpu=cpu)
    from tuner.bench import as_documents, make_plan, print_table, run_bench, summarise, write_results
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
    output.mkdir(parents=True, exist_ok=True)  # now: a folder that cannot be is better known before than after
    with exclusive(device.lock_names, waiting=waiting_for(device.label)):
        watch = Watch(device)
        measurements = run_bench(
            plan.contenders,
            rounds=rounds,
            epochs=epochs,
            gpu=device if isinstance(device, Gpu) else None,
            announce=note,
        )
        observation = watch.finish()
    rows = summarise(measurements)
    circumstances = _circumstances(job, device, observation, epochs)
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


def _circumstances(job: Job, device: Gpu | CpuCores, observation: Observation, epochs: int) -> Circumstances:
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
        command=shlex.join(["tuner", *sys.argv[1:]]),
        versions=", ".join(f"{name} {version}" for name, version in found.items() if version),
        git_revision=git_revision() or "",
        contamination=observation.why,
    )
