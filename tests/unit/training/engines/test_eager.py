"""The eager engine against a training loop written out by hand."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tests.support.present import present
from tuner.config import RunConfig, StopReason
from tuner.data.prepare import PreparedData
from tuner.data.windows import DeviceData, DeviceSplit, to_device
from tuner.models.registry import build_model
from tuner.training.engines.eager import EagerEngine

Configure = Callable[..., RunConfig]


def _naive_loss(model: nn.Module, data: DeviceData, split: DeviceSplit, index: Tensor) -> Tensor:
    batch = split.gather(index)
    forecast = model(batch.past, batch.future, batch.static)
    terms = []
    for position, q in enumerate(data.task.quantiles):
        error = batch.target - forecast[..., position]
        terms.append(torch.where(error >= 0, q * error, (q - 1) * error))
    return torch.stack(terms).sum(dim=0).mean()


def _model(config: RunConfig, data: DeviceData) -> nn.Module:
    torch.manual_seed(11)
    return build_model(config.architecture, data.shapes, config.hyperparameters).double()


@pytest.fixture(scope="module")
def data64(prepared: PreparedData) -> DeviceData:
    return to_device(prepared, "cpu", dtype=torch.float64)


@pytest.mark.parametrize("weight_decay", [0.0, 0.3])
def test_an_epoch_is_adam_with_clipping_and_decoupled_decay(
    data64: DeviceData, run_config: Configure, weight_decay: float
) -> None:
    """Weight decay 0 is exactly Adam; otherwise a step first shrinks weights by lr * decay."""
    config = run_config(dropout=0.0, weight_decay=weight_decay, gradient_clip=0.05)
    ours, naive = _model(config, data64), _model(config, data64)
    order = torch.randperm(len(data64.train), generator=torch.Generator().manual_seed(1))
    lr = 3e-3

    epoch = EagerEngine(config, data64, ours).train_epoch(order, lr, lambda: None)

    adam = torch.optim.Adam(naive.parameters(), lr=lr, foreach=False, fused=False)
    expected, clipped = 0.0, 0
    batches = [order[first : first + 64] for first in range(0, len(order), 64)]
    assert len(batches[-1]) < 64
    for index in batches:
        adam.zero_grad()
        loss = _naive_loss(naive, data64, data64.train, index)
        loss.backward()
        gradients = [present(p.grad) for p in naive.parameters()]
        norm = torch.stack([(gradient**2).sum() for gradient in gradients]).sum().sqrt()
        clipped += norm.item() > 0.05
        with torch.no_grad():
            for p, gradient in zip(naive.parameters(), gradients, strict=True):
                gradient.mul_(min(1.0, 0.05 / (norm.item() + 1e-6)))
                p.mul_(1 - lr * weight_decay)
        adam.step()
        expected += loss.item() * len(index)
    assert clipped > 0
    assert epoch.n_windows == len(order)
    assert epoch.stopped is None
    assert epoch.loss_sum.item() == pytest.approx(expected, rel=1e-9)
    for (name, p), q in zip(ours.named_parameters(), naive.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-7, atol=1e-9, msg=f"{name}: {{}}".format)


def test_the_fused_optimiser_does_what_the_plain_one_does() -> None:
    torch.manual_seed(0)
    start = [torch.randn(7, 5, dtype=torch.float64), torch.randn(3, dtype=torch.float64)]
    gradients = [[torch.randn_like(p) for p in start] for _ in range(20)]
    results = []
    for fused in (True, False):
        parameters = [nn.Parameter(p.clone()) for p in start]
        optimizer = torch.optim.AdamW(parameters, lr=1e-2, weight_decay=0.1, fused=fused)
        for step in gradients:
            for p, g in zip(parameters, step, strict=True):
                p.grad = g.clone()
            optimizer.step()
        results.append(parameters)
    for a, b in zip(*results, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("validation_batch", [7, 64, 10_000])
def test_the_validation_loss_is_the_mean_over_windows_whatever_the_batch(
    data64: DeviceData,
    run_config: Configure,
    monkeypatch: pytest.MonkeyPatch,
    validation_batch: int,
) -> None:
    monkeypatch.setattr("tuner.training.engines.eager.VALIDATION_BATCH", {"cpu": validation_batch})
    config = run_config("batchnorm")
    model = _model(config, data64)
    ours = EagerEngine(config, data64, model).validation_loss()
    each = [
        _naive_loss(model, data64, data64.val, torch.tensor([i])).item()
        for i in range(len(data64.val))
    ]
    assert ours.item() == pytest.approx(sum(each) / len(each), rel=1e-12)


@pytest.mark.parametrize("name", ["batchnorm", "original"])
def test_warming_up_leaves_no_trace(data: DeviceData, run_config: Configure, name: str) -> None:
    config = run_config(name)
    torch.manual_seed(3)
    model = build_model(config.architecture, data.shapes, config.hyperparameters)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    engine = EagerEngine(config, data, model)
    random_state = torch.get_rng_state()

    engine.warm_up()

    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())
    assert not engine._step._optimizer.state
    assert torch.equal(torch.get_rng_state(), random_state)


def test_a_reason_to_stop_ends_the_epoch_within_one_step(
    data: DeviceData, run_config: Configure
) -> None:
    config = run_config()
    model = build_model(config.architecture, data.shapes, config.hyperparameters)
    answers = iter([None, StopReason.PRUNED])
    epoch = EagerEngine(config, data, model).train_epoch(
        torch.arange(len(data.train)), 1e-3, lambda: next(answers)
    )
    assert epoch.stopped is StopReason.PRUNED
    assert epoch.n_windows == 2 * 64


def _one_epoch(config: RunConfig, data: DeviceData) -> tuple[Tensor, list[Tensor]]:
    torch.manual_seed(5)
    model = build_model(config.architecture, data.shapes, config.hyperparameters)
    engine = EagerEngine(config, data, model)
    epoch = engine.train_epoch(torch.arange(len(data.train)), 1e-3, lambda: None)
    return epoch.loss_sum, [p.detach().clone() for p in model.parameters()]


@pytest.mark.parametrize("name", ["original", "simple"])
def test_without_dropout_an_epoch_is_that_of_pytorchs_own_operations(
    data: DeviceData, run_config: Configure, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    config = run_config(name, dropout=0.0)
    ours = _one_epoch(config, data)
    monkeypatch.setattr("tuner.models.dropout._has_cheap_masks", lambda x: False)
    plain = _one_epoch(config, data)
    assert torch.equal(ours[0], plain[0])
    assert all(torch.equal(a, b) for a, b in zip(ours[1], plain[1], strict=True))


def test_dropout_is_fresh_in_every_step(data: DeviceData, run_config: Configure) -> None:
    config = run_config(dropout=0.2)
    torch.manual_seed(6)
    model = build_model(config.architecture, data.shapes, config.hyperparameters).train()
    batch = data.train.gather(torch.arange(64))
    with torch.no_grad():
        forecasts = [model(batch.past, batch.future, batch.static) for _ in range(3)]
    assert not torch.equal(forecasts[0], forecasts[1])
    assert not torch.equal(forecasts[1], forecasts[2])


def test_the_new_masks_train_as_well_as_pytorchs_dropout(
    data: DeviceData, run_config: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mean training loss of one epoch over ten seeds: the masks differ by noise, not by a bias."""
    config = run_config(dropout=0.3)

    def losses() -> Tensor:
        results = []
        for seed in range(10):
            torch.manual_seed(5)
            model = build_model(config.architecture, data.shapes, config.hyperparameters)
            torch.manual_seed(seed)
            epoch = EagerEngine(config, data, model).train_epoch(
                torch.arange(len(data.train)), 1e-3, lambda: None
            )
            results.append(epoch.loss_sum)
        return torch.stack(results)

    ours = losses()
    monkeypatch.setattr("tuner.models.dropout._has_cheap_masks", lambda x: False)
    plain = losses()
    noise = torch.sqrt((ours.var() + plain.var()) / len(ours)).item()
    assert abs((ours.mean() - plain.mean()).item()) < 4 * noise
    assert noise < 0.05 * plain.mean().item()
