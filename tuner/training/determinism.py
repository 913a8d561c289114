"""What a training sets in its process and puts back: random state and arithmetic of products."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch

from tuner.config import Precision


@contextlib.contextmanager
def seeded(seed: int, device: torch.device) -> Iterator[torch.Generator]:
    """Seeds torch for one training and yields a generator on the device for its shuffles.

    The caller's random state, on the CPU and on this device, is untouched afterwards; other devices
    are never touched. Weights are drawn on the CPU, so that one seed starts every device from the
    same network.
    """
    with torch.random.fork_rng(devices=_cuda_indices(device)):
        torch.default_generator.manual_seed(seed)
        if device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        # A seed of its own: the shuffles must not use the initial weights' random numbers.
        shuffle_seed = int(torch.randint(2**62, (), dtype=torch.int64))
        yield torch.Generator(device=device).manual_seed(shuffle_seed)


@contextlib.contextmanager
def unchanged_randomness(device: torch.device) -> Iterator[None]:
    """The state of the random generators, CPU and device, is afterwards what it was before."""
    with torch.random.fork_rng(devices=_cuda_indices(device)):
        yield


@contextlib.contextmanager
def arithmetic(precision: Precision) -> Iterator[None]:
    """How products of fp32 tensors are computed: in fp32, or in TF32 if asked for; repeatably.

    bf16 is a matter of the forward pass (autocast); what stays fp32 there is computed in fp32.
    """
    cudnn: Any = torch.backends.cudnn
    mkldnn: Any = torch.backends.mkldnn
    wanted = "tf32" if precision is Precision.TF32 else "ieee"
    settings = [
        (torch.backends.cuda.matmul, wanted),
        (cudnn.conv, wanted),
        (mkldnn.matmul, "ieee"),
        (mkldnn.conv, "ieee"),
    ]
    before = [(backend, backend.fp32_precision) for backend, _ in settings]
    repeatable, searching = cudnn.deterministic, cudnn.benchmark
    try:
        for backend, value in settings:
            backend.fp32_precision = value
        cudnn.deterministic, cudnn.benchmark = True, False
        yield
    finally:
        for backend, value in before:
            backend.fp32_precision = value
        cudnn.deterministic, cudnn.benchmark = repeatable, searching


def exact_fp32() -> contextlib.AbstractContextManager[None]:
    """Products of fp32 tensors are computed in fp32 (no TF32, no bf16 passes), repeatably."""
    return arithmetic(Precision.FP32)


def _cuda_indices(device: torch.device) -> list[int]:
    if device.type != "cuda":
        return []
    return [torch.cuda.current_device() if device.index is None else device.index]
