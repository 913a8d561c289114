"""Kubernetes as an engine: it is told by manifests, which somebody reads and applies.

A launch has no rights on a cluster, and needs none: Kubernetes keeps the pods, and the workers in
them take trials from the database.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from tuner.errors import UsageError
from tuner.files.environment import STORAGE_VARIABLE
from tuner.files.yaml_text import yaml_text
from tuner.launch.engines.how_many import workers_asked
from tuner.launch.engines.kubernetes_manifests import (
    CORES_ON_CPU,
    DASHBOARD,
    DATA,
    PORT,
    dashboard,
    worker_job,
)
from tuner.launch.engines.kubernetes_settings import KubernetesSettings
from tuner.launch.engines.placement import Placement
from tuner.launch.engines.settings import read_settings
from tuner.launch.engines.worker_command import WorkerCommand
from tuner.launch.request import DeviceChoice
from tuner.storage.url import DatabaseUrl

_PRINTS = (
    "--on k8s prints manifests, and you apply them: add --print (launch and verify have it), "
    "then: kubectl apply --filename -"
)


def kubernetes_engine(choice: DeviceChoice) -> KubernetesEngine:
    """Kubernetes, as it is asked for here.

    Raises:
        UsageError: it is to do more than to be told, or is told too little.
    """
    if not choice.print_only:
        raise UsageError(_PRINTS)
    if choice.placement is None:
        raise UsageError("--on k8s: say where the image is: --placement image=registry/tuner:1.0")
    settings = read_settings(KubernetesSettings, choice.placement, table="kubernetes")
    return KubernetesEngine(settings=settings, workers=workers_asked(choice), on_cpu=choice.cpu)


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesEngine:
    """A cluster that we know nothing of."""

    settings: KubernetesSettings
    workers: int
    on_cpu: bool
    notice: str = ""

    @property
    def label(self) -> str:
        return "Kubernetes"

    @property
    def cores(self) -> int | None:
        return (self.settings.cores or CORES_ON_CPU) if self.on_cpu else None

    def check(self, address: DatabaseUrl) -> None:
        if address.is_sqlite:
            raise UsageError(
                "an SQLite database is one file of one host, and no pod sees it: share a "
                "PostgreSQL (docs/several-machines.md)"
            )

    def place(self, command: WorkerCommand) -> AbstractContextManager[Placement]:
        del command
        raise UsageError(_PRINTS)

    def in_words(self, command: WorkerCommand) -> str:
        if command.task is not None and self.settings.data_claim is None:
            raise UsageError(
                f"--on k8s: no pod has the data of {command.task}: put its file on a claim, and "
                "name that: --placement data-claim=NAME"
            )
        there = dataclasses.replace(
            command,
            task=None,  # what the study says of it is enough
            data_dir=self._data_of(command),
        )
        arguments = there.words()[1:]
        job = worker_job(
            self.settings,
            arguments,
            studies=command.studies,
            workers=self.workers,
            on_cpu=self.on_cpu,
        )
        documents = [yaml_text(each) for each in (job, *dashboard(self.settings))]
        return "".join((_comment(self._to_be_done()), *(f"---\n{each}" for each in documents)))

    def _data_of(self, command: WorkerCommand) -> str | None:
        """Where a pod finds the data; None: in its image, or nowhere."""
        if self.settings.data_claim is not None:
            return DATA
        is_url = command.data_dir is not None and "://" in command.data_dir
        return command.data_dir if is_url else None

    def _to_be_done(self) -> Sequence[str]:
        """What stands in front, for whoever applies it."""
        of = self.settings
        within = f" --namespace {of.namespace}" if of.namespace is not None else ""
        secrets = dict.fromkeys((of.secret, of.dashboard_secret or of.secret))
        return (
            "Before: a secret with the address of the database as pods reach it.",
            *(
                f'  printf %s "${STORAGE_VARIABLE}" | kubectl create secret generic {name}{within} '
                f"--from-file={STORAGE_VARIABLE}=/dev/stdin"
                for name in secrets
            ),
            "Then apply this, and look at the studies on http://127.0.0.1:8080:",
            f"  kubectl port-forward{within} service/{DASHBOARD} {PORT}:{PORT}",
        )


def _comment(lines: Sequence[str]) -> str:
    return "".join(f"# {line}\n" for line in lines)
