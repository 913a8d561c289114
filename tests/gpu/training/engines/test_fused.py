"""What only the fused kernels have: networks they do not serve, and a set-up that stays short."""

from __future__ import annotations

import itertools
import multiprocessing
from dataclasses import replace

import pytest
import torch

from tests.support.backend_trainings import config_of, protocol_shaped
from tuner.config import Backend, Precision, RunConfig
from tuner.data.windows import DeviceData
from tuner.kernels import FusedTSMixer
from tuner.models.registry import build_model
from tuner.models.tsmixer import TSMixer
from tuner.training import fit

pytestmark = pytest.mark.slow
HIDDEN_SIZES = (32, 256)
BATCH_SIZES = (64, 1024)
"""Of the search space, least and greatest: each hidden size takes half a minute to compile."""
MOST_SETUP_S = 0.5


def with_precision(config: RunConfig, precision: Precision) -> RunConfig:
    return replace(config, training=config.training.but(precision=precision, max_epochs=2))


@pytest.mark.parametrize(
    ("model", "precision", "says"),
    [("batchnorm", Precision.FP32, "BatchNorm1d"), ("original", Precision.BF16, "bf16")],
)
def test_what_they_do_not_serve_is_captured_as_it_is_and_says_why(
    cuda_data: DeviceData, model: str, precision: Precision, says: str
) -> None:
    fallen = fit(with_precision(config_of(model, Backend.TRITON), precision), cuda_data)
    graph = fit(with_precision(config_of(model, Backend.GRAPH), precision), cuda_data)
    assert fallen.backend is Backend.GRAPH
    assert says in fallen.backend_fallback
    assert graph.backend_fallback == ""
    assert [e.val_loss for e in fallen.history] == [e.val_loss for e in graph.history]


def test_tf32_follows_fp32_at_some_distance(cuda_data: DeviceData) -> None:
    results = [
        fit(with_precision(config_of("original", Backend.TRITON), each), cuda_data)
        for each in (Precision.FP32, Precision.TF32)
    ]
    assert [result.backend for result in results] == [Backend.TRITON] * 2
    single, rounded = ([e.val_loss for e in result.history] for result in results)
    assert rounded == pytest.approx(single, rel=1e-2)
    assert rounded != single


@pytest.mark.parametrize("layer", ["blocks.0.time_mixing.linear", "blocks.0.feature_mixing.enter"])
def test_a_weight_that_is_no_number_shows_in_the_forecast(
    cuda_data: DeviceData, layer: str
) -> None:
    """A single one, before a ReLU: as the plain network does, they let it through."""
    config = config_of("original", Backend.TRITON)
    model = build_model(config.architecture, cuda_data.shapes, config.hyperparameters).cuda()
    assert isinstance(model, TSMixer)
    batch = cuda_data.train.gather(torch.arange(3, device="cuda"))
    with torch.no_grad():
        model.get_parameter(f"{layer}.weight")[0, 0] = torch.nan
        for network in (model, FusedTSMixer(model)):
            assert network(batch.past, batch.future, batch.static).isnan().any()


def sized(hidden_size: int, batch_size: int) -> RunConfig:
    config = config_of(
        "original", Backend.TRITON, dropout=0.1, hidden_size=hidden_size, batch_size=batch_size
    )
    return replace(config, training=config.training.but(max_epochs=1))


def set_up_each_batch_size(hidden_size: int) -> float:
    """Seconds of set-up in all, with every kernel compiled that the disk does not have."""
    data = protocol_shaped(torch.float32)
    return sum(fit(sized(hidden_size, batch_size), data).setup_s for batch_size in BATCH_SIZES)


def test_a_warm_set_up_is_short_at_both_ends_of_the_search_space() -> None:
    """In the reference job's shapes. The shorter of two warm set-ups counts: others work too."""
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(len(HIDDEN_SIZES)) as pool:  # compiling takes one core each
        cold = dict(zip(HIDDEN_SIZES, pool.map(set_up_each_batch_size, HIDDEN_SIZES), strict=True))
    print(
        "\nfirst set-ups of all batch sizes, by hidden size, in s: "
        f"{ {h: round(s, 1) for h, s in cold.items()} }"
    )
    print(f"{'hidden':>6} {'batch':>6} {'from disk, s':>12} {'warm, s':>8}")
    data = protocol_shaped(torch.float32)
    slowest = 0.0
    for hidden_size, batch_size in itertools.product(HIDDEN_SIZES, BATCH_SIZES):
        results = [fit(sized(hidden_size, batch_size), data) for _ in range(3)]
        assert {result.backend for result in results} == {Backend.TRITON}
        from_disk, *warm = (result.setup_s for result in results)
        slowest = max(slowest, min(warm))
        print(f"{hidden_size:>6} {batch_size:>6} {from_disk:>12.3f} {min(warm):>8.3f}")
    assert slowest <= MOST_SETUP_S
