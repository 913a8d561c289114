"""The protocol's training: epochs until the validation loss stops falling, under a clock that counts nothing else."""

from __future__ import annotations

import gc
import math
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn

from tuner.config import Backend, RunConfig, StopReason
from tuner.data.windows import DeviceData
from tuner.errors import first_line
from tuner.models.registry import build_model
from tuner.training.backends import choose_backend, make_engine, resolve_backend
from tuner.training.checkpoint import Checkpoint, Checkpoints, Progress
from tuner.training.checks import check_settings
from tuner.training.clock import Clock, synchronizer
from tuner.training.early_stopping import EarlyStopping
from tuner.training.engine import Engine
from tuner.training.keeper import Keeper
from tuner.training.out_of_memory import out_of_memory
from tuner.training.result import EpochRecord, FitResult
from tuner.training.snapshot import Snapshot
from tuner.training.surroundings import arithmetic, seeded

OnEpoch = Callable[[EpochRecord], StopReason | None]
ShouldStop = Callable[[], StopReason | None]


def fit(
    config: RunConfig,
    data: DeviceData,
    *,
    on_epoch: OnEpoch | None = None,
    should_stop: ShouldStop | None = None,
    model: nn.Module | None = None,
    checkpoints: Checkpoints | None = None,
    on_resume: Callable[[Checkpoint], None] | None = None,
) -> FitResult:
    """Trains one configuration to convergence on the device that holds the data.

    AdamW, gradient norm clipped over all parameters, learning rate times its decay after every epoch, a fresh
    permutation of the training windows every epoch, early stopping on the validation loss. The model keeps the
    weights of the strictly lowest validation loss, also where that fell by less than early stopping's `min_delta`.
    Same configuration, seed and device: the same result, bit for bit. The caller's random state is left alone.

    Args:
        config: architecture, hyperparameters, fixed settings and seed.
        data: windows on their device.
        on_epoch: called after every finished epoch, off the clock; a reason it returns ends the training, unless the
            training ends by itself with that epoch. A diverged epoch is not finished.
        should_stop: asked after every step and so to be cheap; a reason it returns ends the training at once, and the
            epoch under way is not finished.
        model: trains this network, in place, instead of a new one of `config.architecture`.
        checkpoints: what an interrupted attempt at this very training left is continued from there, clock included;
            from time to time, and when interrupted, this one leaves its own. All of it off the clock.
        on_resume: told of the checkpoint that is continued from, off the clock.

    At the time limit, which counts `wall_clock_s`, the epoch under way is cut short and validated like any other, so
    that there are always weights and a validation loss.

    Returns:
        What happened. A loss that is no number and memory that runs out are outcomes, not exceptions.

    Raises:
        UsageError: settings with which no training is possible, or an architecture that cannot be built.
    """
    check_settings(config)
    run = _Run(config, data, on_epoch, should_stop, checkpoints, on_resume)
    message = ""
    try:
        return run.train(model)
    except Exception as error:
        if (reason := out_of_memory(error)) is None:
            raise
        message, run.context_lost = first_line(reason), reason is not error
        del reason  # it would keep the frames
    # Only out here are the frames of the failed training gone, and with them what it held.
    return run.out_of_memory(message, model)


