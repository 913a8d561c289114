"""Every captured backend against float64: one step's loss and gradients, and 200 steps."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from tests.support.backend_trainings import protocol_shaped
from tests.support.relu_kinks import clear_of_kinks
from tuner.config import Architecture, Backend, Hyperparameters, RunConfig, TrainingSettings
from tuner.data.windows import DeviceData
from tuner.models.names import builtin_names
from tuner.models.registry import build_model
from tuner.training.clock import exact_fp32, seeded
from tuner.training.engines.choose import make_engine
from tuner.training.engines.eager import Engine
from tuner.training.step import Step

pytestmark = pytest.mark.slow
BATCH = 256
BACKENDS = (Backend.GRAPH, Backend.COMPILE, Backend.TRITON)
LEFT_OUT = {
    ("batchnorm", Backend.TRITON),  # which runs as GRAPH: test_fused.py
    *((name, Backend.COMPILE) for name in builtin_names() if name != "batchnorm"),
    # Half a minute each; `original` is in test_compiled.py, the others have no operation more.
}
CASES = [
    (name, backend)
    for name in builtin_names()
    for backend in BACKENDS
    if (name, backend) not in LEFT_OUT
]
UNCLIPPED = 1e9


def config_of(model: str, backend: Backend, clip: float = UNCLIPPED) -> RunConfig:
    return RunConfig(
        architecture=Architecture(model=model),
        hyperparameters=Hyperparameters(
            learning_rate=1e-4, weight_decay=0.0, dropout=0.0, hidden_size=64, batch_size=BATCH
        ),
        training=TrainingSettings(backend=backend, gradient_clip=clip),
    )


def network(config: RunConfig, data: DeviceData) -> torch.nn.Module:
    torch.manual_seed(11)
    return build_model(config.architecture, data.shapes, config.hyperparameters).cuda()


def eager_gradients(
    model: torch.nn.Module, data: DeviceData, index: torch.Tensor
) -> tuple[float, list[torch.Tensor]]:
    model.train()
    step = Step(config_of("original", Backend.EAGER), data, model)
    loss = step.loss(data.train.gather(index))
    return loss.item(), [g.double() for g in torch.autograd.grad(loss, list(model.parameters()))]


def captured_gradients(
    engine: Engine, index: torch.Tensor, n_windows: int
) -> tuple[float, list[torch.Tensor]]:
    """One replay of a fresh engine: Adam's first moment is then a tenth of the gradient."""
    order = torch.cat(
        [index, torch.zeros(n_windows - len(index), dtype=torch.int64, device="cuda")]
    )
    stops = iter(["stop"])
    trained = engine.train_epoch(order, 0.0, lambda: next(stops))  # type: ignore[arg-type,return-value]
    state = engine.state()
    moments = [
        state[f"optimizer/{n}/exp_avg"].double() / 0.1
        for n, _ in enumerate(engine.model.parameters())
    ]
    return trained.loss_sum.item() / len(index), moments


def distance(a: Sequence[torch.Tensor], b: Sequence[torch.Tensor]) -> float:
    squares = [((x - y) ** 2).sum() for x, y in zip(a, b, strict=True)]
    return float(torch.stack(squares).sum().sqrt())


@pytest.mark.parametrize(("name", "backend"), CASES)
def test_one_step_is_that_of_float64_and_two_hundred_are_the_eager_ones(
    name: str, backend: Backend
) -> None:
    single, double = protocol_shaped(torch.float32), protocol_shaped(torch.float64)
    with exact_fp32(), seeded(0, torch.device("cuda")):
        check_one_step(name, backend, single, double)
        check_many_steps(name, backend, single)


def windows_to_compare(name: str, double: DeviceData) -> torch.Tensor:
    """(BATCH,): from all over the data, clear of kinks; with batchnorm, whose windows mix, any."""
    index = torch.arange(len(double.train), device="cuda")
    if name != "batchnorm":
        batch = double.train.gather(index)
        model = network(config_of(name, Backend.EAGER), double)
        index = index[clear_of_kinks(model, (batch.past, batch.future, batch.static))]
    assert len(index) >= BATCH
    return index[:: len(index) // BATCH][:BATCH]


def check_one_step(name: str, backend: Backend, single: DeviceData, double: DeviceData) -> None:
    """Loss and gradients: at most twice eager fp32's own error, with a floor of 1e-5."""
    config = config_of(name, backend)
    index = windows_to_compare(name, double)
    truth_loss, truth = eager_gradients(network(config, double).double(), double, index)
    eager_loss, eager = eager_gradients(network(config, single), single, index)
    engine = make_engine(config, single, network(config, single))
    assert engine.backend is backend
    engine.warm_up()
    loss, gradients = captured_gradients(engine, index, len(single.train))
    engine.close()
    norm = distance(truth, [torch.zeros_like(g) for g in truth])
    own, theirs = distance(eager, truth) / norm, distance(gradients, truth) / norm
    own_loss, their_loss = abs(eager_loss / truth_loss - 1), abs(loss / truth_loss - 1)
    print(
        f"{name} {backend}: gradient {theirs:.1e} (eager {own:.1e}), "
        f"loss {their_loss:.1e} (eager {own_loss:.1e})"
    )
    assert theirs <= max(2 * own, 1e-5)
    assert their_loss <= max(2 * own_loss, 1e-5)


def check_many_steps(name: str, backend: Backend, data: DeviceData) -> None:
    """From one state, on the same batches: losses of each pass over 25 epochs of a few steps."""
    generator = torch.Generator(device="cuda").manual_seed(5)
    orders = [
        torch.randperm(len(data.train), generator=generator, device="cuda") for _ in range(25)
    ]
    seen: dict[Backend, list[float]] = {}
    for kind in (Backend.EAGER, backend):
        config = config_of(name, kind, clip=1.0)
        engine = make_engine(config, data, network(config, data))
        engine.warm_up()
        seen[kind] = [engine.train_epoch(o, 1e-4, lambda: None).loss_sum.item() for o in orders]
        engine.close()
    steps = 25 * -(-len(data.train) // BATCH)
    assert steps >= 200
    worst = max(abs(a / b - 1) for a, b in zip(seen[backend], seen[Backend.EAGER], strict=True))
    print(f"{name} {backend}: over {steps} steps the losses differ by at most {worst:.1e}")
    # batchnorm divides by a batch's statistics, which amplifies a last digit from step to step:
    # about 1e-2 by then.
    assert worst <= (5e-2 if name == "batchnorm" else 1e-4)
