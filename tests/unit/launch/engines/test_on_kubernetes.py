"""The template for Kubernetes, checked against the schema of its newest version, and what is said
of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.support.postgres_cluster import PASSWORD
from tuner.errors import INTERRUPTED, TERMINATED, UsageError
from tuner.launch.engines.on_kubernetes import kubernetes_engine, template
from tuner.launch.engines.placement import STOP_GRACE_S, WorkerCommand
from tuner.launch.request import DeviceChoice
from tuner.storage.url import parse_url

CHOICE = DeviceChoice(on="k8s", gpus="4", print_only=True)
COMMAND = WorkerCommand(
    studies="etth-rmsnorm,etth-original",
    address=parse_url(f"postgresql://tuner:{PASSWORD}@dbhost/tuner"),
    cores=None,
    task=Path("/home/ann/shops.toml"),
    data_dir="/home/ann/data",
)


def filled_in() -> list[Any]:
    text = template().read_text(encoding="utf-8")
    values = kubernetes_engine(CHOICE).in_words(COMMAND)
    values |= {"IMAGE": "registry.example/tuner:1.0", "SECRET": "tuner-database"}
    for name in ("IMAGE", "SECRET", "STUDY", "WORKERS"):
        text = text.replace(name, values[name])
    return list(yaml.safe_load_all(text))


def test_filled_in_it_is_valid_and_asks_for_what_a_worker_needs() -> None:
    documents = filled_in()
    assert [each["kind"] for each in documents] == ["Job", "Deployment", "Service"]
    for each in documents:
        kubernetes_validate.validate(each, kubernetes_validate.latest_version(), strict=True)
    spec = documents[0]["spec"]
    assert (spec["completions"], spec["parallelism"]) == (4, 4)
    _, handed_back, usage = spec["podFailurePolicy"]["rules"]
    assert handed_back["onExitCodes"]["values"] == [INTERRUPTED, TERMINATED]
    assert usage["onExitCodes"]["values"] == [UsageError.exit_code]
    pod = spec["template"]["spec"]
    assert pod["terminationGracePeriodSeconds"] > STOP_GRACE_S
    (container,) = pod["containers"]
    told = kubernetes_engine(CHOICE).in_words(COMMAND)["command"]
    assert " ".join(["tuner", *container["args"]]) == told
    for each in documents[:2]:
        (container,) = each["spec"]["template"]["spec"]["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"]


def test_no_password_is_said() -> None:
    said = str(kubernetes_engine(CHOICE).in_words(COMMAND))
    assert PASSWORD[:4] not in said
    assert "dbhost" not in said


@pytest.mark.parametrize(
    ("choice", "what"),
    [
        ({"print_only": False}, r"workers\.yaml and apply it with kubectl; --print makes"),
        ({"placement": "image=a"}, "--print without --placement makes"),
        ({"gpus": None}, "say how many GPUs"),
        ({"gpus": "all"}, "how many GPUs"),
        ({"gpus": None, "cpu": True}, "say how many workers"),
    ],
)
def test_what_cannot_be_said_is_refused(choice: dict[str, Any], what: str) -> None:
    said: dict[str, Any] = {"on": "k8s", "gpus": "4", "print_only": True} | choice
    with pytest.raises(UsageError, match=what):
        kubernetes_engine(DeviceChoice(**said))


def test_a_file_is_no_database_for_pods() -> None:
    with pytest.raises(UsageError, match="share a PostgreSQL"):
        kubernetes_engine(CHOICE).check(parse_url("sqlite:///storage/tuner.db"))