@dataclass(slots=True)
class _Run:
    """One training under way: what must survive when memory runs out lives here, tensors do not."""

    config: RunConfig
    data: DeviceData
    on_epoch: OnEpoch | None
    should_stop: ShouldStop | None
    checkpoints: Checkpoints | None
    on_resume: Callable[[Checkpoint], None] | None
    device: torch.device = field(init=False)
    ran: tuple[Backend, str] = field(init=False)
    clock: Clock = field(init=False)
    early_stopping: EarlyStopping = field(init=False)
    learning_rate: float = field(init=False)
    began: float = field(default_factory=time.perf_counter, init=False)
    """When its set-up began; a resumed training counts that of its first attempt only."""
    timed: tuple[float, float] = field(default=(math.nan, math.nan), init=False)
    resumed_from: int = field(default=0, init=False)
    setup_s: float = field(default=math.nan, init=False)
    n_parameters: int = field(default=0, init=False)
    n_windows: int = field(default=0, init=False)
    history: list[EpochRecord] = field(default_factory=list, init=False)
    best: EpochRecord | None = field(default=None, init=False)
    context_lost: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.device = self.data.minimum.device
        self.ran = resolve_backend(self.config, self.data.shapes, self.device), ""
        self.clock = Clock(synchronizer(self.device))
        self.early_stopping = EarlyStopping(self.config.training.patience, self.config.training.min_delta)
        self.learning_rate = self.config.hyperparameters.learning_rate
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)

    def train(self, model: nn.Module | None) -> FitResult:
        with arithmetic(self.config.training.precision), seeded(self.config.seed, self.device) as shuffles:
            if model is None:
                model = build_model(self.config.architecture, self.data.shapes, self.config.hyperparameters)
            self.ran = choose_backend(self.config, self.data.shapes, model, self.device)
            model.to(self.device)
            self.n_parameters = sum(p.numel() for p in model.parameters())
            engine = make_engine(self.config, self.data, model)
            self.ran = engine.backend, engine.fallback
            engine.warm_up()
            self.clock.synchronize()
            self.setup_s = time.perf_counter() - self.began
            best = Snapshot(model)
            keeper = self._resumed(engine, best, shuffles)
            self.clock.start()
            began = time.time()
            reason, message = self._epochs(engine, best, shuffles, keeper)
            self.clock.stop()
            self.timed = began, time.time()
            if keeper is not None and reason is StopReason.INTERRUPTED:
                keeper.write()
            engine.close()
            if self.best is not None:
                best.restore(model)
            model.eval()
        return self._result(reason, message, model)

    def out_of_memory(self, message: str, model: nn.Module | None) -> FitResult:
        """The result when memory ran out, with what the training held given back to the device."""
        if model is not None:
            model.zero_grad(set_to_none=True)
        gc.collect()
        if self.device.type == "cuda" and not self.context_lost:
            torch.cuda.empty_cache()
        self.clock.stop()
        if math.isnan(self.setup_s):
            self.setup_s = time.perf_counter() - self.began
        h = self.config.hyperparameters
        message = f"out of memory with hidden_size {h.hidden_size} and batch_size {h.batch_size}: {message}"
        return self._result(StopReason.OUT_OF_MEMORY, message, None)

    def _resumed(self, engine: Engine, best: Snapshot, shuffles: torch.Generator) -> Keeper | None:
        """What keeps checkpoints, if any are asked for, with this training put where an earlier attempt left it."""
        if self.checkpoints is None:
            return None
        keeper = Keeper(self.checkpoints, engine, best, shuffles, self.device)
        if (checkpoint := keeper.resume(before=self.config.training.max_epochs)) is not None:
            self._go_on_from(checkpoint.progress)
            if self.on_resume is not None:
                self.on_resume(checkpoint)
        return keeper

    def _go_on_from(self, progress: Progress) -> None:
        self.resumed_from = progress.epoch
        self.history = list(progress.history)
        self.best = self.history[progress.best_epoch - 1]
        self.early_stopping.best, self.early_stopping.waited = progress.stopping_best, progress.stopping_waited
        self.learning_rate = progress.learning_rate
        self.n_windows = progress.n_windows
        self.setup_s = progress.setup_s
        self.began = time.perf_counter() - progress.total_s
        self.clock.carry(progress.elapsed_s)

    def _progress(self) -> Progress:
        """To be asked between two epochs, with the clock paused."""
        assert self.best is not None, "an epoch is over"
        return Progress(
            epoch=len(self.history),
            learning_rate=self.learning_rate,
            stopping_best=self.early_stopping.best,
            stopping_waited=self.early_stopping.waited,
            best_epoch=self.best.epoch,
            n_windows=self.n_windows,
            elapsed_s=self.clock.elapsed(),
            setup_s=self.setup_s,
            total_s=time.perf_counter() - self.began,
            history=tuple(self.history),
        )

    def _epochs(
        self, engine: Engine, best: Snapshot, shuffles: torch.Generator, keeper: Keeper | None
    ) -> tuple[StopReason, str]:
        for epoch in range(self.resumed_from + 1, self.config.training.max_epochs + 1):
            order = torch.randperm(len(self.data.train), generator=shuffles, device=self.device)
            trained = engine.train_epoch(order, self.learning_rate, self._poll)
            self.n_windows += trained.n_windows
            if trained.stopped not in (None, StopReason.TIME_LIMIT):
                return trained.stopped, f"stopped during epoch {epoch}"
            losses = torch.stack([trained.loss_sum / trained.n_windows, engine.validation_loss()])
            train_loss, val_loss = losses.tolist()  # the epoch's one wait for the device
            if not (math.isfinite(train_loss) and math.isfinite(val_loss)):
                return StopReason.DIVERGED, f"epoch {epoch}: training loss {train_loss}, validation loss {val_loss}"
            record = EpochRecord(
                epoch=epoch,
                train_loss=train_loss,
                val_loss=val_loss,
                learning_rate=self.learning_rate,
                elapsed_s=self.clock.elapsed(),
            )
            self.history.append(record)
            if self.best is None or val_loss < self.best.val_loss:
                self.best = record
                best.take(engine.model)
            if (ended := self._ended(record)) is not None:
                self._told(record)
                return ended
            self.learning_rate *= self.config.training.learning_rate_decay
            if (reason := self._told(record, keeper)) is not None:
                return reason, f"stopped after epoch {epoch}"
        raise AssertionError("the last epoch ends the training")

    def _ended(self, record: EpochRecord) -> tuple[StopReason, str] | None:
        """Whether the training is over by itself. The callback hears of this epoch too, but cannot change that."""
        settings = self.config.training
        if self.early_stopping.update(record.val_loss):
            return (
                StopReason.CONVERGED,
                f"no improvement by more than {settings.min_delta:g} in {settings.patience} epochs",
            )
        if settings.time_limit_s is not None and record.elapsed_s >= settings.time_limit_s:
            return StopReason.TIME_LIMIT, f"time limit of {settings.time_limit_s:g} s reached in epoch {record.epoch}"
        if record.epoch == settings.max_epochs:
            return StopReason.EPOCH_LIMIT, f"epoch limit of {settings.max_epochs} reached"
        return None

    def _told(self, record: EpochRecord, keeper: Keeper | None = None) -> StopReason | None:
        """What happens between two epochs, off the clock; the callback's reason to stop."""
        if self.on_epoch is None and keeper is None:
            return None
        with self.clock.paused():
            if keeper is not None:
                keeper.hold(self._progress())
            reason = self.on_epoch(record) if self.on_epoch is not None else None
            if keeper is not None and reason is None:
                keeper.write_if_due()
        return reason

    def _poll(self) -> StopReason | None:
        limit = self.config.training.time_limit_s
        if self.should_stop is not None and (reason := self.should_stop()) is not None:
            return reason
        return StopReason.TIME_LIMIT if limit is not None and self.clock.elapsed() >= limit else None

    def _result(self, reason: StopReason, message: str, model: nn.Module | None) -> FitResult:
        wall_clock_s = self.clock.elapsed()
        epochs_worth = self.n_windows / len(self.data.train)
        return FitResult(
            stopped_by=reason,
            message=message,
            epochs=len(self.history),
            best_epoch=self.best.epoch if self.best else 0,
            best_val_loss=self.best.val_loss if self.best else math.nan,
            wall_clock_s=wall_clock_s,
            setup_s=self.setup_s,
            time_to_best_s=self.best.elapsed_s if self.best else math.nan,
            total_s=time.perf_counter() - self.began,
            s_per_epoch=wall_clock_s / epochs_worth if epochs_worth else math.nan,
            samples_per_s=self.n_windows / wall_clock_s if wall_clock_s else math.nan,
            peak_memory_bytes=_peak_memory(self.device),
            n_parameters=self.n_parameters,
            backend=self.ran[0],
            backend_fallback=self.ran[1],
            precision=self.config.training.precision,
            history=tuple(self.history),
            model=model,
            resumed_from=self.resumed_from,
            timed_from=self.timed[0],
            timed_until=self.timed[1],
            context_lost=self.context_lost,
        )


def _peak_memory(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # kilobytes everywhere but on macOS
