"""What a launch may be asked for from Python: what is refused, with which words, and what is taken
as it is meant."""

from __future__ import annotations

from typing import Any

import pytest

import tuner
from tuner import launch
from tuner.config import Backend
from tuner.errors import UsageError
from tuner.launch.request import checked
from tuner.launch.retune_request import RetuneRequest
from tuner.launch.verification import VerificationRequest
from tuner.spec.objectives import TimeObjective

Settings, Policy, Devices = launch.StudySettings, launch.SearchPolicy, launch.DeviceChoice


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"trials": 0}, "LaunchRequest: trials: should be greater than or equal to 1, got 0"),
        ({"searches": 0}, "LaunchRequest: searches: should be greater than or equal to 1, got 0"),
        ({"searches": 101}, "LaunchRequest: searches: should be less than or equal to 100, got"),
        ({"study": "n" * 199, "searches": 2}, "cannot name a study"),
        ({"timeout_s": -1.0}, "LaunchRequest: timeout_s: should be greater than 0, got -1.0"),
        ({"devices": Devices(workers=0)}, "devices.workers: should be greater than or equal to 1"),
        ({"settings": Settings(target_val_loss=0.2)}, "belong together; give both or none"),
        ({"settings": Settings(precision="tf32")}, "an arithmetic of CUDA GPUs"),
        ({"variants": ["rmsnorm", ""]}, "holds an empty name"),
        ({"variants": []}, "the list is empty"),
        ({"variants": "rmsnorm,rmsnorm"}, "'rmsnorm' is named twice"),
        ({"variants": "rmsnrm"}, "did you mean 'rmsnorm'"),
        ({"variants": ["rmsnorm", "original"], "study": "mine"}, "names one study"),
        ({"study": "a,b"}, "cannot name a study"),
        ({"study": "group:a"}, "begins as the name of a group does"),
        ({"study": "study:a"}, "begins as the name of a group does"),
        ({"devices": Devices(cpu=True, gpus="0")}, "exclude each other"),
        ({"storage": "nonsense"}, "nonsense"),
    ],
)
def test_what_cannot_be_is_one_sentence_before_anything_is_written(
    fields: dict[str, Any], said: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    request: dict[str, Any] = {
        "variants": "rmsnorm",
        "task": "demo",
        "devices": Devices(cpu=True),
    } | fields
    with pytest.raises(UsageError) as refused:
        launch.run(launch.LaunchRequest(**request))
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


TRUTHS: dict[str, tuple[Any, str]] = {
    "trials": (launch.LaunchRequest(variants="a", trials=True), "LaunchRequest: trials"),
    "searches": (launch.LaunchRequest(variants="a", searches=False), "LaunchRequest: searches"),
    "workers": (Devices(workers=True), "DeviceChoice: workers"),
    "retune": (RetuneRequest(variant="a", confirm_seeds=True), "RetuneRequest: confirm_seeds"),
    "verification": (VerificationRequest(variants="a", top=True), "VerificationRequest: top"),
}
SPANS: dict[str, tuple[Any, str]] = {
    "timeout": (launch.LaunchRequest(variants="a", timeout_s=True), "LaunchRequest: timeout_s"),
    "margin": (RetuneRequest(variant="a", margin=False), "RetuneRequest: margin"),
    "its margin": (VerificationRequest(variants="a", margin=True), "VerificationRequest: margin"),
}


@pytest.mark.parametrize(
    ("request_", "where", "expected"),
    [(*each, "a whole number such as 3") for each in TRUTHS.values()]
    + [(*each, "a number such as 0.01") for each in SPANS.values()],
    ids=[*TRUTHS, *SPANS],
)
def test_a_truth_is_no_number(request_: Any, where: str, expected: str) -> None:
    with pytest.raises(UsageError) as refused:
        checked(request_)
    assert str(refused.value) in {
        f"{where}: {expected} is expected, got {truth}" for truth in (True, False)
    }


def test_a_truth_is_taken_where_one_is_asked_for() -> None:
    asked = launch.LaunchRequest(
        variants="a",
        trust=True,
        settings=Settings(checkpoint_activations=False),
        policy=Policy(prune=True),
    )
    assert checked(asked) == asked


def test_devices_are_not_chosen_by_a_truth() -> None:
    with pytest.raises(UsageError, match="workers: a whole number such as 3 is expected, got True"):
        launch.choose_devices(Devices(cpu=True, workers=True), environment={})


def test_words_are_taken_for_what_they_name() -> None:
    asked = launch.LaunchRequest(
        variants=("rmsnorm", "original"),
        settings=Settings(backend="eager", time_objective="total_s"),
    )
    found = checked(asked)
    assert found.settings.backend is Backend.EAGER
    assert found.settings.time_objective is TimeObjective.TOTAL
    assert found.settings.said().keys() == {"backend", "time_objective"}


def test_a_limit_that_is_lifted_is_said_and_what_is_not_named_is_not() -> None:
    assert Policy(max_mql=None, prune=False).said() == {"max_mql": None, "prune": False}
    assert Policy().said() == {}


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"sampler": "magic"}, "SearchPolicy: sampler: should be 'auto', 'kg'"),
        ({"max_time_s": 0.0}, "SearchPolicy: max_time_s: should be greater than 0, got 0.0"),
        ({"seed": True}, "SearchPolicy: seed: a whole number such as 3 is expected, got True"),
        ({"max_gpu_s": True}, "SearchPolicy: max_gpu_s: a number such as 0.01 is expected, got"),
        ({"patience": 3}, "SearchPolicy: patience: Extra inputs are not permitted, got 3"),
    ],
)
def test_a_setting_that_cannot_be_is_one_sentence(fields: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageError) as refused:
        Policy(**fields)
    assert str(refused.value).startswith(said)


def test_the_package_is_one_of_tuners_names() -> None:
    assert tuner.launch is launch
    assert "launch" in dir(tuner)
    assert callable(launch.run)
