"""What `--on slurm` needs, looked at from where a launch would run."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from tuner.cli.machine import Check
from tuner.errors import TunerError
from tuner.files.plain import excerpt
from tuner.launch.engines.on_slurm import PROGRAMS
from tuner.launch.engines.slurm_client import SlurmSilentError, ask
from tuner.storage.location import lies_on_network
from tuner.storage.url import absolute, parse_url

_HERE = {"localhost", "127.0.0.1", "::1", "", None}
_SEPARATOR = "|"


def examine_slurm(*, storage: str) -> list[Check]:
    """Look at Slurm's commands, its controller and partitions, the folder and the database. Writes
    nothing, and submits nothing.
    """
    return [_commands(), *_cluster(), _folder(Path.cwd()), _database(storage)]


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
    if lies_on_network(folder):
        return Check("shared folder", "ok", f"{folder} lies on a network filesystem")
    return Check(
        "shared folder",
        "notice",
        f"{folder} lies on a disk of this host, as far as can be seen; if the nodes have others, "
        "launch from a folder that all of them see",
    )


def _database(storage: str) -> Check:
    name = "database for Slurm"
    try:
        address = absolute(parse_url(storage))
    except TunerError as error:
        return Check(name, "error", str(error))
    if address.is_sqlite:
        return Check(
            name,
            "error",
            f"{address} is a file of one host; share a PostgreSQL (docs/several-machines.md)",
        )
    if address.url.host in _HERE:
        return Check(
            name, "notice", f"{address} is on this host: do the nodes reach it under that name?"
        )
    return Check(name, "ok", str(address))
