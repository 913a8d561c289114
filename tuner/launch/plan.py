"""What a launch will do, checked whole before anything is written: studies, data, devices."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.config import OBJECTIVES, Backend, Precision
from tuner.data.prepare import prepare
from tuner.data.task import Task, load_task
from tuner.devices import CpuCores, Gpu, list_gpus, pick_gpus, share_out_cores
from tuner.devices.cpu import available_cores
from tuner.errors import TunerError, UsageError
from tuner.study import StudyDefinition, StudyFile, builtin_variants, load_study_file

STUDY_NAME_LIMIT = 200

DEFAULT_CPU_WORKERS = 4
"""At most, and one per core at most: small networks gain little from a second thread, and lose much where anything else
runs on one of two cores that wait for each other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Studies by name, and the devices that will run them."""

    task: Task
    definitions: Mapping[str, StudyDefinition]
    devices: Sequence[Gpu | CpuCores]
    notice: str = ""


def make_plan(
    *,
    variants: str,
    task: str,
    data_dir: Path | None,
    cache_dir: Path | None,
    gpus: str | None,
    cpu: bool,
    workers: int | None,
    study: str | None,
    environment: Mapping[str, str],
    max_epochs: int | None = None,
    backend: Backend = Backend.AUTO,
    seeds: int = 1,
    precision: Precision = Precision.FP32,
    time_objective: str = OBJECTIVES[0],
    mql_split: str = "test",
    target_val_loss: float | None = None,
) -> Plan:
    """Check everything a launch was asked for, in the order in which mistakes are cheapest to find.

    Raises:
        UsageError: a wrong variant, task file, study file or device.
        DataError: data that is missing or unfit.
    """
    files = _study_files(variants)
    if study is not None:
        if len(files) > 1:
            raise UsageError(f"--study {study} names one study, --variant names {len(files)}; launch them one by one")
        check_study_name(study)
    loaded = load_task(task)
    devices, notice = choose_devices(gpus=gpus, cpu=cpu, workers=workers, environment=environment)
    if precision is Precision.TF32 and not isinstance(devices[0], Gpu):
        raise UsageError("--precision tf32 is an arithmetic of CUDA GPUs; on the CPU choose fp32 or bf16")
    if backend not in (Backend.AUTO, Backend.EAGER) and not isinstance(devices[0], Gpu):
        raise UsageError(f"--backend {backend.value} needs a CUDA GPU; on the CPU choose auto or eager")
    prepared = prepare(loaded, data_dir=data_dir, cache_dir=cache_dir)
    definitions = {}
    for variant, file in files.items():
        if variant not in builtin_variants():
            _check_network(variant, task)
        training = dataclasses.replace(file.training_settings(), backend=backend, precision=precision)
        if max_epochs is not None:
            training = dataclasses.replace(training, max_epochs=max_epochs)
        name = study or f"{loaded.name}-{file.name}"
        definitions[name] = StudyDefinition.of(
            file,
            task=loaded.definition(),
            data_hash=prepared.data_hash,
            training=training,
            time_objective=time_objective,
            mql_split=mql_split,
            target_val_loss=target_val_loss,
            seeds_per_trial=seeds,
        )
    return Plan(task=loaded, definitions=definitions, devices=devices, notice=notice)


def choose_devices(
    *, gpus: str | None, cpu: bool, workers: int | None, environment: Mapping[str, str]
) -> tuple[Sequence[Gpu | CpuCores], str]:
    """The devices to run on, and a notice when the choice was ours.

    Raises:
        UsageError: flags that contradict each other, or devices that are not there.
    """
    if cpu and gpus is not None:
        raise UsageError("--cpu and --gpus exclude each other; choose one")
    if workers is not None and gpus is not None:
        raise UsageError("--workers belongs to --cpu; on GPUs there is one worker per GPU, chosen by --gpus")
    if gpus is not None:
        return pick_gpus(gpus, list_gpus(environment)), ""
    if not cpu and workers is None and (found := list_gpus(environment)):
        return found, f"neither --gpus nor --cpu given: using all {len(found)} GPUs"
    why = "no GPU is visible" if workers is None else "--workers belongs to --cpu"
    notice = "" if cpu else f"{why}: running on the CPU (say --cpu to silence this)"
    cores = available_cores()
    return share_out_cores(workers or min(DEFAULT_CPU_WORKERS, len(cores)), cores), notice


def _study_files(variants: str) -> dict[str, StudyFile]:
    names = [name.strip() for name in variants.split(",")]
    if not any(names):
        raise UsageError("--variant: the list is empty; expected e.g. rmsnorm or rmsnorm,original")
    if not all(names):
        raise UsageError(f"--variant: {variants!r} holds an empty name; expected e.g. rmsnorm,original")
    files: dict[str, StudyFile] = {}
    for name in names:
        file = load_study_file(name)
        if any(file.name == other.name for other in files.values()):
            raise UsageError(f"--variant: {file.name!r} is named twice; name each variant once")
        files[name] = file
    return files


def check_study_name(name: str) -> None:
    """Raises UsageError when a study cannot be called `name`."""
    fits = 0 < len(name) <= STUDY_NAME_LIMIT and name.isprintable() and name == name.strip()
    if not fits or "," in name:  # workers take a list of names
        raise UsageError(
            f"--study: {name!r} cannot name a study; expected 1 to {STUDY_NAME_LIMIT} printable characters, no comma, "
            "no blanks around them"
        )


def _check_network(variant: str, task: str) -> None:
    """Build the network of the user's own study file once, in a child: the supervisor itself never imports torch.

    Without this, a class that cannot work or a setting that nobody takes would fail every trial of the study.
    """
    checked = subprocess.run(
        [sys.executable, "-m", "tuner", "variants", "--check", variant, "--task", task],
        capture_output=True,
        text=True,
        check=False,
    )
    if checked.returncode:
        lines = checked.stderr.strip().splitlines() or ["the check of its network failed"]
        message = lines[-1].removeprefix("tuner: error: ")
        raise (UsageError if checked.returncode == UsageError.exit_code else TunerError)(f"{variant}: {message}")
