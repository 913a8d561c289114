"""Memory of a CPU training stays with the process between steps.

A step allocates and frees some hundred tensors of megabytes. glibc hands such blocks back to the
system and asks for them again: on the reference job 5,000 page faults a step, an eighth of its
time.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools

# From glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3

_LARGEST_KEPT = 32 << 20
"""Bytes: glibc's upper limit for the size from which a block is mapped and unmapped alone."""

_NEVER = 2**31 - 1
"""Bytes free at the top of the heap before it is given back."""


@functools.cache
def keep_freed_memory() -> bool:
    """Tells glibc, for the whole process, to keep what is freed; True where that was taken.

    Elsewhere (musl, macOS, Windows) nothing happens: their allocators have no such settings.
    """
    try:
        mallopt = ctypes.CDLL("libc.so.6").mallopt
    except (OSError, AttributeError):
        return False
    return bool(mallopt(_M_MMAP_THRESHOLD, _LARGEST_KEPT)) and bool(
        mallopt(_M_TRIM_THRESHOLD, _NEVER)
    )


def give_back_freed_memory() -> None:
    """Returns to the system what a finished training has left free."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL("libc.so.6").malloc_trim(0)
