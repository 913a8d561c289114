"""Picking GPUs: what people type in `--gpus`, and what `CUDA_VISIBLE_DEVICES` leaves visible."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tuner.devices import gpu
from tuner.devices.gpu import Gpu, _visible, compute_capability, pick_gpus
from tuner.errors import UsageError

TWO = (Gpu(0, "GPU-aaaa-1", "Example GPU", 0), Gpu(1, "GPU-bbbb-2", "Example GPU", 1))
UUIDS = ("GPU-aaaa-1", "GPU-bbbb-2", "GPU-bbbb-3")


@pytest.mark.parametrize(
    ("wanted", "picked"),
    [
        ("0", (0,)),
        ("1", (1,)),
        ("0,1", (0, 1)),
        ("1,0", (1, 0)),
        (" 1 , 0 ", (1, 0)),
        ("all", (0, 1)),
    ],
)
def test_gpus_are_picked_in_the_order_given(wanted: str, picked: tuple[int, ...]) -> None:
    assert tuple(gpu.index for gpu in pick_gpus(wanted, TWO)) == picked


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        ("2", ("no GPU 2", "there are 0, 1", "--cpu")),
        ("0,0", ("GPU 0 is named twice", "one worker")),
        ("1,01", ("GPU 01 is named twice",)),
        ("", ("empty", "0,1 or 'all'")),
        (",", ("empty", "0,1 or 'all'")),
        ("0,", ("'' is no GPU index", "0,1 or 'all'")),
        ("-1", ("'-1' is no GPU index",)),
        ("1.0", ("'1.0' is no GPU index",)),
        ("GPU-aaaa-1", ("'GPU-aaaa-1' is no GPU index",)),
        ("²", ("'²' is no GPU index",)),
        ("all,0", ("'all' is no GPU index",)),
    ],
)
def test_a_wrong_list_is_refused_in_one_line(wanted: str, says: tuple[str, ...]) -> None:
    with pytest.raises(UsageError) as refused:
        pick_gpus(wanted, TWO)
    message = str(refused.value)
    assert message.startswith("--gpus: ")
    assert "\n" not in message
    for words in says:
        assert words in message


@pytest.mark.parametrize("wanted", ["0", "all"])
def test_without_any_gpu_there_is_no_silent_fall_back(wanted: str) -> None:
    with pytest.raises(UsageError, match=r"^--gpus.*: no GPU is visible here; run with --cpu"):
        pick_gpus(wanted, ())


def test_the_flag_that_was_given_is_named() -> None:
    with pytest.raises(UsageError, match=r"^--gpu: there is no GPU 7"):
        pick_gpus("7", TWO, flag="--gpu")


@pytest.mark.parametrize(
    ("setting", "visible"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("0", [0]),
        ("2,0", [2, 0]),
        (" 2 , 0 ", [2, 0]),
        ("0,7,1", [0]),  # CUDA stops at the first that is not there
        ("-1", []),
        ("1,-1,0", [1]),
        ("GPU-aaaa-1", [0]),
        ("GPU-a", [0]),
        ("GPU-bbbb-3,0", [2, 0]),
        ("1,GPU-bbbb-2,0", [1, 0]),
        ("²", []),
        ("nonsense", []),
        ("NoDevFiles", []),
    ],
)
def test_cuda_visible_devices_is_read_as_cuda_reads_it(
    setting: str | None, visible: list[int]
) -> None:
    assert _visible(UUIDS, setting) == visible


class Library:
    """NVML with one GPU."""

    class NVMLError(Exception):
        """As NVML raises it."""

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> str:  # noqa: N802 - NVML's name
        if uuid != TWO[0].uuid:
            raise self.NVMLError
        return f"handle of {uuid}"

    def nvmlDeviceGetCudaComputeCapability(self, handle: str) -> list[int]:  # noqa: N802
        assert handle == f"handle of {TWO[0].uuid}"
        return [9, 0]


@pytest.mark.parametrize(
    ("library", "asked", "capability"),
    [(Library(), TWO[0], (9, 0)), (Library(), TWO[1], None), (None, TWO[0], None)],
)
def test_nvml_says_what_kernels_are_compiled_for(
    library: Any, asked: Gpu, capability: tuple[int, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    @contextmanager
    def nvml() -> Iterator[Any]:
        yield library

    monkeypatch.setattr(gpu, "nvml", nvml)
    assert compute_capability(asked) == capability
