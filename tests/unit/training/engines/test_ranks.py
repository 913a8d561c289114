"""Two processes that train one network together, each on cores of its own, against one that trains
it alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.checkpointed_trainings import assert_same, files
from tests.support.cli_processes import CORES
from tuner.config import Backend, Precision, RunConfig, StopReason
from tuner.data.prepare import PreparedData
from tuner.data.windows import DeviceData
from tuner.devices import CpuCores
from tuner.errors import UsageError
from tuner.models.registry import build_model
from tuner.training import FitResult, fit
from tuner.training.clock import arithmetic, seeded
from tuner.training.engines.choose import make_engine
from tuner.training.engines.ranks import Ranks

Configure = Callable[..., RunConfig]
CPU = torch.device("cpu")
PARTLY = """
import torch
from tuner.models.tsmixer import DESIGNS, TSMixer

class Partly(TSMixer):
    def __init__(self, shapes, **sizes):
        super().__init__(shapes, DESIGNS["rmsnorm"], **sizes)
        self.unused = torch.nn.Linear(2, 2)
"""


@pytest.fixture(scope="module")
def ranks(prepared: PreparedData) -> Iterator[Ranks]:
    """For all tests here: each process takes seconds to start."""
    both = CpuCores((CORES[0], CORES[-1]), parts=2)
    together = Ranks(both, {prepared.data_hash: prepared})
    yield together
    together.close()


def gradients(
    config: RunConfig, data: DeviceData, order: Tensor, ranks: Ranks | None
) -> tuple[list[Tensor | None], Tensor]:
    """Those of the last update of an epoch in this order, and the sum of its losses."""
    with arithmetic(Precision.FP32), seeded(5, CPU):
        model = build_model(config.architecture, data.shapes, config.hyperparameters)
        engine = make_engine(config, data, model, ranks)
        engine.warm_up()
        epoch = engine.train_epoch(order, 1e-3, lambda: None)
        found = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
        engine.close()
    assert epoch.n_windows == len(order)
    return found, epoch.loss_sum


def assert_gradients_agree(
    config: RunConfig, data: DeviceData, ranks: Ranks, *, windows: int
) -> list[Tensor | None]:
    """In an epoch of so many windows; those of one device."""
    order = torch.randperm(302, generator=torch.Generator().manual_seed(2))[:windows]
    alone, loss_alone = gradients(config, data, order, None)
    with ranks.at_work():
        together, loss = gradients(config, data, order, ranks)
    for one, both in zip(alone, together, strict=True):
        assert (one is None) == (both is None)
        if one is not None and both is not None:
            assert float((one - both).abs().max()) <= 1e-5 * float(one.abs().max())
    assert float(loss) == pytest.approx(float(loss_alone), rel=1e-5)
    return alone


@pytest.mark.parametrize(
    ("windows", "accumulate"),
    [(64, 1), (65, 1), (64 + 13, 1), (302, 2)],
    ids=["one-batch", "a-last-batch-of-one-window", "a-short-last-batch", "updates-of-two-batches"],
)
def test_the_gradient_is_that_of_one_device(
    data: DeviceData, ranks: Ranks, run_config: Configure, windows: int, accumulate: int
) -> None:
    config = run_config(dropout=0.0, gradient_clip=1e9, accumulate=accumulate, gpus_per_trial=2)
    assert None not in assert_gradients_agree(config, data, ranks, windows=windows)


@pytest.mark.parametrize("windows", [64, 65])
def test_what_a_class_of_the_users_leaves_unused_stays_without_a_gradient(
    data: DeviceData, ranks: Ranks, run_config: Configure, tmp_path: Path, windows: int
) -> None:
    (tmp_path / "partly.py").write_text(PARTLY)
    config = run_config(
        f"{tmp_path}/partly.py:Partly", dropout=0.0, gradient_clip=1e9, gpus_per_trial=2
    )
    assert None in assert_gradients_agree(config, data, ranks, windows=windows)


def trained(config: RunConfig, data: DeviceData, ranks: Ranks, **more: Any) -> FitResult:
    with ranks.at_work():
        return fit(config, data, ranks=ranks, **more)


def test_a_training_repeats_bit_for_bit_also_from_a_checkpoint_of_the_first(
    data: DeviceData, ranks: Ranks, run_config: Configure, tmp_path: Path
) -> None:
    config = run_config(dropout=0.3, max_epochs=4, gpus_per_trial=2)
    whole = trained(config, data, ranks)
    assert (whole.backend, whole.epochs) == (Backend.EAGER, 4)
    assert "add up their gradients" in whole.backend_fallback
    store, asked = files(tmp_path), 0

    def stop() -> StopReason | None:
        nonlocal asked
        asked += 1
        return StopReason.INTERRUPTED if asked == 12 else None  # in the middle of the third

    cut = trained(config, data, ranks, should_stop=stop, checkpoints=store)
    assert cut.stopped_by is StopReason.INTERRUPTED
    resumed = trained(config, data, ranks, checkpoints=store)
    assert resumed.resumed_from > 0
    assert_same(resumed, whole)


def test_a_stop_between_two_steps_and_a_failure_leave_all_ready_for_the_next_training(
    data: DeviceData, ranks: Ranks, run_config: Configure
) -> None:
    config = run_config(dropout=0.0, max_epochs=2, gpus_per_trial=2)
    whole = trained(config, data, ranks)
    stopped = trained(config, data, ranks, should_stop=lambda: StopReason.INTERRUPTED)
    assert (stopped.stopped_by, stopped.epochs) == (StopReason.INTERRUPTED, 0)

    def fails() -> StopReason | None:
        raise ZeroDivisionError

    before = ranks.pids
    with pytest.raises(ZeroDivisionError):
        trained(config, data, ranks, should_stop=fails)
    assert not ranks.pids, "they were in the middle of a step, and are ended"
    assert_same(trained(config, data, ranks), whole)
    assert ranks.pids not in ((), before)


def test_what_would_be_another_network_or_another_step_is_refused(
    data: DeviceData, ranks: Ranks, run_config: Configure
) -> None:
    with pytest.raises(UsageError, match="gpus_per_trial 2: the network normalises over its batch"):
        trained(run_config("batchnorm", gpus_per_trial=2), data, ranks)
    with pytest.raises(UsageError, match="backend 'compile' cannot: choose eager or auto, or 1"):
        trained(run_config(backend=Backend.COMPILE, gpus_per_trial=2), data, ranks)
