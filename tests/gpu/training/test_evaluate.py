"""Evaluation on a GPU: all windows at once where memory allows, and as many as fit where not."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tests.support.backend_trainings import config_of
from tuner.config import Backend
from tuner.data.prepare import PreparedData, TestWindows
from tuner.data.windows import DeviceData, to_device
from tuner.models.registry import build_model
from tuner.training import evaluate
from tuner.training.engines.captured import VALIDATION_BATCH
from tuner.training.evaluate import BATCH


class Greedy(nn.Module):
    """A network that has no memory for more than some windows at once, as long as others hold it.

    What it took until then it still holds when it fails.
    """

    def __init__(self, network: nn.Module, most: int) -> None:
        super().__init__()
        self.network = network
        self.most = most
        self.passes: list[int] = []

    def forward(self, past: Tensor, future: Tensor | None, static: Tensor | None) -> Tensor:
        self.passes.append(len(past))
        if len(past) > self.most:
            taken = torch.empty(1 << 28, dtype=torch.uint8, device=past.device)
            text = f"CUDA out of memory, with {taken.numel()} bytes taken"
            raise torch.OutOfMemoryError(text)
        forecast: Tensor = self.network(past, future, static)
        return forecast


@pytest.fixture
def greedy(cuda_data: DeviceData) -> Callable[[int], Greedy]:
    config = config_of("original", Backend.EAGER)
    torch.manual_seed(5)
    network = build_model(config.architecture, cuda_data.shapes, config.hyperparameters).cuda()
    return lambda most: Greedy(network, most)


def test_a_split_is_one_pass_where_memory_allows(
    cuda_data: DeviceData, greedy: Callable[[int], Greedy]
) -> None:
    free = greedy(VALIDATION_BATCH)
    evaluate(free, cuda_data)
    assert free.passes == [len(cuda_data.test), len(cuda_data.val)]


@pytest.mark.parametrize("windows", [TestWindows.SEARCHED, TestWindows.LAST_BLOCK])
def test_blocks_of_the_test_split_are_a_pass_each_and_score_as_on_a_cpu(
    cuda_data: DeviceData,
    small_data: PreparedData,
    greedy: Callable[[int], Greedy],
    windows: TestWindows,
) -> None:
    free = greedy(VALIDATION_BATCH)
    found = evaluate(free, cuda_data, windows=windows)
    expected = evaluate(free.network.cpu(), to_device(small_data, "cpu"), windows=windows)
    assert len(free.passes) == len(windows.blocks()) + 1
    assert found.test_mql == pytest.approx(expected.test_mql, rel=1e-4)
    for number in windows.blocks():
        scores = found.test_blocks[number].by_series
        assert scores == pytest.approx(expected.test_blocks[number].by_series, rel=1e-4)


def test_with_less_memory_it_takes_more_passes_to_the_same_scores(
    cuda_data: DeviceData, greedy: Callable[[int], Greedy]
) -> None:
    expected = evaluate(greedy(VALIDATION_BATCH), cuda_data)
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    short = greedy(BATCH)
    found = evaluate(short, cuda_data)
    assert max(short.passes) > BATCH, "there were more windows than fit"
    assert found.test_mql_mean == pytest.approx(expected.test_mql_mean, rel=1e-5)
    assert found.val_mql_mean == pytest.approx(expected.val_mql_mean, rel=1e-5)
    assert torch.cuda.memory_reserved() - before < 1 << 28, "what the failed try took went back"


def test_what_fits_in_no_way_is_raised(
    cuda_data: DeviceData, greedy: Callable[[int], Greedy]
) -> None:
    with pytest.raises(torch.OutOfMemoryError):
        evaluate(greedy(1), cuda_data)


def test_what_others_can_spare_comes_before_smaller_passes(
    cuda_data: DeviceData, greedy: Callable[[int], Greedy]
) -> None:
    network = greedy(1)

    def make_room() -> bool:
        network.most = VALIDATION_BATCH
        return True

    evaluate(network, cuda_data, make_room=make_room)
    test, val = len(cuda_data.test), len(cuda_data.val)
    assert network.passes == [test, test, val]
