"""Kernels that begin early, or that run beside others, compute what they do one after the other."""

from __future__ import annotations

import pytest
import torch

from tuner.config import Architecture, Backend, Hyperparameters, RunConfig, TrainingSettings
from tuner.data.windows import DeviceData
from tuner.kernels.launch_order import PLAIN, Launching, why_not_early
from tuner.models.registry import build_model
from tuner.models.tsmixer import TSMixer
from tuner.training.clock import exact_fp32, seeded
from tuner.training.engines.captured import capture_streams

pytest.importorskip("triton")

CONFIG = RunConfig(
    architecture=Architecture(model="original"),
    hyperparameters=Hyperparameters(
        learning_rate=1e-4, weight_decay=1e-3, dropout=0.1, hidden_size=64, batch_size=256
    ),
    training=TrainingSettings(backend=Backend.TRITON),
    seed=3,
)


def losses(data: DeviceData, launching: Launching) -> list[float]:
    from tuner.training.engines.fused_engine import TritonEngine

    device = torch.device("cuda")
    with exact_fp32(), seeded(CONFIG.seed, device):
        model = build_model(CONFIG.architecture, data.shapes, CONFIG.hyperparameters).cuda()
        assert isinstance(model, TSMixer)
        engine = TritonEngine(CONFIG, data, model, launching)
        engine.warm_up()
        order = torch.arange(len(data.train), device="cuda")
        found = []
        for _ in range(5):
            trained = engine.train_epoch(order, 1e-4, lambda: None)
            found += [float(trained.loss_sum), float(engine.validation_loss())]
        engine.close()
    return found


@pytest.mark.parametrize("way", ["early", "side", "both"])
def test_a_training_is_the_same_however_its_kernels_follow_each_other(
    cuda_data: DeviceData, way: str
) -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    early, side = why_not_early(device) is None, capture_streams(device)[1]
    if way != "side" and not early:
        pytest.skip(str(why_not_early(device)))
    ways = {
        "early": Launching(early=True),
        "side": Launching(side=side),
        "both": Launching(early=True, side=side),
    }
    found = losses(cuda_data, ways[way])
    assert found == losses(cuda_data, PLAIN), "the same bits: every kernel sums in the same order"
    assert losses(cuda_data, ways[way]) == found, "the same bits a second time"
