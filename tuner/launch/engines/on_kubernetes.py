"""Kubernetes as an engine: a template, which somebody fills in and applies.

A launch has no rights on a cluster, and needs none: Kubernetes keeps the pods, and the workers in
them take trials from the database.
"""

from __future__ import annotations

import dataclasses
import shlex
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import UsageError
from tuner.launch.engines.placement import Placement, WorkerCommand, refuse_sqlite, workers_asked
from tuner.launch.request import DeviceChoice
from tuner.storage.url import DatabaseUrl


def template() -> Path:
    """The manifests to fill in: inside an installed wheel, or in a checkout."""
    package = Path(__file__).parents[2]
    places = (package / "kubernetes", package.parent / "storage" / "kubernetes")
    return next(each for each in places if each.is_dir()) / "workers.yaml"


def kubernetes_engine(choice: DeviceChoice) -> KubernetesEngine:
    """Kubernetes, as it is asked for here.

    Raises:
        UsageError: it is to do more than to be told, or what the template says.
    """
    if choice.placement is not None or not choice.print_only:
        what = "" if choice.placement is None else " without --placement"
        raise UsageError(
            f"--on k8s: put IMAGE, SECRET, STUDY and WORKERS into {template()} and apply it with "
            f"kubectl; --print{what} makes the studies and says these values"
        )
    return KubernetesEngine(workers=workers_asked(choice), cores=1 if choice.cpu else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesEngine:
    """A cluster that we know nothing of."""

    workers: int
    cores: int | None
    label: str = "Kubernetes"
    notice: str = ""

    def check(self, address: DatabaseUrl) -> None:
        refuse_sqlite(address, "no pod sees it")

    def place(self, command: WorkerCommand) -> AbstractContextManager[Placement]:
        raise AssertionError(f"{command.studies}: nothing is placed on Kubernetes")

    def in_words(self, command: WorkerCommand) -> dict[str, str]:
        url = command.data_dir if "://" in (command.data_dir or "") else None
        # A task file of this host is none of a pod's: what the study says of it is enough.
        there = dataclasses.replace(command, task=None, data_dir=url)
        return {
            "template": str(template()),
            "IMAGE": "yours, of tuner's Dockerfile",
            "SECRET": "yours, with TUNER_STORAGE in it",
            "STUDY": command.studies,
            "WORKERS": str(self.workers),
            "command": shlex.join(there.words()),
        }
