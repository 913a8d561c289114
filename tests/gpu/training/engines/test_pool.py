"""Engines that are kept on a GPU: the bits of new ones, memory that does not grow, and none in the
way of a training that needs it."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.support.present import present
from tuner.config import (
    Architecture,
    Backend,
    Hyperparameters,
    RunConfig,
    StopReason,
    TrainingSettings,
)
from tuner.data.windows import DeviceData
from tuner.training import EpochRecord, FitResult, evaluate, fit
from tuner.training.checkpoint import CheckpointFiles
from tuner.training.engines.pool import LEAST_FREE, EnginePool

pytest.importorskip("triton")
SIZES = tuple(itertools.product((32, 64), (128, 256)))


def config_of(hidden_size: int, batch_size: int, *, seed: int = 3, **changes: Any) -> RunConfig:
    values: dict[str, Any] = {"learning_rate": 1e-3, "weight_decay": 1e-3, "dropout": 0.1}
    settings: dict[str, Any] = {"max_epochs": 4, "backend": Backend.TRITON}
    for name, value in changes.items():
        (values if name in values else settings)[name] = value
    return RunConfig(
        architecture=Architecture(model="original"),
        hyperparameters=Hyperparameters(hidden_size=hidden_size, batch_size=batch_size, **values),
        training=TrainingSettings(**settings),
        seed=seed,
    )


CHANGES: tuple[dict[str, Any], ...] = (
    {"seed": 1, "dropout": 0.3, "weight_decay": 0.1, "learning_rate": 3e-3},
    {"seed": 2, "dropout": 0.0, "weight_decay": 0.0},
    {"seed": 3, "dropout": 0.137, "weight_decay": 3.3e-4, "gradient_clip": 0.01},
    {"seed": 4, "dropout": 0.0, "weight_decay": 0.05, "learning_rate": 1e-2},
    {"seed": 1, "dropout": 0.3, "weight_decay": 0.1, "learning_rate": 3e-3},
)
"""Of trainings one after the other; the last one is the first again."""


@pytest.fixture
def pool() -> Iterator[EnginePool]:
    kept = EnginePool()
    yield kept
    kept.empty()


def losses(result: FitResult) -> list[tuple[float, float | None, float]]:
    return [(e.train_loss, e.val_loss, e.learning_rate) for e in result.history]


def assert_same(ours: FitResult, theirs: FitResult) -> None:
    assert losses(ours) == losses(theirs)
    assert (ours.best_epoch, ours.stopped_by) == (theirs.best_epoch, theirs.stopped_by)
    mine, others = present(ours.model).state_dict(), present(theirs.model).state_dict()
    assert mine.keys() == others.keys()
    for name, tensor in mine.items():
        assert tensor.is_cuda
        assert torch.equal(tensor, others[name]), name


def test_a_reused_engine_gives_every_bit_of_a_fresh_one(
    cuda_data: DeviceData, pool: EnginePool
) -> None:
    """Sizes in turn, so that each capture and replay comes between those of the others."""
    for change in CHANGES:
        for hidden_size, batch_size in SIZES:
            config = config_of(hidden_size, batch_size, **change)
            ours = fit(config, cuda_data, engines=pool)
            assert ours.backend is Backend.TRITON
            assert_same(ours, fit(config, cuda_data))
    assert len(pool) == 2 * len(SIZES), "with dropout and without"


def test_the_network_of_a_training_is_not_changed_by_the_next_one(
    cuda_data: DeviceData, pool: EnginePool
) -> None:
    first = fit(config_of(32, 128, seed=1), cuda_data, engines=pool)
    before = {name: tensor.clone() for name, tensor in present(first.model).state_dict().items()}
    scores = evaluate(present(first.model), cuda_data)
    fit(config_of(32, 128, seed=2), cuda_data, engines=pool)
    for name, tensor in present(first.model).state_dict().items():
        assert torch.equal(tensor, before[name]), name
    assert evaluate(present(first.model), cuda_data) == scores


def test_a_reused_engine_takes_up_a_checkpoint(
    cuda_data: DeviceData, pool: EnginePool, tmp_path: Any
) -> None:
    config = config_of(64, 256, dropout=0.3)

    def files() -> CheckpointFiles:
        return CheckpointFiles(
            folder=tmp_path, stem="trial-0", identity={"seed": 3}, every_s=0.0, least_s=0.0
        )

    whole = fit(config, cuda_data)
    fit(config_of(64, 256, seed=9), cuda_data, engines=pool)
    first = fit(
        config,
        cuda_data,
        checkpoints=files(),
        on_epoch=lambda record: StopReason.INTERRUPTED if record.epoch == 2 else None,
        engines=pool,
    )
    assert first.stopped_by is StopReason.INTERRUPTED
    fit(config_of(64, 256, seed=10, dropout=0.5), cuda_data, engines=pool)
    resumed = fit(config, cuda_data, checkpoints=files(), engines=pool)
    assert resumed.resumed_from == 2
    assert_same(resumed, whole)


def held() -> tuple[int, int]:
    gc.collect()
    return torch.cuda.memory_allocated(), torch.cuda.memory_reserved()


def test_memory_stays_as_it_is_once_every_size_was_met(
    cuda_data: DeviceData, pool: EnginePool
) -> None:
    alone = fit(config_of(32, 128), cuda_data)
    evaluate(present(alone.model), cuda_data)  # whatever stays with the process is there
    del alone
    seen: list[tuple[int, int]] = []
    peaks: list[list[int]] = []
    for turn in range(4):
        peaks.append([])
        for hidden_size, batch_size in SIZES:
            config = config_of(hidden_size, batch_size, seed=turn, dropout=0.1 + 0.1 * turn)
            result = fit(config, cuda_data, engines=pool)
            evaluate(present(result.model), cuda_data)
            peaks[-1].append(result.peak_memory_bytes)
            del result
        seen.append(held())
    assert len({allocated for allocated, _ in seen}) == 1
    # The second turn is the first without captures, which give unused memory back.
    assert len({reserved for _, reserved in seen[2:]}) == 1
    assert all(turn == peaks[1] for turn in peaks[2:])
    for first, later in zip(peaks[0], peaks[1], strict=True):
        assert later >= first, "a reused engine has its first peak at least"
    assert pool.n_bytes > 0


def test_the_peak_of_a_training_is_its_own_whatever_else_is_kept(
    cuda_data: DeviceData, pool: EnginePool
) -> None:
    fit(config_of(32, 128), cuda_data)  # whatever stays with the process is there
    other = EnginePool()
    alone = fit(config_of(32, 128), cuda_data, engines=other).peak_memory_bytes
    other.empty()
    for hidden_size, batch_size in ((64, 256), (64, 128), (32, 256)):
        fit(config_of(hidden_size, batch_size), cuda_data, engines=pool)
    beside = fit(config_of(32, 128), cuda_data, engines=pool).peak_memory_bytes
    assert pool.n_bytes > 0
    assert beside == pytest.approx(alone, rel=0.02)


def test_a_second_set_up_of_the_same_sizes_captures_nothing(
    cuda_data: DeviceData, pool: EnginePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = fit(config_of(64, 256), cuda_data, engines=pool)
    monkeypatch.setattr(torch.cuda, "graph", None)
    second = fit(config_of(64, 256, seed=8), cuda_data, engines=pool)
    assert second.setup_s < first.setup_s


class Filled(EnginePool):
    """All the rest of the device's memory goes with the engines that are kept, as if it were
    theirs."""

    def __init__(self) -> None:
        super().__init__()
        self.filling: list[torch.Tensor] = []

    def fill(self) -> None:
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info()
        self.filling.append(torch.empty(free - (64 << 20), dtype=torch.uint8, device="cuda"))

    def empty(self) -> bool:
        self.filling.clear()
        return super().empty()


@pytest.mark.parametrize(("batch_size", "least_free"), [(512, LEAST_FREE), (1024, 0.0)])
def test_memory_that_runs_out_beside_a_full_pool_decides_nothing(
    cuda_data: DeviceData, batch_size: int, least_free: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is noticed before an engine is made, or when there is no memory for it."""
    monkeypatch.setattr("tuner.training.engines.pool.LEAST_FREE", least_free)
    config = config_of(256, batch_size, max_epochs=2)
    expected = fit(config, cuda_data)
    scores = evaluate(present(expected.model), cuda_data)
    pool = Filled()
    fit(config_of(32, 128), cuda_data, engines=pool)
    pool.fill()
    found = fit(config, cuda_data, engines=pool)
    assert not found.context_lost
    assert_same(found, expected)
    assert pool.filling == []
    fit(config_of(32, 128), cuda_data, engines=pool)
    pool.fill()
    again = evaluate(present(found.model), cuda_data, make_room=pool.empty)
    assert again == scores
    pool.empty()


