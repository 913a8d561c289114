"""Where the kernels of a step can start before the last one has ended."""

from __future__ import annotations

import sys
from types import SimpleNamespace

import pytest
import torch

from tuner.kernels.launch_order import why_not_early

CUDA = torch.device("cuda", 0)


@pytest.mark.parametrize(
    ("capability", "version", "why_not"),
    [
        ((9, 0), "3.6.0", None),
        ((10, 0), "3.10.0+git1a2b3c", None),
        ((8, 9), "3.6.0", "compute capability 9.0 on, this GPU has 8.9"),
        ((9, 0), "3.3.1", "triton 3.3.1 cannot start a kernel early, 3.4 can"),
    ],
)
def test_it_takes_a_gpu_and_a_triton_that_are_new_enough(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], version: str, why_not: str | None
) -> None:
    """Under whatever name that Triton was installed."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    monkeypatch.setitem(sys.modules, "triton", SimpleNamespace(__version__=version))
    assert (why_not_early(CUDA) or "").endswith(why_not or "")
    assert (why_not_early(CUDA) is None) == (why_not is None)


def test_nothing_starts_early_on_a_cpu_or_in_the_interpreter(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert why_not_early(torch.device("cpu")) is not None
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    assert why_not_early(CUDA) is not None
