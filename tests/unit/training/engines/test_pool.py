"""Which engines are kept for later trainings, which of them a training gets, and which go."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from tests.support.fitted_results import losses_of
from tests.support.present import present
from tuner.config import Architecture, Backend, Precision, RunConfig, StopReason
from tuner.data.windows import DeviceData
from tuner.models.registry import build_model
from tuner.models.tsmixer import TSMixer
from tuner.training import fit
from tuner.training.engines import pool as pools
from tuner.training.engines.eager import EagerEngine
from tuner.training.engines.pool import EnginePool, Lent
from tuner.training.fit import give_back_leftovers

Configure = Callable[..., RunConfig]


class Kept(EagerEngine):
    """Stands in for the fused engine: a copy of the network that other trainings get, too."""

    def __init__(self, config: RunConfig, data: DeviceData, model: TSMixer) -> None:
        super().__init__(config, data, copy.deepcopy(model))
        self.gone = False

    def renew(self, config: RunConfig, model: TSMixer) -> None:
        self.model.load_state_dict(model.state_dict())
        self._step._config = config
        self._step._optimizer = self._step._new_optimizer()

    def discard(self) -> None:
        self.gone = True


class Workshop:
    """Makes engines, and knows them all."""

    def __init__(self) -> None:
        self.made: list[Kept] = []

    def __call__(self, config: RunConfig, data: DeviceData, model: TSMixer, _memory: Any) -> Kept:
        self.made.append(Kept(config, data, model))
        return self.made[-1]


@pytest.fixture
def workshop() -> Workshop:
    return Workshop()


@pytest.fixture(autouse=True)
def served(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a GPU that the fused kernels serve."""
    monkeypatch.setattr(pools, "choose_backend", lambda *_: (Backend.TRITON, ""))


def lend(pool: EnginePool, config: RunConfig, data: DeviceData) -> Lent:
    model = build_model(config.architecture, data.shapes, config.hyperparameters)
    return present(pool.lend(config, data, model))


def test_trainings_of_the_same_sizes_get_the_same_engine_and_others_their_own(
    data: DeviceData, run_config: Configure, workshop: Workshop
) -> None:
    pool = EnginePool(make=workshop)
    first = lend(pool, run_config(dropout=0.1), data)
    pool.take_back(first, peak_bytes=7)
    alike = run_config(seed=9, dropout=0.4, weight_decay=0.3, learning_rate=0.5, gradient_clip=2.0)
    again = lend(pool, alike, data)
    assert again.engine is first.engine
    assert again.peak_bytes == 7
    pool.take_back(again, peak_bytes=3)
    assert lend(pool, alike, data).peak_bytes == 7
    settings = Architecture(model="original", settings={"n_blocks": 1})
    others = [
        (run_config(dropout=0.0), data),
        (run_config(hidden_size=16), data),
        (run_config(batch_size=32), data),
        (run_config("simple"), data),
        (replace(run_config(), architecture=settings), data),
        (run_config(precision=Precision.TF32), data),
        (run_config(), replace(data)),
    ]
    for config, windows in others:
        pool.take_back(lend(pool, config, windows), peak_bytes=0)
    assert len({id(engine) for engine in workshop.made}) == len(pool) + 1 == len(others) + 1


def test_a_lent_engine_is_in_no_pool_until_it_comes_back(
    data: DeviceData, run_config: Configure, workshop: Workshop
) -> None:
    pool = EnginePool(make=workshop)
    pool.take_back(lend(pool, run_config(), data), peak_bytes=0)
    assert len(pool) == 1
    lend(pool, run_config(), data)
    assert len(pool) == 0
    assert len(workshop.made) == 1
    lend(pool, run_config(), data)
    assert len(workshop.made) == 2


def test_the_engine_used_longest_ago_goes_first(
    data: DeviceData, run_config: Configure, workshop: Workshop
) -> None:
    pool = EnginePool(make=workshop, most=2)
    small, large, huge = (run_config(batch_size=size) for size in (16, 32, 64))
    for config in (small, large, small, huge):
        pool.take_back(lend(pool, config, data), peak_bytes=0)
    assert [engine.gone for engine in workshop.made] == [False, True, False]


def test_engines_hold_no_more_than_their_share_of_the_device(
    data: DeviceData, run_config: Configure, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "_memory_of", lambda _device: 1000.0)
    pool = EnginePool(make=workshop, share=0.5)
    for size, n_bytes in ((16, 200), (32, 300), (64, 1), (8, 501)):
        lent = lend(pool, run_config(batch_size=size), data)
        pool.take_back(replace(lent, n_bytes=n_bytes), peak_bytes=0)
    assert [engine.gone for engine in workshop.made] == [True, True, True, True]
    assert (len(pool), pool.n_bytes) == (0, 0)


