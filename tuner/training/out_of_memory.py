"""Whether an exception says that memory ran out: PyTorch has a class for it, the libraries beneath only words."""

from __future__ import annotations

import torch

_WORDS = (
    "can't allocate memory",
    "CUDA error: out of memory",
    "Triton Error [CUDA]: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)
"""How the CPU's allocator, CUDA's libraries and Triton say it, which do not raise `torch.OutOfMemoryError`."""


def is_out_of_memory(error: Exception) -> bool:
    """Whether the device's or the host's memory ran out."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(words in str(error) for words in _WORDS)
