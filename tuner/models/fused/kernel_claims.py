"""Each kernel is compiled by one process at a time; whoever else needs it waits for the result.

A claim is a lock on the kernel's own folder in Triton's cache. The system frees it with the process
that holds it, however that ends, and no file is left. Where a folder cannot be made or locked, in a
cache that is read-only, say, everybody compiles for himself, as without claims.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tuner.models.fused.compile_only import Kernel, kernel_of

LOOK_S = 0.02
PATIENCE_S = 120.0
"""Beyond what any kernel takes: whoever holds its claim has been stopped."""


class BusyError(Exception):
    """Another process compiles this kernel just now."""


def claim(kernel: Kernel, cache: Path) -> int | None:
    """A file descriptor that holds the claim until it is closed; None where there are no claims.

    Raises:
        BusyError: another process holds it.
    """
    try:
        folder = cache / kernel.folder
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        raise BusyError(kernel.name) from None
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def claim_in_turn(kernel: Kernel, cache: Path) -> int | None:
    """The claim as soon as it is free; None where none is needed: it is compiled, or waits long."""
    until = time.monotonic() + PATIENCE_S
    while not kernel.is_in(cache) and time.monotonic() < until:
        try:
            return claim(kernel, cache)
        except BusyError:
            time.sleep(LOOK_S)
    return None


@contextlib.contextmanager
def one_at_a_time() -> Iterator[None]:
    """What Triton compiles in here is compiled by nobody else meanwhile, or was a moment ago."""
    from triton import knobs
    from triton.runtime import driver

    held: list[int] = []
    before = knobs.runtime.jit_cache_hook

    def release() -> None:
        while held:
            os.close(held.pop())

    def claim_first(*, fn: Any, compile: Mapping[str, Any], **more: Any) -> Any:  # noqa: A002 - Triton's name
        release()  # of the kernel before, which is compiled by now
        with contextlib.suppress(Exception):  # without a claim it takes longer, and works
            kernel = kernel_of(fn.jit_function, compile, driver.active.get_current_target())
            claimed = claim_in_turn(kernel, Path(knobs.cache.dir))
            held.extend(() if claimed is None else (claimed,))
        return before(fn=fn, compile=compile, **more) if before is not None else None

    knobs.runtime.jit_cache_hook = claim_first
    try:
        yield
    finally:
        knobs.runtime.jit_cache_hook = before
        release()
