"""The objects that are applied: a job with an index for each worker, and a dashboard.

Pods are those of the `restricted` Pod Security Standard, except for a folder of the node that
somebody asks for. No password is in them: the address comes from a secret that is made by hand.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

from tuner.errors import INTERRUPTED, TERMINATED, UsageError
from tuner.files.environment import STORAGE_VARIABLE
from tuner.launch.engines.kubernetes_settings import KubernetesSettings
from tuner.launch.engines.placed import STOP_GRACE_S

Object = dict[str, Any]

WORK, DATA, LOCKS = "/var/lib/tuner", "/data", "/run/tuner-device-locks"
"""In the container. The first is the image's own."""
USER = 1000
"""Of the image."""
FAILURES = 3
"""Of a worker, before Kubernetes gives it up; the worker has started its own again before."""
KEPT_S = 24 * 3600
"""A job that is over, with its logs."""
DASHBOARD, PORT = "tuner-dashboard", 8080
CORES_BESIDE_GPU, CORES_ON_CPU = 4, 1
_NO_RIGHTS = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
_POD = {
    "automountServiceAccountToken": False,
    "enableServiceLinks": False,
    "securityContext": {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "seccompProfile": {"type": "RuntimeDefault"},
    },
}


def worker_job(
    settings: KubernetesSettings,
    arguments: Sequence[str],
    *,
    studies: str,
    workers: int,
    on_cpu: bool,
) -> Object:
    """The job of the workers.

    Args:
        settings: what manifests say beside.
        arguments: of `tuner`, from the command's name on.
        studies: their names, for the job's own.
        workers: how many pods work at a time.
        on_cpu: whether they have cores only, and no GPU.
    """
    labels = {"app.kubernetes.io/name": "tuner", "app.kubernetes.io/component": "worker"}
    pod = _worker_pod(settings, arguments, labels, on_cpu=on_cpu)
    spec: Object = {
        "completionMode": "Indexed",
        "completions": workers,
        "parallelism": workers,
        "backoffLimitPerIndex": FAILURES,
        "podFailurePolicy": {"rules": _failures()},
        "ttlSecondsAfterFinished": KEPT_S,
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    name = job_name(studies, repr(spec))
    return {"apiVersion": "batch/v1", "kind": "Job", **_named(settings, name, labels), "spec": spec}


def _worker_pod(
    settings: KubernetesSettings, arguments: Sequence[str], labels: Object, *, on_cpu: bool
) -> Object:
    container = {
        "name": "worker",
        "image": settings.image,
        "args": [_literal(each) for each in arguments],
        "workingDir": WORK,
        "env": _environment(settings.secret, home=WORK),
        "resources": _resources(settings, on_cpu=on_cpu),
        "securityContext": _NO_RIGHTS,
        "volumeMounts": _mounts(settings),
    }
    pod: Object = {
        **_POD,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 2 * int(STOP_GRACE_S),
        "containers": [container],
        "volumes": _volumes(settings),
    }
    if settings.node_selector is not None:
        label, _, value = settings.node_selector.partition("=")
        pod["nodeSelector"] = {label: value}
    if not on_cpu:
        pod["tolerations"] = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
    elif settings.device_locks is None:
        pod["affinity"] = _alone_on_its_node(labels)
    return pod


def job_name(studies: str, contents: str) -> str:
    """A name that RFC 1123 allows: of the studies, and another one where anything else is asked
    for, since a job cannot be changed.
    """
    readable = re.sub(r"[^a-z0-9]+", "-", studies.lower())[:30].strip("-")
    digest = hashlib.sha256(f"{studies}\0{contents}".encode()).hexdigest()[:8]
    return "-".join(part for part in ("tuner", readable, digest) if part)


def dashboard(settings: KubernetesSettings) -> tuple[Object, Object]:
    """What shows the studies, and its address within the cluster."""
    labels = {"app.kubernetes.io/name": "tuner", "app.kubernetes.io/component": "dashboard"}
    names = [DASHBOARD]
    if settings.namespace is not None:
        names += [f"{DASHBOARD}.{settings.namespace}", f"{DASHBOARD}.{settings.namespace}.svc"]
    arguments = ["dashboard", "--host", "0.0.0.0", "--port", str(PORT)]  # noqa: S104 - of its pod
    for name in names:
        arguments += ["--allow-host", name]
    container = {
        "name": "dashboard",
        "image": settings.image,
        "args": arguments,
        "env": _environment(settings.dashboard_secret or settings.secret, home="/tmp"),  # noqa: S108 - of its own
        "ports": [{"name": "http", "containerPort": PORT}],
        "readinessProbe": {"tcpSocket": {"port": "http"}},
        "resources": {"requests": {"cpu": "100m", "memory": "512Mi"}},
        "securityContext": _NO_RIGHTS,
        "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],  # noqa: S108 - of its own
    }
    pod = {**_POD, "containers": [container], "volumes": [{"name": "tmp", "emptyDir": {}}]}
    deployment = {
        "replicas": 1,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    service = {
        "type": "ClusterIP",
        "selector": labels,
        "ports": [{"name": "http", "port": PORT, "targetPort": "http"}],
    }
    named = _named(settings, DASHBOARD, labels)
    return (
        {"apiVersion": "apps/v1", "kind": "Deployment", **named, "spec": deployment},
        {"apiVersion": "v1", "kind": "Service", **named, "spec": service},
    )


def _named(settings: KubernetesSettings, name: str, labels: Object) -> Object:
    metadata: Object = {"name": name, "labels": labels}
    if settings.namespace is not None:
        metadata["namespace"] = settings.namespace
    return {"metadata": metadata}


def _literal(argument: str) -> str:
    """Kubernetes puts variables in place of `$(NAME)` in arguments: in none of ours."""
    if not argument.isprintable():
        raise UsageError(f"--on k8s: {argument!r} holds characters that are no text")
    return argument.replace("$", "$$")


def _environment(secret: str, *, home: str) -> list[Object]:
    address = {"secretKeyRef": {"name": secret, "key": STORAGE_VARIABLE}}
    return [
        {"name": STORAGE_VARIABLE, "valueFrom": address},
        {"name": "HOME", "value": home},
    ]


def _resources(settings: KubernetesSettings, *, on_cpu: bool) -> Object:
    """Whole cores, as many at least as at most: a node may then give a pod its own."""
    cores = settings.cores or (CORES_ON_CPU if on_cpu else CORES_BESIDE_GPU)
    found = {"cpu": str(cores)}
    if settings.memory is not None:
        found["memory"] = settings.memory
    if not on_cpu:
        found["nvidia.com/gpu"] = "1"
    return {"requests": found, "limits": found}


def _volumes(settings: KubernetesSettings) -> list[Object]:
    found: list[Object] = [
        {"name": "work", "emptyDir": {}},
        {"name": "tmp", "emptyDir": {}},
    ]
    if settings.work_claim is not None:
        found[0] = {"name": "work", "persistentVolumeClaim": {"claimName": settings.work_claim}}
    if settings.data_claim is not None:
        claim = {"claimName": settings.data_claim, "readOnly": True}
        found.append({"name": "data", "persistentVolumeClaim": claim})
    if settings.device_locks is not None:
        host = {"path": settings.device_locks, "type": "Directory"}
        found.append({"name": "device-locks", "hostPath": host})
    return found


def _mounts(settings: KubernetesSettings) -> list[Object]:
    found: list[Object] = [
        {"name": "work", "mountPath": WORK},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108 - of its own
    ]
    if settings.data_claim is not None:
        found.append({"name": "data", "mountPath": DATA, "readOnly": True})
    if settings.device_locks is not None:
        found.append({"name": "device-locks", "mountPath": LOCKS})
    return found


def _failures() -> list[Object]:
    """A pod that is preempted, evicted or told to end has failed at nothing; one that was asked for
    what there is not would do so again.
    """
    handed_back, usage = [INTERRUPTED, TERMINATED], [UsageError.exit_code]
    return [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "Ignore", "onExitCodes": _codes(handed_back)},
        {"action": "FailIndex", "onExitCodes": _codes(usage)},
    ]


def _codes(codes: list[int]) -> Object:
    return {"containerName": "worker", "operator": "In", "values": codes}


def _alone_on_its_node(labels: Object) -> Object:
    """Two pods of a node see all its cores, and could both take the same for their trials."""
    term = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
