"""What `tuner bench` does with its contenders, whoever they are: alone on the device, in a fresh
process where the device is lost meanwhile.
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
from typing import TYPE_CHECKING, NoReturn

from tuner.cli.device import waiting_for
from tuner.cli.options import data_folder, note
from tuner.cli.own_output import printed_to_stderr
from tuner.config import Precision
from tuner.errors import UsageError
from tuner.worker.restart import as_given, become

if TYPE_CHECKING:
    from tuner.bench import Circumstances
    from tuner.bench.contender import Contender, Job, Measurement
    from tuner.cli.bench_options import BenchOptions
    from tuner.devices import CpuCores, Gpu

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
    asked: Asked,
    write: Write,
    *,
    more: Callable[[Sequence[Measurement], Callable[[], object]], None] = lambda _found, _write: (
        None
    ),
) -> tuple[Sequence[Measurement], Circumstances]:
    """Alone on the device: the rounds, then `more`, which calls the function that it is given when
    it has more to write. A device that is lost in the rounds makes a fresh process of this one.
    """
    from tuner.bench import FreshProcessError, run_bench
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
