"""Whether an exception says that memory ran out: torch has a class for it, others only words."""

from __future__ import annotations

from collections.abc import Iterator

import torch

_WORDS = (
    "can't allocate memory",
    "CUDA error: out of memory",
    "Triton Error [CUDA]: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
)
"""How the CPU's allocator, CUDA's libraries and Triton say it, without torch's class."""


def out_of_memory(error: BaseException) -> BaseException | None:
    """The exception that says that memory ran out, of device or host; None where none does.

    It is `error`, or one that was being handled when `error` was raised.

    What is cleaned up when memory ran out may fail in turn, and hide the reason: the end of a CUDA
    graph's capture that was cut short raises an error of its own.
    """
    return next((each for each in _with_its_causes(error) if _says_so(each)), None)


def _says_so(error: BaseException) -> bool:
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(
        words in str(error) for words in _WORDS
    )


def _with_its_causes(error: BaseException) -> Iterator[BaseException]:
    """As a traceback would show them, the last first."""
    seen: set[int] = set()
    each: BaseException | None = error
    while each is not None and id(each) not in seen:
        seen.add(id(each))
        yield each
        each = each.__cause__ or (None if each.__suppress_context__ else each.__context__)
