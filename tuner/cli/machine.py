"""What works on this machine, or on an engine that would place workers, and the remedy for what
does not.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tuner.data.sources import find_etth
from tuner.devices import Gpu, list_gpus
from tuner.devices.common_files import who_may_change
from tuner.devices.cpu import available_cores, processor_name
from tuner.devices.lock import DeviceLockError, describe_folder
from tuner.errors import TunerError, UsageError
from tuner.files.plain import excerpt
from tuner.launch.engines.on_ray import connected
from tuner.launch.engines.on_slurm import PROGRAMS, SlurmSilentError, ask
from tuner.storage.database import open_database
from tuner.storage.sqlite import cautions, network_mount
from tuner.storage.url import absolute, parse_url
from tuner.trial.ahead.compile_order import cache_folder
from tuner.version import __version__, installed

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
    found = {package: installed(package) for package in PACKAGES}
    if missing := [package for package, there in found.items() if there is None]:
        remedy = "install them with: pip install tuner"
        return Check("packages", "error", f"missing: {', '.join(missing)}; {remedy}")
    return Check("packages", "ok", ", ".join(f"{name} {there}" for name, there in found.items()))


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


# What `tuner doctor --on ray` looks at: the cluster, and tuner on each of its nodes.


ANSWER_S = 30.0
TOKEN_MODE = "RAY_AUTH_MODE"  # noqa: S105 - the name of a setting


def examine_ray(on: str, *, storage: str) -> list[Check]:
    """Look at the cluster that `--on` names. Begins a task of no cores on each node."""
    try:
        ray = connected(None if on == "ray" else on)
    except (TunerError, UsageError) as error:
        return [Check("Ray cluster", "error", str(error))]
    nodes = [node for node in ray.nodes() if node["Alive"]]
    there = ray.cluster_resources()
    found = (
        f"Ray {ray.__version__} at {ray.get_runtime_context().gcs_address}: {len(nodes)} "
        f"node{'s' if len(nodes) > 1 else ''}, {there.get('CPU', 0):g} cores, "
        f"{there.get('GPU', 0):g} GPUs"
    )
    return [
        Check("Ray cluster", "ok", found),
        _token(),
        *(_node(ray, node) for node in nodes),
        *([_shared_database(storage)] if len(nodes) > 1 else []),
    ]


def tuner_there() -> str:
    """The version of tuner on a node. Runs there."""
    return __version__


def _token() -> Check:
    if os.environ.get(TOKEN_MODE) == "token":
        return Check("Ray authentication", "ok", "with a token")
    return Check(
        "Ray authentication",
        "notice",
        "none: whoever reaches the cluster may run programs on it; Ray's documentation of "
        f"{TOKEN_MODE}=token says how to ask for one",
    )


def _node(ray: Any, node: dict[str, Any]) -> Check:
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    name = f"node {node['NodeManagerHostname']}"
    there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
    task = ray.remote(tuner_there).options(num_cpus=0, scheduling_strategy=there)
    try:
        version = ray.get(task.remote(), timeout=ANSWER_S)
    except Exception as error:  # noqa: BLE001 - whatever the node answers is what is wrong there
        why = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        return Check(name, "error", f"tuner does not run there: {why[-1].strip()}")
    if version != __version__:
        return Check(name, "error", f"tuner {version} there, {__version__} here; install the same")
    return Check(name, "ok", f"tuner {version}")


_HERE = {"localhost", "127.0.0.1", "::1", "", None}


def _shared_database(storage: str) -> Check:
    """Whether other machines reach the database where this one does."""
    name = "shared database"
    try:
        address = absolute(parse_url(storage))
    except TunerError as error:
        return Check(name, "error", str(error))
    if address.is_sqlite:
        remedy = "share a PostgreSQL (docs/several-machines.md)"
        return Check(name, "error", f"{address} is a file of one host; {remedy}")
    if address.url.host in _HERE:
        said = f"{address} is on this host: do the others reach it under that name?"
        return Check(name, "notice", said)
    return Check(name, "ok", str(address))


# What `--on slurm` needs, looked at from where a launch would run.


_SEPARATOR = "|"


def examine_slurm(*, storage: str) -> list[Check]:
    """Look at Slurm's commands, its controller and partitions, the folder and the database. Writes
    nothing, and submits nothing.
    """
    return [_commands(), *_cluster(), _folder(Path.cwd()), _shared_database(storage)]


def _commands() -> Check:
    if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
        return Check(
            "Slurm's commands",
            "error",
            f"{', '.join(missing)} not found on the PATH; run this on a login node, or load "
            "Slurm's module",
        )
    try:
        return Check("Slurm's commands", "ok", excerpt(ask("sbatch", "--version").strip()))
    except TunerError as error:
        return Check("Slurm's commands", "error", str(error))


def _cluster() -> Iterator[Check]:
    if any(shutil.which(name) is None for name in ("scontrol", "sinfo")):
        return
    try:
        ask("scontrol", "ping")
    except SlurmSilentError as error:
        yield Check("controller", "error", f"Slurm's controller does not answer: {error}")
        return
    yield Check("controller", "ok", "answers")
    try:
        shape = _SEPARATOR.join(("%P", "%a", "%l", "%D", "%G"))
        lines = ask("sinfo", "--noheader", "-o", shape).splitlines()
    except SlurmSilentError as error:
        yield Check("partitions", "error", str(error))
        return
    rows = [line.strip().split(_SEPARATOR) for line in lines if line.count(_SEPARATOR) == 4]  # noqa: PLR2004 - as many as `shape` has
    if not rows:
        yield Check("partitions", "error", "you may use none; ask who runs the cluster")
        return
    said = [
        f"{name} ({state}, at most {limit}, {nodes} nodes)" for name, state, limit, nodes, _ in rows
    ]
    yield Check("partitions", "ok", excerpt("; ".join(said), at_most=500))
    gpus = sorted({gres for *_, gres in rows if "gpu" in gres})
    if gpus:
        yield Check("GPUs of Slurm", "ok", excerpt(", ".join(gpus), at_most=300))
    else:
        yield Check("GPUs of Slurm", "notice", "no node has any as gres; use --cpu --workers N")


def _folder(folder: Path) -> Check:
    """Nodes must see it, and Python's, under the same path: that can be guessed only."""
    if network_mount(folder) is not None:
        return Check("shared folder", "ok", f"{folder} lies on a network filesystem")
    return Check(
        "shared folder",
        "notice",
        f"{folder} lies on a disk of this host, as far as can be seen; if the nodes have others, "
        "launch from a folder that all of them see",
    )


def examine_engine(on: str, *, storage: str) -> list[Check]:
    """What is to be said of an engine. Raises UsageError where it is none."""
    from tuner.launch.where import KUBERNETES, RAY, refuse_unknown

    refuse_unknown(on)
    if on.startswith(RAY):
        return examine_ray(on, storage=storage)
    if on == KUBERNETES:
        there = "" if shutil.which("kubectl") else ", which is not on the PATH here"
        what = "a launch says what its template is filled in with (--print); kubectl applies it"
        return [Check("Kubernetes", "notice" if there else "ok", what + there)]

    return examine_slurm(storage=storage)
