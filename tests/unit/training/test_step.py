"""An update: by several batches as by one large one, and in fp16 as torch's own scaler has it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tuner.config import Precision, RunConfig
from tuner.data.windows import DeviceData
from tuner.models.registry import build_model
from tuner.training import step as loss_scale
from tuner.training.step import Step

Configure = Callable[..., RunConfig]


def step_of(config: RunConfig, data: DeviceData) -> Step:
    torch.manual_seed(config.seed)
    model = build_model(config.architecture, data.shapes, config.hyperparameters)
    return Step(config, data, model.train())


def gradient(step: Step) -> Tensor:
    """Of all parameters, as the latest update left it: clipped."""
    return torch.cat([p.grad.flatten() for p in step.model.parameters() if p.grad is not None])


@pytest.mark.parametrize("windows", [256, 250, 70])
def test_accumulated_batches_have_the_gradient_of_one_large_batch(
    data: DeviceData, run_config: Configure, windows: int
) -> None:
    """250 windows: the last batch of the update is short; 70: the update itself is."""
    index = torch.randperm(len(data.train), generator=torch.Generator().manual_seed(4))[:windows]
    found = []
    for batch_size, accumulate in ((256, 1), (64, 4)):
        # Without clipping, so that the gradient itself is seen.
        config = run_config(
            batch_size=batch_size, accumulate=accumulate, dropout=0.0, gradient_clip=1e9
        )
        step = step_of(config, data)
        loss = step.train_on(data.train, index, batch_size)
        found.append((loss, gradient(step)))
    (whole_loss, whole), (loss, accumulated) = found
    assert whole.norm() > 0.01
    assert (accumulated - whole).abs().max() <= 1e-6
    assert (accumulated - whole).norm() <= 1e-6 * whole.norm()
    assert loss == pytest.approx(whole_loss.item(), rel=1e-6)


def test_an_update_is_one_step_of_the_optimiser_and_clipped_once(
    data: DeviceData, run_config: Configure
) -> None:
    config = run_config(accumulate=4, gradient_clip=0.01)
    step = step_of(config, data)
    step.set_learning_rate(1e-3)
    step.train_on(data.train, torch.arange(256), 64)
    assert {float(v) for n, v in step.state().items() if n.endswith("/step")} == {1.0}
    assert gradient(step).norm() == pytest.approx(0.01, rel=1e-3)


def test_the_optimiser_takes_a_gradient_that_is_clipped_by_then(
    data: DeviceData, run_config: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adam's first step does not show it: that has any gradient's size divided out."""
    step, taken = step_of(run_config(gradient_clip=0.01), data), []
    monkeypatch.setattr(step._optimizer, "step", lambda: taken.append(gradient(step).norm()))
    step.train(data.train.gather(torch.arange(64)))
    assert taken == [pytest.approx(0.01, rel=1e-3)]


@pytest.mark.parametrize(("norm", "divisor"), [(0.5, 1.0), (1.0, 1.0), (4.0, 4.0)])
def test_a_captured_step_divides_large_gradients_and_leaves_small_ones(
    data: DeviceData, run_config: Configure, norm: float, divisor: float
) -> None:
    """As `clip_grad_norm_` does; the fused optimiser divides by what is given to it."""
    config = run_config(gradient_clip=1.0)
    model = build_model(config.architecture, data.shapes, config.hyperparameters)
    step = Step(config, data, model, capturable=True)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    next(p for p in model.parameters()).grad.flatten()[0] = norm  # type: ignore[union-attr]
    step._clip()
    assert float(step._optimizer.grad_scale) == pytest.approx(divisor, rel=1e-5)  # type: ignore[attr-defined]


def with_torchs_scaler(
    config: RunConfig, data: DeviceData, indices: list[Tensor]
) -> tuple[nn.Module, float]:
    """The same updates with torch.amp.GradScaler, as its documentation has them."""
    torch.manual_seed(config.seed)
    model = build_model(config.architecture, data.shapes, config.hyperparameters).train()
    plain = Step(config, data, model)
    h = config.hyperparameters
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=h.learning_rate, weight_decay=h.weight_decay, fused=True
    )
    scaler = torch.amp.GradScaler("cpu", init_scale=loss_scale.INITIAL, growth_interval=3)
    for index in indices:
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(plain.loss(data.train.gather(index))).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), config.training.gradient_clip)
        scaler.step(optimizer)
        scaler.update()
    return model, scaler.get_scale()


def test_fp16_updates_are_those_of_torchs_scaler_also_where_they_are_skipped(
    data: DeviceData, run_config: Configure, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From so large a scale that the first updates overflow; then it grows every third one."""
    monkeypatch.setattr(loss_scale, "INITIAL", 2.0**40)
    monkeypatch.setattr(loss_scale, "GROWTH_INTERVAL", 3)
    config = run_config(precision=Precision.FP16, weight_decay=0.1)
    indices = [torch.arange(n, n + 64) for n in range(40)]
    step = step_of(config, data)
    before = [p.clone() for p in step.model.parameters()]
    step.set_learning_rate(config.hyperparameters.learning_rate)
    step.train(data.train.gather(indices[0]))
    assert all(map(torch.equal, before, step.model.parameters())), "an overflow changes nothing"
    for index in indices[1:]:
        step.train(data.train.gather(index))
    theirs, scale = with_torchs_scaler(config, data, indices)
    assert all(map(torch.equal, step.model.parameters(), theirs.parameters()))
    assert step.state()[loss_scale.SCALE].item() == scale != 2.0**40
    updates = {float(v) for n, v in step.state().items() if n.endswith("/step")}
    assert 0 < min(updates) == max(updates) < len(indices), "skipped updates are not counted"


def test_a_step_in_fp16_needs_the_scale_to_go_on(data: DeviceData, run_config: Configure) -> None:
    step = step_of(run_config(precision=Precision.FP16), data)
    step.train(data.train.gather(torch.arange(64)))
    known = {name: tensor.clone() for name, tensor in step.state().items()}
    step.load(known)
    del known[loss_scale.SCALE]
    with pytest.raises(ValueError, match="no scale of the loss"):
        step.load(known)
