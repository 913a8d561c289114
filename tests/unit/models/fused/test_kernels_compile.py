"""Every fused kernel compiles for Hopper, at the reference job's sizes, and fits its registers."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tuner.config import ModelShapes
from tuner.kernels import FusedTSMixer
from tuner.kernels.launch_order import Launching
from tuner.models.tsmixer import DESIGNS, TSMixer

triton = pytest.importorskip("triton")
if triton.knobs.runtime.interpret:
    pytest.skip("kernels are interpreted in this process", allow_module_level=True)

SHAPES = ModelShapes(
    input_size=168, horizon=24, n_targets=7, n_past=0, n_future=6, n_static=1, n_quantiles=17
)
SHARED = 227 * 1024
"""Bytes of shared memory that a program can have on Hopper."""


class Hopper:
    """A device that kernels can be compiled for, and not started on."""

    def get_current_target(self) -> Any:
        return triton.backends.compiler.GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return -1

    def get_current_stream(self, device: int) -> int:
        return 0


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> dict[str, Any]:
    """Instead of being started, kernels are compiled and kept here: all, or the one that is
    named."""
    kernels: dict[str, Any] = {}
    alone = getattr(request, "param", None)

    def launcher(kernel: Any, grid: Any) -> Any:
        def compile_only(*args: Any, **options: Any) -> None:
            name = kernel.fn.__name__ + (f"_{options['B'].width}" if "B" in options else "")
            if alone not in (None, name):
                return
            kernels[name] = kernel.run(*args, grid=grid, warmup=True, **options)

        return compile_only

    monkeypatch.setattr(triton.runtime.jit.JITFunction, "__getitem__", launcher)
    monkeypatch.setattr(triton.runtime.driver, "_active", Hopper())
    return kernels


def said_by(tool: str, *arguments: object) -> str:
    """What one of the programs that Triton brings along prints."""
    path = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / tool
    return subprocess.run(
        [path, *map(str, arguments)], capture_output=True, text=True, check=True
    ).stdout


def strange_uses_of_the_stack(code: str) -> list[str]:
    """Instructions that use R1, the stack's pointer, but not to find or make room on the stack."""
    uses = [line.strip() for line in re.findall(r"/\*[0-9a-f]{4,}\*/\s+(\S.*\bR1\b.*?);", code)]
    fair = re.compile(
        r"(@\S+ )?((LDC|MOV|IMAD\.MOV\.U32) R1, .*|(VIADD|IADD3) R1, R1, .*"
        r"|(LDL|STL)\S* .*\[R1(\+\S+)?\].*)"
    )
    return [use for use in uses if not fair.fullmatch(use)]


@pytest.mark.slow
def test_every_kernel_compiles_for_hopper_without_spilling(
    compiled: dict[str, Any], tmp_path: Path
) -> None:
    model = TSMixer(SHAPES, DESIGNS["original"], hidden_size=64, dropout=0.1)
    batch = torch.zeros(256, 168, 13), torch.zeros(256, 24, 6), torch.zeros(256, 1)
    fused = FusedTSMixer(model, launching=Launching(early=True))
    fused(*batch).sum().backward()
    train(fused, batch)
    assert set(compiled) == {
        *("draw_masks", "enter_forward", "block_forward_192", "block_forward_128", "head_forward"),
        *("head_backward", "block_backward_192", "block_backward_128", "enter_backward"),
        *("sum_products", "sum_columns", "sum_splits", "head_train"),
    }
    for name, kernel in compiled.items():
        cubin = tmp_path / f"{name}.cubin"
        cubin.write_bytes(kernel.asm["cubin"])
        usage = said_by("cuobjdump", "-res-usage", cubin)
        stack = re.search(r"STACK:(\d+)", usage)
        assert stack is not None, usage
        assert stack[1] == "0", f"{name} spills: {usage}"
        assert kernel.metadata.shared <= SHARED, name
        # A maximum that prefers numbers would hide a broken weight behind a ReLU; the
        # interpreter knows no such maximum.
        assert "max.f32" not in kernel.asm["ptx"], name
        assert_follows(name, kernel.asm["ptx"])


def train(fused: FusedTSMixer, batch: tuple[Tensor, Tensor, Tensor]) -> None:
    from tuner.kernels.launch_order import Scoring, Squares

    losses, done = torch.zeros(256, dtype=torch.float64), torch.zeros((), dtype=torch.int64)
    scoring = Scoring(torch.zeros(256, 24, 7), torch.zeros(17), losses, done)
    fused.gradient(fused.begin(256), batch, scoring, Squares(torch.zeros(256), torch.zeros(())))


def assert_follows(name: str, ptx: str) -> None:
    """Before it waits for the one before, a kernel writes nothing, reads tables; then lets go."""
    before, *ways = ptx.split("griddepcontrol.wait")
    assert len(ways) == (2 if name == "sum_products" else 1), name
    assert "st.global" not in before, name
    assert "cp.async" not in before, name
    assert "ld.global" not in before or name in ("sum_products", "sum_columns", "sum_splits"), name
    assert "griddepcontrol.launch_dependents" not in before, name
    assert all(way.count("griddepcontrol.launch_dependents") == 1 for way in ways), name


@pytest.mark.slow
@pytest.mark.parametrize("compiled", ["enter_forward"], indirect=True)
def test_planes_of_64_hours_are_where_the_kernels_look_for_them(
    compiled: dict[str, Any], tmp_path: Path
) -> None:
    """With wgmma ptxas 12.8 took the stack's pointer for an operand: an illegal memory access."""
    shapes = replace(SHAPES, horizon=64)
    model = TSMixer(shapes, DESIGNS["original"], hidden_size=64, dropout=0.1, n_blocks=1)
    with torch.no_grad():
        FusedTSMixer(model)(torch.zeros(2, 168, 13), torch.zeros(2, 64, 6), torch.zeros(2, 1))
    kernel, cubin = compiled["enter_forward"], tmp_path / "kernel.cubin"
    assert "wgmma" not in kernel.asm["ptx"]
    assert kernel.metadata.shared <= SHARED
    cubin.write_bytes(kernel.asm["cubin"])
    assert not strange_uses_of_the_stack(said_by("nvdisasm", "-c", cubin))
