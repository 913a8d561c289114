"""A network's Triton launches, recorded: to be started again one by one, or compiled for a device that is not there."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import triton

from tuner.kernels.kernel_launch import without_warp_groups


class Launch(NamedTuple):
    """A kernel as the network started it."""

    name: str
    kernel: Any
    grid: Any
    arguments: tuple[Any, ...]
    options: dict[str, Any]

    def again(self) -> None:
        self.kernel.run(*self.arguments, grid=self.grid, warmup=False, **self.options)

    def compiled(self) -> Any:
        with without_warp_groups():
            return self.kernel.run(*self.arguments, grid=self.grid, warmup=True, **self.options)


class Hopper:
    """A device to compile for, where there is none."""

    def get_current_target(self) -> Any:
        return triton.backends.compiler.GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:  # noqa: ARG002
        return 0


@contextmanager
def recorded(*, started: bool) -> Iterator[list[Launch]]:
    """In here launches are recorded, and started too where there is a device."""
    launches: list[Launch] = []
    of_class = triton.runtime.jit.JITFunction
    plain = of_class.__getitem__

    def record(kernel: Any, grid: Any) -> Callable[..., None]:
        def launch(*arguments: Any, **options: Any) -> None:
            name = kernel.fn.__name__ + (f" {options['B'].width}" if "B" in options else "")
            launches.append(Launch(name, kernel, grid, arguments, options))
            if started:
                launches[-1].again()

        return launch

    of_class.__getitem__ = record
    try:
        yield launches
    finally:
        of_class.__getitem__ = plain


def resources(launch: Launch) -> str:
    """Registers, bytes of stack (spills) and shared memory, warps; instructions of the tensor cores and of fp32."""
    kernel = launch.compiled()
    tools = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        usage = subprocess.run(
            [tools / "cuobjdump", "-res-usage", file.name],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        code = subprocess.run(
            [tools / "nvdisasm", "-c", file.name], capture_output=True, text=True, check=True
        ).stdout
    registers, stack = (re.search(rf"{key}:(\d+)", usage) for key in ("REG", "STACK"))
    assert registers is not None
    assert stack is not None
    counts = [len(re.findall(rf"\b{name}", code)) for name in ("HMMA", "HGMMA", "FFMA")]
    figures = [registers[1], stack[1], kernel.metadata.shared, kernel.metadata.num_warps, *counts]
    return " | ".join(str(figure) for figure in figures)
