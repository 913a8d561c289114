"""Memory of a contender's turn: what others left on the device neither counts nor is taken off."""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from tuner.bench.contender import DeviceMemory

DEVICE = torch.device("cuda", 0)


@dataclass
class _Allocator:
    """A device's memory by holder, in bytes."""

    held: dict[str, int] = field(default_factory=dict)
    peak: int = 0

    def take(self, holder: str, size: int) -> None:
        self.held[holder] = size
        self.peak = max(self.peak, self.allocated())

    def give_back(self, holder: str) -> None:
        self.held.pop(holder, None)

    def allocated(self, _device: object = None) -> int:
        return sum(self.held.values())

    def reset_peak(self, _device: object) -> None:
        self.peak = self.allocated()


@pytest.fixture
def allocator(monkeypatch: pytest.MonkeyPatch) -> _Allocator:
    device = _Allocator()
    monkeypatch.setattr(torch.cuda, "synchronize", lambda _device: None)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: None)
    monkeypatch.setattr(torch.cuda, "memory_allocated", device.allocated)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", device.reset_peak)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda _device: device.peak)
    clear = "_cuda_clearCublasWorkspaces"
    monkeypatch.setattr(torch._C, clear, lambda: device.give_back("workspaces"), raising=False)
    return device


def test_workspaces_that_a_library_gives_back_in_its_turn_are_not_taken_off_its_figure(
    allocator: _Allocator,
) -> None:
    allocator.take("data", 7)
    allocator.take("workspaces", 260)  # which captured graphs before it left
    memory = DeviceMemory(DEVICE)
    allocator.give_back("workspaces")  # as Lightning does when it begins
    allocator.take("network", 100)
    allocator.give_back("network")
    assert memory.peak() == 100


def test_a_turn_counts_the_workspaces_that_it_needs_whoever_came_before(
    allocator: _Allocator,
) -> None:
    peaks = []
    for before in (0, 260):
        allocator.take("workspaces", before)
        memory = DeviceMemory(DEVICE)
        allocator.take("workspaces", 260)
        allocator.take("network", 100)
        allocator.give_back("network")
        peaks.append(memory.peak())
    assert peaks == [360, 360]


def test_what_lies_in_reference_cycles_is_collected_before_the_turn_and_not_in_it(
    allocator: _Allocator,
) -> None:
    class Graphs:
        itself: Any

        def __del__(self) -> None:
            allocator.give_back("graphs")

    gc.disable()
    try:
        graphs = Graphs()
        graphs.itself = graphs
        allocator.take("graphs", 500)
        del graphs
        memory = DeviceMemory(DEVICE)
        assert allocator.allocated() == 0
    finally:
        gc.enable()
    allocator.take("network", 100)
    assert memory.peak() == 100


def test_a_cpu_has_no_figure() -> None:
    assert DeviceMemory(torch.device("cpu")).peak() is None
