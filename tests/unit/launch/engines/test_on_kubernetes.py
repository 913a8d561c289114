"""What is printed for Kubernetes, checked against the schema of its newest version."""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from tests.support.postgres_cluster import PASSWORD
from tuner.errors import UsageError
from tuner.launch.engines.kubernetes_manifests import job_name
from tuner.launch.engines.on_kubernetes import KubernetesEngine, kubernetes_engine
from tuner.launch.engines.placed import STOP_GRACE_S
from tuner.launch.engines.worker_command import WorkerCommand
from tuner.launch.request import DeviceChoice
from tuner.storage.url import parse_url

IMAGE = "registry.example/tuner:1.0"
NEWEST = kubernetes_validate.latest_version()
ADDRESS = parse_url(f"postgresql://tuner:{PASSWORD}@dbhost/tuner")
ALL_KEYS = (
    "namespace=lab,secret=a,dashboard-secret=b,data-claim=etth,work-claim=work,cores=6,memory=16Gi,"
    "node-selector=nvidia.com/gpu.product=NVIDIA-H100,device-locks=/run/tuner-device-locks"
)


def engine(more: str = "", **choice: Any) -> KubernetesEngine:
    said: dict[str, Any] = {"on": "k8s", "print_only": True, "gpus": "4"} | choice
    given = f"image={IMAGE}" + (f",{more}" if more else "")
    return kubernetes_engine(DeviceChoice(placement=given, **said))


def command(studies: str = "etth-rmsnorm,etth-original", **more: Any) -> WorkerCommand:
    return WorkerCommand(studies=studies, address=ADDRESS, cores=None, **more)


def documents(engine: KubernetesEngine, told: WorkerCommand) -> list[Any]:
    return list(yaml.safe_load_all(engine.in_words(told)))


@pytest.mark.parametrize("more", ["", ALL_KEYS])
@pytest.mark.parametrize("choice", [{}, {"gpus": None, "cpu": True, "workers": 2}])
def test_each_manifest_is_valid_and_a_broken_one_is_not(more: str, choice: dict[str, Any]) -> None:
    found = documents(engine(more, **choice), command())
    assert [each["kind"] for each in found] == ["Job", "Deployment", "Service"]
    for each in found:
        kubernetes_validate.validate(each, NEWEST, strict=True)
    broken = copy.deepcopy(found[0])
    broken["spec"]["template"]["spec"]["containers"][0]["arguments"] = []
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, NEWEST, strict=True)
    broken = copy.deepcopy(found[0])
    broken["spec"]["parallelism"] = "four"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, NEWEST, strict=True)