def test_memory_that_runs_out_in_an_epoch_beside_others_decides_nothing(
    cuda_data: DeviceData, pool: EnginePool
) -> None:
    """On an engine that was kept: it goes with the others, and the training begins again."""
    config = config_of(64, 256)
    expected = fit(config, cuda_data)
    for size in (128, 256):
        fit(config_of(64, size, seed=7), cuda_data, engines=pool)
    heard: list[int] = []

    def short_of_memory(record: EpochRecord) -> None:
        heard.append(record.epoch)
        if len(pool) > 0 and record.epoch == 2:
            torch.empty(1 << 46, dtype=torch.uint8, device="cuda")

    found = fit(config, cuda_data, engines=pool, on_epoch=short_of_memory)
    assert_same(found, expected)
    assert heard == [1, 2, 1, 2, 3, 4]
    assert len(pool) == 0


def test_after_a_training_that_diverged_the_engine_is_made_anew(
    cuda_data: DeviceData, pool: EnginePool
) -> None:
    train = cuda_data.train
    poisoned = replace(train, targets=torch.full_like(train.targets, torch.nan))
    broken = replace(cuda_data, train=poisoned)
    assert fit(config_of(32, 128), broken, engines=pool).stopped_by is StopReason.DIVERGED
    assert len(pool) == 0
    assert_same(
        fit(config_of(32, 128), cuda_data, engines=pool), fit(config_of(32, 128), cuda_data)
    )


def test_engines_that_go_give_their_memory_back(cuda_data: DeviceData) -> None:
    fit(config_of(32, 128), cuda_data)  # whatever stays with the process is there
    torch.cuda.empty_cache()
    before, _ = held()
    pool = EnginePool(most=1)
    for hidden_size, batch_size in (*SIZES, *SIZES):
        config = config_of(hidden_size, batch_size)
        assert_same(fit(config, cuda_data, engines=pool), fit(config, cuda_data))
        assert len(pool) == 1
    assert pool.empty()
    assert held()[0] == before
