"""Our engines as contenders: driven as `fit` drives them, without early stopping."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields

import torch
from torch import Tensor

from tuner.bench.contender import DeviceMemory, Entry, Epoch, Job, Round, reader
from tuner.bench.kernels import count_kernels, per_step
from tuner.config import RunConfig, StopReason
from tuner.data.windows import DeviceData, DeviceSplit
from tuner.models.registry import build_model
from tuner.training.batching import Shuffles
from tuner.training.clock import arithmetic, seeded
from tuner.training.engines.choose import make_engine
from tuner.training.engines.eager import Engine, Poll


class Ours:
    """A variant on one of our backends. Its data lies on the device and counts into its memory."""

    def __init__(self, job: Job, entry: Entry, config: RunConfig, data: DeviceData) -> None:
        self.job = job
        self._entry = entry
        self._config = config
        self.data = data
        self._batch_size = config.hyperparameters.batch_size * config.accumulate
        """Of an update, which is what a step is here."""
        self._n_steps = math.ceil(len(data.train) / self._batch_size)

    @property
    def entry(self) -> Entry:
        return self._entry

    @property
    def config(self) -> RunConfig:
        """What it trains."""
        return self._config

    def run(self, epochs: int) -> Round:
        device = self.job.device
        read = reader(device)
        memory = DeviceMemory(device)
        began = read()
        with self._engine() as (engine, shuffles):
            setup_s = read() - began
            training = _Training(engine, self._config, shuffles, self._n_steps, device)
            training.epoch()
            first = read()
            counted = tuple(training.epoch() for _ in range(epochs))
            last = read()
            parameters = sum(p.numel() for p in engine.model.parameters())
        peak = memory.peak()
        return Round(
            setup_s=setup_s,
            epochs=counted,
            counted=(first, last),
            peak_memory_bytes=None if peak is None else peak + size_of(self.data),
            n_parameters=parameters,
            n_windows=len(self.data.train),
            n_steps=self._n_steps,
        )

    def kernels_per_step(self) -> int | None:
        device = self.job.device
        if device.type != "cuda":
            return None
        order = torch.arange(len(self.data.train), device=device)
        learning_rate = self._config.hyperparameters.learning_rate
        with self._engine() as (engine, _):

            def count(steps: int) -> int:
                return count_kernels(
                    device, lambda: engine.train_epoch(order, learning_rate, stop_after(steps))
                )

            engine.train_epoch(order, learning_rate, stop_after(1))
            return per_step(count, max(1, len(order) // self._batch_size))

    @contextmanager
    def _engine(self) -> Iterator[tuple[Engine, Shuffles]]:
        """The network and its engine, warmed up, under a training's settings; closed at the end."""
        device = self.job.device
        with (
            arithmetic(self._config.training.precision),
            seeded(self._config.seed, device) as generator,
        ):
            model = build_model(
                self._config.architecture, self.data.shapes, self._config.hyperparameters
            )
            engine = make_engine(self._config, self.data, model.to(device))
            if engine.fallback:
                raise FellBackError(f"would run as {engine.backend.value}: {engine.fallback}")
            try:
                engine.warm_up()
                yield engine, Shuffles(generator, len(self.data.train), device)
            finally:
                engine.close()


class FellBackError(Exception):
    """The backend does not serve this network: another's figures would bear its name."""


class _Training:
    """Epochs with all that `fit` does in one: shuffle, train, validate, keep the best."""

    def __init__(
        self,
        engine: Engine,
        config: RunConfig,
        shuffles: Shuffles,
        n_steps: int,
        device: torch.device,
    ) -> None:
        self._engine = engine
        self._shuffles = shuffles
        self._n_steps = n_steps
        self._learning_rate = config.hyperparameters.learning_rate
        self._decay = config.training.learning_rate_decay
        self._validate_every = config.training.validate_every
        self._read = reader(device)
        self._best = engine.snapshot()
        self._best_loss = math.inf

    def epoch(self) -> Epoch:
        """One epoch; where not each is validated, the mean of as many as share a validation."""
        every = self._validate_every
        parts = [self._epoch(validated=number == every) for number in range(1, every + 1)]
        return Epoch(
            seconds=sum(seconds for seconds, _ in parts) / every,
            step_s=sum(trained_s for _, trained_s in parts) / every / self._n_steps,
        )

    def _epoch(self, *, validated: bool) -> tuple[float, float]:
        """Its seconds, and those of its training steps."""
        began = self._read()
        trained = self._engine.train_epoch(self._shuffles.next(), self._learning_rate, _never)
        trained_at = self._read()
        mean = trained.loss_sum / trained.n_windows
        losses = torch.stack([mean, self._engine.validation_loss()] if validated else [mean])
        self._shuffles.draw_ahead()
        _, *val_loss = losses.tolist()
        if val_loss and val_loss[0] < self._best_loss:
            self._best_loss = val_loss[0]
            self._best.take(self._engine.model)
        self._learning_rate *= self._decay
        return self._read() - began, trained_at - began


def stop_after(steps: int) -> Poll:
    """Ends an epoch after so many steps."""
    left = steps

    def poll() -> StopReason | None:
        nonlocal left
        left -= 1
        return None if left > 0 else StopReason.INTERRUPTED

    return poll


def size_of(data: DeviceData) -> int:
    """Bytes of all tensors of the data."""
    parts: tuple[DeviceData | DeviceSplit, ...] = (data, data.train, data.val, data.test)
    tensors = [getattr(part, each.name) for part in parts for each in fields(part)]
    return sum(tensor.nbytes for tensor in tensors if isinstance(tensor, Tensor))


def _never() -> StopReason | None:
    return None
