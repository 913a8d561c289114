"""Which devices a launch runs on, and what it says when the choice was its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tuner.devices import CpuCores, Gpu
from tuner.devices.cpu import available_cores
from tuner.errors import UsageError
from tuner.launch import DeviceChoice, where

GPUS = tuple(Gpu(i, uuid, "Example GPU", i) for i, uuid in enumerate(("GPU-aaaa-1", "GPU-bbbb-2")))


@pytest.fixture
def two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(where, "list_gpus", lambda environment: GPUS)


@pytest.fixture
def no_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(where, "list_gpus", lambda environment: ())


def choose(**flags: Any) -> tuple[Sequence[Gpu | CpuCores], str]:
    return where.choose_devices(DeviceChoice(**flags), environment={})


def test_without_flags_all_gpus_work_and_that_is_said(two_gpus: None) -> None:
    assert choose() == (GPUS, "neither --gpus nor --cpu given: using all 2 GPUs")


def test_without_flags_and_gpus_the_cpu_works_and_that_is_said(no_gpus: None) -> None:
    devices, notice = choose()
    each = len(available_cores()) // len(devices)
    for device in devices:
        assert isinstance(device, CpuCores)
        assert len(device.cores) == each
    assert len(devices) == min(where.DEFAULT_CPU_WORKERS, len(available_cores()))
    assert notice.startswith("no GPU is visible: running on the CPU")


def test_what_was_asked_for_is_no_news(two_gpus: None) -> None:
    assert choose(gpus="1") == ((GPUS[1],), "")
    assert choose(cpu=True)[1] == choose(cpu=True, workers=1)[1] == ""


def test_workers_alone_mean_the_cpu_and_no_gpu_is_denied(two_gpus: None) -> None:
    _, notice = choose(workers=1)
    assert notice.startswith("--workers belongs to --cpu: running on the CPU")


@pytest.mark.parametrize(
    "flags",
    [
        {"gpus": "0,0"},
        {"gpus": ""},
        {"gpus": "2"},
        {"gpus": "0", "cpu": True},
        {"gpus": "0", "workers": 1},
    ],
)
def test_contradictions_and_wrong_lists_are_refused(
    flags: dict[str, object], two_gpus: None
) -> None:
    with pytest.raises(UsageError, match="--gpus"):
        choose(**flags)
