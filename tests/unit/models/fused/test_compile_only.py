"""Kernels collected without a GPU are those that Triton will look for on one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

triton = pytest.importorskip("triton", reason="Triton is not installed")
if triton.knobs.runtime.interpret:
    pytest.skip("kernels are interpreted in this process", allow_module_level=True)

from tests.support.collected_kernels import HOPPER, data, kernels, trained  # noqa: E402 - needs it
from tuner.kernels.compile_only import Kernel, launching_for  # noqa: E402
from tuner.training.engines.fused_engine import TritonEngine  # noqa: E402


@pytest.fixture(scope="module")
def collected() -> dict[str, Kernel]:
    return kernels()


class LookedUpError(Exception):
    """Instead of compiling, once it is known under which name the cache is asked."""


def looked_up(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """What Triton itself asks its cache for while the same training is launched: the hook of
    `compile_only` is not there, and Triton's own launching and compiling run until they have the
    key."""
    asked: set[str] = set()

    def ask(key: str) -> Any:
        asked.add(key)
        raise LookedUpError

    def launcher(kernel: Any, grid: Any) -> Any:
        def launch(*given: Any, **options: Any) -> None:
            with pytest.raises(LookedUpError):
                kernel.run(*given, grid=grid, warmup=False, **options)

        return launch

    device = SimpleNamespace(
        get_current_target=lambda: triton.backends.compiler.GPUTarget("cuda", 90, 32),
        get_current_device=lambda: -2,  # no other test's: nothing is remembered of it
        get_current_stream=lambda device: 0,
    )
    monkeypatch.setattr(triton.compiler.compiler, "get_cache_manager", ask)
    monkeypatch.setattr(triton.runtime.jit.JITFunction, "__getitem__", launcher)
    monkeypatch.setattr(triton.runtime.driver, "_active", device)
    config, model = trained()
    TritonEngine(config, data(), model, launching_for(HOPPER)).launch_everything()
    return asked


def test_their_keys_are_those_that_triton_looks_for(
    collected: dict[str, Kernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert set(collected) == looked_up(monkeypatch)


def test_a_step_and_a_validation_are_there_and_start_early(collected: dict[str, Kernel]) -> None:
    names = {kernel.name for kernel in collected.values()}
    assert {"_gather", "head_train", "block_backward", "sum_splits", "_update", "_loss"} <= names
    assert {kernel.options.get("launch_pdl", False) for kernel in collected.values()} == {
        True,
        False,
    }
    assert "DISABLE_MMA_V3" in next(
        kernel.environment for kernel in collected.values() if kernel.name == "block_backward"
    )


def test_every_pointer_is_taken_for_aligned_as_those_of_a_gpu_are(
    collected: dict[str, Kernel],
) -> None:
    for kernel in collected.values():
        for place in pointers(kernel.source.signature.values()):
            assert ["tt.divisibility", 16] in kernel.source.attrs[place], (kernel.name, place)


def pointers(kinds: Any, above: tuple[int, ...] = ()) -> list[tuple[int, ...]]:
    """Where pointers are among the arguments, in tuples as well."""
    found = []
    for n, kind in enumerate(kinds):
        if isinstance(kind, tuple):
            found += pointers(kind, (*above, n))
        elif kind.startswith("*"):
            found.append((*above, n))
    return found


def test_nothing_of_cuda_is_begun_and_triton_is_left_as_it_was(
    collected: dict[str, Kernel],
) -> None:
    assert collected
    assert not torch.cuda.is_initialized()
    assert triton.knobs.runtime.jit_cache_hook is None