def test_where_little_is_free_nothing_is_kept_in_the_way_of_a_new_engine(
    data: DeviceData, run_config: Configure, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    pool = EnginePool(make=workshop)
    pool.take_back(lend(pool, run_config(batch_size=16), data), peak_bytes=0)
    monkeypatch.setattr(pools, "_share_free", lambda _device: 0.2)
    pool.take_back(lend(pool, run_config(batch_size=16), data), peak_bytes=0)
    assert [engine.gone for engine in workshop.made] == [False], "it is used again"
    lend(pool, run_config(batch_size=32), data)
    assert [engine.gone for engine in workshop.made] == [True, False]


def test_emptying_says_whether_a_training_may_have_lacked_what_was_kept(
    data: DeviceData, run_config: Configure, workshop: Workshop
) -> None:
    pool = EnginePool(make=workshop)
    assert not pool.empty()
    lent = lend(pool, run_config(), data)
    assert not pool.empty(), "a new engine alone is what any training has"
    pool.take_back(lent, peak_bytes=0)
    lend(pool, run_config(), data)
    assert pool.empty(), "it failed on an engine that an earlier training left"
    assert not pool.empty()


@pytest.mark.parametrize(
    ("device", "backend", "fails", "looks"),
    [
        ("cuda", Backend.TRITON, False, False),
        ("cuda", Backend.TRITON, True, True),
        ("cuda", Backend.EAGER, False, True),
        ("cpu", Backend.EAGER, False, False),
    ],
)
def test_cycles_are_looked_for_on_a_gpu_unless_a_training_ended_well_on_an_engine_of_the_pool(
    data: DeviceData,
    run_config: Configure,
    workshop: Workshop,
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    backend: Backend,
    fails: bool,
    looks: bool,
) -> None:
    config, pool, found = run_config(), EnginePool(make=workshop), weakref.WeakSet[nn.Module]()
    monkeypatch.setattr(pools, "choose_backend", lambda *_: (backend, ""))
    model = build_model(config.architecture, data.shapes, config.hyperparameters)
    lent = pool.lend(config, data, model)
    if lent is not None and not fails:
        pool.take_back(lent, peak_bytes=0)
    left = nn.Linear(1, 1)
    left.__dict__["itself"] = left
    found.add(left)
    del left
    with no_collection():
        give_back_leftovers(torch.device(device), pool)
        assert len(found) == (0 if looks else 1)
        if device == "cuda":
            give_back_leftovers(torch.device(device), None)
            assert not found, "without a pool it is looked each time"


@contextmanager
def no_collection() -> Iterator[None]:
    """Nothing is collected by itself."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@pytest.mark.parametrize("kind", ["eager", "own"])
def test_other_backends_and_networks_get_no_engine(
    data: DeviceData,
    run_config: Configure,
    workshop: Workshop,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    config, pool = run_config(), EnginePool(make=workshop)
    model = build_model(config.architecture, data.shapes, config.hyperparameters)
    if kind == "eager":
        monkeypatch.setattr(pools, "choose_backend", lambda *_: (Backend.EAGER, ""))
    else:
        model.__class__ = type("Own", (TSMixer,), {})
    assert pool.lend(config, data, model) is None
    assert workshop.made == []


def test_a_training_with_a_kept_engine_is_the_one_without_and_its_network_is_its_own(
    data: DeviceData, run_config: Configure, workshop: Workshop
) -> None:
    configs = [
        run_config(seed=seed, learning_rate=1e-3 * seed, restore_best_weights=seed != 2)
        for seed in (1, 2, 3)
    ]
    pool = EnginePool(make=workshop)
    results = [fit(config, data, engines=pool) for config in configs]
    assert len(workshop.made) == 1
    kept = {tensor.data_ptr() for tensor in workshop.made[0].model.parameters()}
    for config, result in zip(configs, results, strict=True):
        alone = fit(config, data)
        assert losses_of(result) == losses_of(alone)
        ours, theirs = present(result.model), present(alone.model)
        assert not ours.training
        assert not kept & {tensor.data_ptr() for tensor in ours.parameters()}
        for name, tensor in theirs.state_dict().items():
            assert torch.equal(ours.state_dict()[name], tensor), name


def test_after_a_training_that_diverged_or_raised_the_engine_is_not_kept(
    data: DeviceData, run_config: Configure, workshop: Workshop
) -> None:
    def broken(_record: object) -> StopReason | None:
        raise ZeroDivisionError

    pool = EnginePool(make=workshop)
    plain = run_config(max_epochs=20)
    diverging = replace(plain, training=plain.training.but(learning_rate_decay=1e30))
    assert fit(diverging, data, engines=pool).stopped_by is StopReason.DIVERGED
    assert (len(pool), workshop.made[0].gone) == (0, True)
    with pytest.raises(ZeroDivisionError):
        fit(run_config(), data, engines=pool, on_epoch=broken)
    assert len(pool) == 0
    stopped = fit(
        run_config(), data, engines=pool, should_stop=lambda: StopReason.INTERRUPTED
    ).stopped_by
    assert (stopped, len(pool)) == (StopReason.INTERRUPTED, 1)


def test_memory_that_runs_out_beside_kept_engines_decides_nothing(
    data: DeviceData, run_config: Configure, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the second epoch: the first is told twice."""
    pool = EnginePool(make=workshop)
    fit(run_config(batch_size=32), data, engines=pool)
    train_epoch = Kept.train_epoch
    heard: list[int] = []

    def short_of_memory(engine: Kept, *given: Any) -> Any:
        if len(pool) == 1 and heard:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return train_epoch(engine, *given)

    monkeypatch.setattr(Kept, "train_epoch", short_of_memory)
    found = fit(
        run_config(), data, engines=pool, on_epoch=lambda record: heard.append(record.epoch)
    )
    assert losses_of(found) == losses_of(fit(run_config(), data))
    assert heard == [1, 1, 2, 3]
    assert len(pool) == 0
    assert workshop.made[0].gone


def test_memory_that_runs_out_with_nothing_kept_is_the_outcome(
    data: DeviceData, run_config: Configure, workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short_of_memory(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Kept, "train_epoch", short_of_memory)
    result = fit(run_config(), data, engines=EnginePool(make=workshop))
    assert result.stopped_by is StopReason.OUT_OF_MEMORY
    assert len(workshop.made) == 1
