"""The kernels of a step compile for a Hopper GPU, without one, and keep everything in registers."""

from __future__ import annotations

import math
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

triton = pytest.importorskip("triton", reason="Triton is not installed")

from triton.backends.compiler import GPUTarget  # noqa: E402 - only where there is one
from triton.compiler import ASTSource  # noqa: E402

from tuner.kernels import step_kernels  # noqa: E402

F32, F64, I64 = "*fp32", "*fp64", "*i64"
SIZES = {
    "input_size": 168, "horizon": 24, "n_columns": 13, "n_targets": 7, "n_future": 6,
    "n_static": 1, "n_quantiles": 17, "with_slope": True, "block": 1024, "n_sums": 2048,
    "beta_1": step_kernels.BETA_1, "log_beta_1": math.log(step_kernels.BETA_1),
    "beta_2": step_kernels.BETA_2, "log_beta_2": math.log(step_kernels.BETA_2),
    "eps": step_kernels.EPS, "clip_eps": 1e-6, "draws": 512, "early": True,
}  # fmt: skip
SCALARS = {
    "n": "i32",
    "n_windows": "i32",
    "n_values": "i32",
    "share": "fp32",
    "n_masks": "i32",
}
WHOLE = {
    "masks": "*u8",
    "n_dropped": "*i32",
    "state": I64,
    "order": I64,
    "done": I64,
    "starts": I64,
    "series": I64,
    "losses": F64,
}


@pytest.mark.parametrize(
    "kernel",
    [step_kernels._gather, step_kernels._loss, step_kernels._sum_squares, step_kernels._update],
)
def test_a_kernel_compiles_without_spilling(
    kernel: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    cubin = tmp_path / "kernel.cubin"
    made = compiled(kernel)
    cubin.write_bytes(made.asm["cubin"])
    before, waits, after = made.asm["ptx"].partition("griddepcontrol.wait")
    assert waits, "it would not wait for the kernel before"
    assert "st.global" not in before, "it would write what the kernel before may still read"
    assert ("ld.global" in before) == (kernel is step_kernels._update), (
        "only what the update alone writes is read before"
    )
    assert "griddepcontrol.launch_dependents" in after
    tool = triton.knobs.nvidia.cuobjdump.path
    report = subprocess.run(
        [tool, "--dump-resource-usage", cubin], capture_output=True, text=True, check=True
    ).stdout
    print(kernel.__name__, re.findall(r"REG:\d+|STACK:\d+|LOCAL:\d+", report))
    assert "STACK:0 " in report
    assert "LOCAL:0 " in report


def compiled(kernel: Any) -> Any:
    constants = {name: SIZES[name] for name in kernel.arg_names if name in SIZES}
    kinds: Mapping[str, str] = SCALARS | WHOLE | dict.fromkeys(constants, "constexpr")
    signature = {name: kinds.get(name, F32) for name in kernel.arg_names}
    aligned = {
        (n,): [["tt.divisibility", 16]]
        for n, kind in enumerate(signature.values())
        if kind.startswith("*")
    }
    source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=aligned)
    return triton.compile(source, target=GPUTarget("cuda", 90, 32))
