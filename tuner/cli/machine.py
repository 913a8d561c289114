"""What works on this machine, and the remedy for what does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from tuner.data.etth import find_etth
from tuner.devices import Gpu, list_gpus
from tuner.devices.cpu import available_cores, processor_name
from tuner.devices.lock import DeviceLockError, describe_folder
from tuner.devices.writable import who_may_change
from tuner.errors import TunerError
from tuner.storage.database import open_database
from tuner.storage.location import cautions
from tuner.storage.url import absolute, parse_url
from tuner.trial.ahead.ready_stamp import cache_folder

PACKAGES = (
    "torch",
    "optuna",
    "optuna-dashboard",
    "sqlalchemy",
    "neuralforecast",
    "pandas",
    "joblib",
)


@dataclass(frozen=True, slots=True)
class Check:
    """One thing looked at. A `notice` is worth knowing, an `error` stops a launch."""

    name: str
    level: Literal["ok", "notice", "error"]
    detail: str

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def examine(*, storage: str, data_dir: Path | None, environment: Mapping[str, str]) -> list[Check]:
    """Look at packages, devices, data and database. Writes nothing."""
    gpus = list_gpus(environment)
    return [
        _packages(),
        _gpus(gpus),
        _torch(),
        *([_compiler(), _kernels(environment)] if gpus else []),
        _cpu(),
        _locks(),
        _etth(data_dir),
        _database(storage),
    ]


def _packages() -> Check:
    found, missing = [], []
    for package in PACKAGES:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            missing.append(package)
    if missing:
        return Check(
            "packages",
            "error",
            f"missing: {', '.join(missing)}; install them with: pip install tuner",
        )
    return Check("packages", "ok", ", ".join(found))


def _gpus(gpus: Sequence[Gpu]) -> Check:
    if not gpus:
        return Check("GPUs", "notice", "none visible; launches run on the CPU")
    return Check("GPUs", "ok", ", ".join(f"{gpu.index}: {gpu.name}" for gpu in gpus))


def _torch() -> Check:
    import torch

    built_for = f"CUDA {torch.version.cuda}" if torch.version.cuda else "the CPU only"
    if torch.version.cuda is None and list_gpus({}):
        return Check(
            "torch",
            "error",
            f"torch {torch.__version__} is built for {built_for}, but there are GPUs here",
        )
    return Check("torch", "ok", f"torch {torch.__version__}, built for {built_for}")


def _compiler() -> Check:
    from tuner.training.engines.choose import why_nothing_is_built

    if (reason := why_nothing_is_built()) is None:
        return Check("C compiler", "ok", "there, for the kernels of --backend triton and compile")
    return Check(
        "C compiler", "notice", f"{reason}: install one, or --backend auto means graph everywhere"
    )


def _kernels(environment: Mapping[str, str]) -> Check:
    cache = cache_folder(environment)
    if (caution := who_may_change(cache)) is not None:
        return Check("compiled kernels", "notice", caution)
    return Check("compiled kernels", "ok", f"in {cache}, as workers and 'tuner warm' leave them")


def _cpu() -> Check:
    return Check("CPU", "ok", f"{processor_name()}, {len(available_cores())} cores usable")


def _locks() -> Check:
    try:
        return Check("device locks", "ok", f"in {describe_folder()}")
    except DeviceLockError as error:
        return Check("device locks", "error", str(error))


def _etth(data_dir: Path | None) -> Check:
    try:
        return Check("etth data", "ok", f"in {find_etth(data_dir)}")
    except TunerError as error:
        return Check("etth data", "notice", str(error))


def _database(storage: str) -> Check:
    try:
        address = absolute(parse_url(storage))
        if address.is_sqlite and not address.sqlite_path.exists():
            return Check(
                "database", "notice", f"{address} does not exist yet; the first launch creates it"
            )
        open_database(address, create=False).close()
        if dangers := cautions(address):
            return Check("database", "notice", "; ".join(dangers))
    except TunerError as error:
        return Check(
            "database", "error" if "no studies yet" not in str(error) else "notice", str(error)
        )
    return Check("database", "ok", str(address))
