"""Kernels compiled and not launched: for a GPU that need not be there, on which nothing happens.

What launches kernels runs as always, on tensors of the CPU. Triton asks a driver for its target,
and a hook whether a kernel is to be compiled: both are ours in `collected`, and each kernel is
noted there with all that its entry in Triton's cache is named after. No CUDA context is made.
"""

from __future__ import annotations

import base64
import contextlib
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.kernels.launch_order import Launching, NoStream, why_never_early

LONGEST_NAME = 150
"""Of a kernel's files in Triton's cache; what is longer is cut."""


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """What Triton compiles one kernel from.

    Attributes:
        name: the function's.
        key: SHA-256 of all that follows and of the compiler, as Triton computes it.
        source: Triton's own record of the function, its arguments' types and its constants.
        options: of the compiler, for this kernel.
        target: Triton's own record of the GPU.
        environment: all variables as they were when it was to be launched; the compiler reads some.
    """

    name: str
    key: str
    source: Any
    options: Mapping[str, Any]
    target: Any
    environment: Mapping[str, str]

    @property
    def folder(self) -> str:
        """Its name in Triton's cache: the key in base 32."""
        return base64.b32encode(bytes.fromhex(self.key)).decode("ascii").rstrip("=")

    @property
    def marker(self) -> str:
        """The file in the cache that Triton writes last, relative to it."""
        return f"{self.folder}/__grp__{self.name[:LONGEST_NAME]}.json"

    def is_in(self, cache: Path) -> bool:
        """Whether it is compiled."""
        return (cache / self.marker).exists()

    def compile(self) -> None:
        """Into Triton's cache, with the environment of then: for a process of its own.

        What Triton builds with a C compiler before a first launch is built, too, where it can be:
        that needs the library of the GPU's driver. Loading that touches no device.
        """
        import triton
        from triton.backends.nvidia.driver import CudaLauncher

        os.environ.clear()
        os.environ.update(self.environment)
        made = triton.compile(self.source, target=self.target, options=dict(self.options))
        # Triton 3.6 builds a launcher for each kernel; 3.7 has one for all, and refuses here.
        with contextlib.suppress(Exception):
            CudaLauncher(self.source, made.metadata)


def build_driver_module() -> None:
    """What Triton builds with a C compiler before its first launch, for all kernels.

    It needs a C compiler and the library of the GPU's driver; without them nothing is built. That
    library is loaded, which touches no device: for a process of its own.
    """
    from triton.backends.nvidia.driver import CudaUtils

    with contextlib.suppress(Exception):
        CudaUtils()


def kernel_of(function: Any, told: Mapping[str, Any], target: Any) -> Kernel:
    """The kernel that Triton's hook before compiling tells of."""
    from triton._C.libtriton import get_cache_invalidating_env_vars
    from triton.compiler import ASTSource, make_backend
    from triton.runtime.cache import get_cache_key

    source = ASTSource(function, told["signature"], told["constants"], told["configs"][0])
    # All options stand in what Triton gives for compiling again; JSON makes lists of tuples.
    given = json.loads(told["specialization_data"])["options"]
    options = {name: tuple(v) if isinstance(v, list) else v for name, v in given.items()}
    backend = make_backend(target)
    parsed = backend.parse_options(dict(options))
    text = get_cache_key(source, backend, parsed, env_vars=get_cache_invalidating_env_vars())
    key = hashlib.sha256(text.encode("utf-8")).hexdigest()
    return Kernel(source.name, key, source, options, target, dict(os.environ))


@contextlib.contextmanager
def collected(capability: tuple[int, int]) -> Iterator[dict[str, Kernel]]:
    """In here kernels are not launched: they come into the result, by key, in their order.

    Whatever should be made of their results is made of memory as it happens to be.

    Args:
        capability: the compute capability to compile for, (9, 0) for Hopper.
    """
    from triton import knobs
    from triton.runtime import driver

    device = _NoDevice(capability)
    kernels: dict[str, Kernel] = {}
    known: set[tuple[str, str]] = set()

    def note(*, key: str, fn: Any, compile: Mapping[str, Any], **_: Any) -> bool:  # noqa: A002 - Triton's name
        if (fn.name, key) not in known:
            known.add((fn.name, key))
            kernel = kernel_of(fn.jit_function, compile, device.get_current_target())
            kernels.setdefault(kernel.key, kernel)
        return True  # which Triton takes for: leave it

    before = driver._active, knobs.runtime.jit_cache_hook  # noqa: SLF001 - asking for it would make one
    driver.set_active(device)
    knobs.runtime.jit_cache_hook = note
    try:
        yield kernels
    finally:
        driver.set_active(before[0])
        knobs.runtime.jit_cache_hook = before[1]


def launching_for(capability: tuple[int, int]) -> Launching:
    """How kernels follow each other on GPUs of a capability, where none is launched."""
    return Launching(early=why_never_early(capability) is None, side=NoStream())


class _NoDevice:
    """Answers Triton's questions about a device that is not there."""

    def __init__(self, capability: tuple[int, int]) -> None:
        self._capability = capability[0] * 10 + capability[1]

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self._capability, 32)

    def get_current_device(self) -> int:
        """A number that no device has: what is kept for it is never taken for another's."""
        return -self._capability

    def get_current_stream(self, device: int) -> int:
        del device
        return 0


# Each kernel is compiled by one process at a time; whoever else needs it waits for the result.


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