def test_the_job_has_an_index_for_each_worker_whose_preemption_is_no_failure() -> None:
    job, *_ = documents(engine(), command())
    spec = job["spec"]
    assert (spec["completionMode"], spec["completions"], spec["parallelism"]) == ("Indexed", 4, 4)
    first, second, third = spec["podFailurePolicy"]["rules"]
    assert first["onPodConditions"][0]["type"] == "DisruptionTarget"
    assert (second["action"], second["onExitCodes"]["values"]) == ("Ignore", [130, 143])
    assert (third["action"], third["onExitCodes"]["values"]) == ("FailIndex", [2])
    pod = spec["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    assert pod["terminationGracePeriodSeconds"] > STOP_GRACE_S
    (container,) = pod["containers"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == "1"
    assert container["args"][:3] == ["worker", "--study", "etth-rmsnorm,etth-original"]
    assert container["args"][3:] == ["--keep-alive", "--gpu", "free"]


def test_pods_have_no_rights_and_write_where_they_must_only() -> None:
    for each in documents(engine(), command())[:2]:
        pod = each["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsNonRoot"]
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not pod["automountServiceAccountToken"]
        (container,) = pod["containers"]
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert all("hostPath" not in volume for volume in pod["volumes"])


def test_no_password_is_printed() -> None:
    text = engine().in_words(command())
    assert PASSWORD[:4] not in text
    assert "dbhost" not in text
    job, deployment, _ = yaml.safe_load_all(text)
    for each in (job, deployment):
        (container,) = each["spec"]["template"]["spec"]["containers"]
        (address,) = (one for one in container["env"] if one["name"] == "TUNER_STORAGE")
        assert address["valueFrom"]["secretKeyRef"]["name"] == "tuner-database"


@given(st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp", "Cf"]), min_size=1))
def test_the_name_of_a_study_is_text_and_nothing_else(study: str) -> None:
    try:
        found = documents(engine(), command(study))
    except UsageError:
        assert not study.isprintable()
        return
    assert [each["kind"] for each in found] == ["Job", "Deployment", "Service"]
    argument = found[0]["spec"]["template"]["spec"]["containers"][0]["args"][2]
    assert argument.replace("$$", "$") == study
    assert "$(" not in argument.replace("$$", "")
    assert re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,48}[a-z0-9])?", found[0]["metadata"]["name"])


def test_variables_in_a_name_are_not_replaced() -> None:
    job, *_ = documents(engine(), command("$(TUNER_STORAGE)"))
    assert job["spec"]["template"]["spec"]["containers"][0]["args"][2] == "$$(TUNER_STORAGE)"


def test_another_job_has_another_name() -> None:
    names = {
        job_name(studies, spec) for studies in ("a", "A", "a b", "日本") for spec in ("1", "2")
    }
    assert len(names) == 8
    one, other = (documents(engine(gpus=n), command())[0]["metadata"]["name"] for n in ("1", "2"))
    assert one != other


def test_the_data_is_on_the_claim_or_at_a_url_and_the_study_knows_the_rest() -> None:
    told = command(task=Path("/home/ann/shops.toml"))
    with pytest.raises(UsageError, match="no pod has the data of /home/ann/shops"):
        engine().in_words(told)
    for where, words in (
        (documents(engine("data-claim=shops"), told), "--data-dir /data"),
        (documents(engine(), command(data_dir="https://a.org/x")), "--data-dir https://a.org/x"),
    ):
        arguments = " ".join(where[0]["spec"]["template"]["spec"]["containers"][0]["args"])
        assert words in arguments
        assert "--task" not in arguments
    assert "--data-dir" not in engine().in_words(command(data_dir="/home/ann/data"))


def test_cores_of_a_node_go_to_one_worker_unless_workers_can_lock_them() -> None:
    cpu: dict[str, Any] = {"gpus": None, "cpu": True, "workers": 2}
    alone, shared = (
        documents(engine(more, **cpu), command())[0]["spec"]["template"]["spec"]
        for more in ("", "device-locks=/run/tuner-device-locks")
    )
    assert "podAntiAffinity" in alone["affinity"]
    assert "affinity" not in shared
    assert "/run/tuner-device-locks" in [
        mount["mountPath"] for mount in shared["containers"][0]["volumeMounts"]
    ]


@pytest.mark.parametrize(
    ("choice", "what"),
    [
        ({"print_only": False}, "add --print"),
        ({"gpus": None}, "say how many GPUs"),
        ({"gpus": "all"}, "how many GPUs"),
        ({"gpus": None, "cpu": True}, "say how many workers"),
    ],
)
def test_what_cannot_be_printed_is_refused(choice: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        engine(**choice)


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ("namespace=Lab", "namespace"),
        ("namespace=a\n---", "namespace"),
        ("memory=lots", "memory"),
        ("data-claim=../etc", "data-claim"),
        ("device-locks=run", "device-locks"),
        ("data_claim=x", "its keys are image, namespace, secret, dashboard-secret, data-claim"),
    ],
)
def test_what_kubernetes_could_misread_is_refused(more: str, what: str) -> None:
    with pytest.raises(UsageError, match=what):
        engine(more)


def test_a_file_is_no_database_for_pods() -> None:
    with pytest.raises(UsageError, match="share a PostgreSQL"):
        engine().check(parse_url("sqlite:///storage/tuner.db"))
