"""What `tuner doctor --on ray` looks at: the cluster, and tuner on each of its nodes."""

from __future__ import annotations

import os
import platform
from typing import Any

from tuner.cli.machine import Check
from tuner.errors import TunerError, UsageError
from tuner.launch.engines.on_ray import connected
from tuner.storage.url import absolute, parse_url
from tuner.version import __version__

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
        _shared_database(storage, nodes),
    ]


def tuner_there() -> tuple[str, str]:
    """The node's name, and the version of tuner on it. Runs there."""
    return platform.node(), __version__


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
        _, version = ray.get(task.remote(), timeout=ANSWER_S)
    except Exception as error:  # noqa: BLE001 - whatever the node answers is what is wrong there
        why = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
        return Check(name, "error", f"tuner does not run there: {why[-1].strip()}")
    if version != __version__:
        return Check(name, "error", f"tuner {version} there, {__version__} here; install the same")
    return Check(name, "ok", f"tuner {version}")


def _shared_database(storage: str, nodes: list[dict[str, Any]]) -> Check:
    hosts = {node["NodeManagerAddress"] for node in nodes}
    if absolute(parse_url(storage)).is_sqlite and len(hosts) > 1:
        return Check(
            "shared database",
            "error",
            f"an SQLite file is one host's, and these are {len(hosts)}: share a PostgreSQL "
            "(docs/several-machines.md)",
        )
    return Check("shared database", "ok", f"{absolute(parse_url(storage))}")
