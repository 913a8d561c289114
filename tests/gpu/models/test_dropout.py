"""Dropout's masks on a GPU, as eager, captured and fused steps draw them: rate, independence.

The seeds are fixed and the bounds five standard deviations wide: a sound generator passes always,
and one that repeats itself, favours a place or misses the rate by a thousandth does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tuner.config import Architecture, Backend, Hyperparameters
from tuner.data.windows import DeviceData
from tuner.models.dropout import dropout
from tuner.models.registry import build_model
from tuner.models.tsmixer import TSMixer

BATCH, HOURS, FEATURES = 1024, 12, 128
N_DRAWS = 4
SIGMAS = 5.0
BACKENDS = (Backend.EAGER, Backend.GRAPH, Backend.TRITON)

Draws = Callable[[Backend, float, int], list[Tensor]]


@pytest.fixture
def draws(cuda_data: DeviceData) -> Draws:
    """So many steps' masks, each (BATCH, HOURS, FEATURES) of booleans: what is dropped."""

    def draw(backend: Backend, rate: float, seed: int) -> list[Tensor]:
        torch.manual_seed(seed)
        if backend is Backend.TRITON:
            return replayed(fused(cuda_data, rate))
        ones = torch.ones(BATCH, HOURS, FEATURES, device="cuda")

        def plain() -> Tensor:
            return dropout(ones, rate, training=True) == 0

        return replayed(plain) if backend is Backend.GRAPH else [plain() for _ in range(N_DRAWS)]

    return draw


def replayed(masks: Callable[[], Tensor]) -> list[Tensor]:
    """Captured once, replayed."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        masks()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = masks()
    drawn = []
    for _ in range(N_DRAWS):
        graph.replay()
        drawn.append(found.clone())
    torch.cuda.synchronize()
    return drawn


def fused(data: DeviceData, rate: float) -> Callable[[], Tensor]:
    """The masks of a fused forward pass that are as wide as the network; any of several will do."""
    pytest.importorskip("triton")
    from tuner.kernels import FusedTSMixer

    assert data.shapes.horizon == HOURS
    hyperparameters = Hyperparameters(
        learning_rate=1e-3, weight_decay=0.0, dropout=rate, hidden_size=FEATURES, batch_size=BATCH
    )
    model = build_model(Architecture(model="original"), data.shapes, hyperparameters).cuda().train()
    assert isinstance(model, TSMixer)
    network = FusedTSMixer(model)
    batch = data.train.gather(torch.arange(BATCH, device="cuda"))

    def masks() -> Tensor:
        network(batch.past, batch.future, batch.static)
        # Those of the time mixings are wider; the pass clears in them what their ReLU cut.
        of_features = [mask for mask in network.masks_by_use() if mask.shape[-1] == FEATURES]
        return of_features[-1] == 0

    return masks


@pytest.mark.parametrize("rate", [0.1, 0.5])
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_share_of_dropped_elements_is_the_rate(
    draws: Draws, backend: Backend, rate: float
) -> None:
    for dropped in draws(backend, rate, 1):
        assert dropped.shape == (BATCH, HOURS, FEATURES)
        found, spread = share(dropped), math.sqrt(rate * (1 - rate) / dropped.numel())
        nearest = 2**-17  # rates are multiples of 2^-16
        assert abs(found - rate) < SIGMAS * spread + nearest


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_draw_follows_from_another(draws: Draws, backend: Backend) -> None:
    """Of two independent draws the share 2 p (1 - p) of the elements differs."""
    rate = 0.3
    drawn = draws(backend, rate, 2)
    expected = 2 * rate * (1 - rate)
    spread = math.sqrt(expected * (1 - expected) / drawn[0].numel())
    for n, one in enumerate(drawn):
        for other in drawn[n + 1 :]:
            assert abs(share(one != other) - expected) < SIGMAS * spread


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_seed_gives_its_masks_and_another_seed_others(draws: Draws, backend: Backend) -> None:
    first, again, other = (draws(backend, 0.3, seed) for seed in (3, 3, 4))
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not any(torch.equal(a, b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize("backend", BACKENDS)
def test_elements_are_dropped_independently_of_their_neighbours(
    draws: Draws, backend: Backend
) -> None:
    """Near in memory, in the next hour and in the next window."""
    rate = 0.25
    for dropped in draws(backend, rate, 5)[:2]:
        centred = (dropped.double() - rate).flatten() / math.sqrt(rate * (1 - rate))
        for lag in (1, 2, 3, 4, 8, 32, FEATURES, HOURS * FEATURES):
            correlation = float((centred[lag:] * centred[:-lag]).mean())
            assert abs(correlation) < SIGMAS / math.sqrt(len(centred) - lag), f"lag {lag}"


@pytest.mark.parametrize("backend", BACKENDS)
def test_no_place_is_favoured(draws: Draws, backend: Backend) -> None:
    """Counts by feature, hour and window: each alone, and chi-square (deviation root 2 df)."""
    rate = 0.25
    for dropped in draws(backend, rate, 6)[:2]:
        for kept in (0, 1, 2):
            counts = dropped.double().sum(dim=[axis for axis in (0, 1, 2) if axis != kept])
            n_each = dropped.numel() / len(counts)
            scores = (counts - n_each * rate) / math.sqrt(n_each * rate * (1 - rate))
            assert float(scores.abs().max()) < SIGMAS + 1, f"axis {kept}"
            chi_square = float((scores**2).sum())
            freedom = len(counts)
            # With few counts its upper tail is longer than a normal one's: hence the constant.
            assert abs(chi_square - freedom) < SIGMAS * math.sqrt(2 * freedom) + 10, f"axis {kept}"


def share(flags: Tensor) -> float:
    return float(flags.double().mean())
