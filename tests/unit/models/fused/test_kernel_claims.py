"""A kernel's claim: one holder at a time, free with its process, and no hindrance without one."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.support.collected_kernels import pretend_compiled
from tuner.kernels import compile_only
from tuner.kernels.compile_only import BusyError, Kernel, claim, claim_in_turn

KERNEL = Kernel("a_kernel", "0f" * 32, None, {}, None, {})


def test_a_second_claim_is_refused_until_the_first_is_given_up(tmp_path: Path) -> None:
    held = claim(KERNEL, tmp_path)
    assert held is not None
    with pytest.raises(BusyError):
        claim(KERNEL, tmp_path)
    os.close(held)
    again = claim(KERNEL, tmp_path)
    assert again is not None
    os.close(again)
    assert [path.name for path in tmp_path.rglob("*")] == [KERNEL.folder]


def test_a_process_that_is_killed_leaves_nothing_claimed(tmp_path: Path) -> None:
    pid = os.fork()
    if pid == 0:
        claim(KERNEL, tmp_path)
        (tmp_path / "claimed").touch()
        signal.pause()
    while not (tmp_path / "claimed").exists():
        time.sleep(0.001)
    with pytest.raises(BusyError):
        claim(KERNEL, tmp_path)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    held = claim(KERNEL, tmp_path)
    assert held is not None
    os.close(held)


def test_whoever_comes_second_waits_for_the_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = claim(KERNEL, tmp_path)
    assert held is not None
    waits = 0

    def a_while(seconds: float) -> None:
        nonlocal waits
        waits += 1
        if waits == 3:
            pretend_compiled(KERNEL, tmp_path)

    monkeypatch.setattr(time, "sleep", a_while)
    assert claim_in_turn(KERNEL, tmp_path) is None
    assert waits == 3
    os.close(held)


def test_nobody_waits_for_a_process_that_was_stopped_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = claim(KERNEL, tmp_path)
    assert held is not None
    monkeypatch.setattr(compile_only, "PATIENCE_S", 0.01)
    assert claim_in_turn(KERNEL, tmp_path) is None
    os.close(held)


def test_where_no_folder_can_be_made_everybody_compiles_for_himself(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert claim(KERNEL, tmp_path / "file") is None
    assert claim_in_turn(KERNEL, tmp_path / "file") is None


def is_claimed(folder: Path) -> bool:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


def test_what_a_worker_compiles_is_claimed_as_long_as_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a device that is made up, with a compiler that only looks."""
    triton = pytest.importorskip("triton", reason="Triton is not installed")
    if triton.knobs.runtime.interpret:
        pytest.skip("kernels are interpreted in this process")
    from tuner.kernels.step_kernels import LossSum, score

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    claimed: list[list[bool]] = []

    def look(source: Any, target: Any, options: Any) -> Any:
        claimed.append([is_claimed(folder) for folder in sorted(tmp_path.iterdir())])
        nothing = lambda *given: None  # noqa: E731
        return SimpleNamespace(
            run=nothing, launch_metadata=nothing, function=None, packed_metadata=None
        )

    device = SimpleNamespace(
        get_current_target=lambda: triton.backends.compiler.GPUTarget("cuda", 90, 32),
        get_current_device=lambda: -3,  # no other test's
        get_current_stream=lambda device: 0,
    )
    monkeypatch.setattr(triton.compiler, "compile", look)
    monkeypatch.setattr(triton.runtime.driver, "_active", device)
    forecast, target, quantiles = torch.zeros(4, 3, 2, 5), torch.zeros(4, 3, 2), torch.zeros(5)
    losses = LossSum(torch.device("cpu"), forecast.numel())
    with compile_only.one_at_a_time():
        score(forecast, target, quantiles, losses)
        score(forecast, target, quantiles, losses, slope=torch.zeros_like(forecast))
    assert [sum(each) for each in claimed] == [1, 1]
    assert len(claimed[1]) == 2
    assert not any(is_claimed(folder) for folder in tmp_path.iterdir())
    assert triton.knobs.runtime.jit_cache_hook is None
