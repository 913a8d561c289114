"""Where a training stands: its clock, its epochs so far, and the best of them.

Checkpoints and results are made of this. It holds no tensor, so that it survives when memory runs
out.
"""

from __future__ import annotations

import math
import resource
import sys
import time
from dataclasses import dataclass, field

import torch
from torch import nn

from tuner.config import Backend, EpochRecord, Precision, RunConfig, StopReason
from tuner.training.checkpoint import Progress
from tuner.training.clock import Clock

# What a training leaves behind. The outcome is data: a diverged training returns one too.


@dataclass(frozen=True, slots=True, kw_only=True)
class FitResult:
    """How a training went. Times are in seconds; a figure that does not exist is NaN.

    `fit` returns it:

    >>> from tuner import Architecture, Hyperparameters, RunConfig, TrainingSettings, fit, load_data
    >>> chosen = Hyperparameters(
    ...     learning_rate=1e-3, weight_decay=0.0, batch_size=256, dropout=0.1, hidden_size=16
    ... )
    >>> config = RunConfig(
    ...     architecture=Architecture(model="rmsnorm"),
    ...     hyperparameters=chosen,
    ...     training=TrainingSettings(max_epochs=1),
    ... )
    >>> result = fit(config, load_data("demo"))
    >>> result.stopped_by.value, result.s_per_epoch > 0
    ('epoch_limit', True)
    """

    stopped_by: StopReason
    message: str
    """One line for a person: why it stopped."""
    epochs: int
    """Finished epochs, the length of `history`."""
    best_epoch: int
    """Epoch of the lowest validation loss, whose weights the model has; 0 where none finished."""
    best_val_loss: float
    wall_clock_s: float
    """Training and validation, first step to stop, after warm-up; device idle at both ends."""
    setup_s: float
    """Building the model and warming up."""
    time_to_best_s: float
    """The clock at the end of the best epoch."""
    total_s: float
    """Everything, from the call of `fit` to its return."""
    s_per_epoch: float
    """`wall_clock_s` per epoch's worth of training windows."""
    samples_per_s: float
    """Training windows per second of `wall_clock_s`."""
    peak_memory_bytes: int
    """CUDA: most memory allocated in this training. CPU: the process's peak resident memory."""
    n_parameters: int
    backend: Backend
    """The one that ran, never `auto`."""
    backend_fallback: str
    """Why that is not the one asked for, or that `auto` takes at these sizes; empty where it is."""
    precision: Precision
    history: tuple[EpochRecord, ...]
    model: nn.Module | None
    """In evaluation mode, with the best epoch's weights; None where memory ran out.

    On the data's device.
    """
    resumed_from: int = 0
    """The epoch after which it went on from a checkpoint; 0 where it ran in one go.

    Its clock is the sum all the same, set-up is its first attempt's, and so is what `total_s`
    counts.
    """
    checkpoint_load_s: float | None = None
    """Seconds that it took to read the checkpoint and put it back, off the clock; None without."""
    timed_from: float = math.nan
    """When its clock started in this process, in seconds since 1970 on this machine's clock."""
    timed_until: float = math.nan
    """When it stopped."""
    n_frozen: int = 0
    """Parameters that are not trained, and not among `n_parameters`."""
    context_lost: bool = False
    """Memory ran out in a capture that could not be ended: torch takes it to be still under way.

    The result stands, but only a fresh process can go on.
    """


# When a validation loss has stopped falling.


@dataclass(slots=True)
class EarlyStopping:
    """Lightning's rule: over after `patience` epochs in a row without an improvement.

    Epochs that were not validated count: it is over at a validated epoch at least `patience` epochs
    after the best one. An epoch improves when its loss is below `best - min_delta`; only then does
    `best` move. `best` is therefore not always the lowest loss seen: several small steps down, each
    within `min_delta`, leave it where it was. The weights that a training keeps are those of the
    strictly lowest loss,
    which `fit` tracks apart.
    """

    patience: int
    min_delta: float
    best: float = field(default=math.inf, init=False)
    waited: int = field(default=0, init=False)

    def update(self, loss: float, epochs: int = 1) -> bool:
        """Takes the loss of the next validated epoch, `epochs` after the last one; True when the
        training is over.
        """
        if loss < self.best - self.min_delta:
            self.best = loss
            self.waited = 0
        else:
            self.waited += epochs
        return self.waited >= self.patience


@dataclass(slots=True, kw_only=True)
class RunState:
    """One training's state on the host. Times are in seconds.

    Args:
        config: of the training.
        device: which it runs on.
        epoch_windows: training windows of a whole epoch.
        clock: counts `wall_clock_s`.
        backend: what is expected to run, until an engine is made.
        began: when its set-up began, by `time.perf_counter`. A resumed training counts that of its
            first attempt only.
        deadline: the moment, by `time.perf_counter`, by which all of it is to be over, the network
            evaluated: no epoch is begun that would be too long, and one under way is cut short.
    """

    config: RunConfig
    device: torch.device
    epoch_windows: int
    clock: Clock
    backend: Backend
    began: float
    deadline: float | None = None
    fallback: str = field(default="", init=False)
    early_stopping: EarlyStopping = field(init=False)
    learning_rate: float = field(init=False)
    timed_from: float = field(default=math.nan, init=False)
    timed_until: float = field(default=math.nan, init=False)
    resumed_from: int = field(default=0, init=False)
    checkpoint_load_s: float | None = field(default=None, init=False)
    setup_s: float = field(default=math.nan, init=False)
    n_parameters: int = field(default=0, init=False)
    n_frozen: int = field(default=0, init=False)
    n_windows: int = field(default=0, init=False)
    """Training windows so far."""
    history: list[EpochRecord] = field(default_factory=list, init=False)
    best: EpochRecord | None = field(default=None, init=False)
    context_lost: bool = field(default=False, init=False)
    others_bytes: int = field(default=0, init=False)
    """Allocated on the device for trainings to come: kept engines that this one does not use."""
    earlier_peak_bytes: int = field(default=0, init=False)
    """The most that earlier trainings on its engine had allocated: what setting it up took."""

    def __post_init__(self) -> None:
        settings = self.config.training
        self.early_stopping = EarlyStopping(settings.patience, settings.min_delta)
        self.learning_rate = self.config.hyperparameters.learning_rate

    def end_setup(self) -> None:
        """From now on it trains; set-up that was cut short ends here too."""
        if math.isnan(self.setup_s):
            self.setup_s = time.perf_counter() - self.began

    def resume(self, progress: Progress) -> None:
        """Go on where a checkpoint stands."""
        self.resumed_from = progress.epoch
        self.history = list(progress.history)
        self.best = self.history[progress.best_epoch - 1] if progress.best_epoch else None
        best = progress.stopping_best
        self.early_stopping.best = math.inf if best is None else best
        self.early_stopping.waited = progress.stopping_waited
        self.learning_rate = progress.learning_rate
        self.n_windows = progress.n_windows
        self.setup_s = progress.setup_s
        self.began = time.perf_counter() - progress.total_s
        self.clock.restore(progress.elapsed_s)

    def progress(self) -> Progress:
        """To be asked between two epochs, with the clock paused."""
        stopping_best = self.early_stopping.best
        return Progress(
            epoch=len(self.history),
            learning_rate=self.learning_rate,
            stopping_best=stopping_best if math.isfinite(stopping_best) else None,
            stopping_waited=self.early_stopping.waited,
            best_epoch=self.best.epoch if self.best else 0,
            n_windows=self.n_windows,
            elapsed_s=self.clock.elapsed(),
            setup_s=self.setup_s,
            total_s=time.perf_counter() - self.began,
            history=tuple(self.history),
        )

    def validates(self, epoch: int) -> bool:
        """Whether an epoch, counted from 1, is one of those that are validated in any case."""
        settings = self.config.training
        return epoch % settings.validate_every == 0 or epoch == settings.max_epochs

    def add_epoch(self, train_loss: float, val_loss: float | None) -> EpochRecord:
        """The record of an epoch that is over; `best` where its validation loss is the lowest yet.

        That loss is None where it was not validated.
        """
        record = EpochRecord(
            epoch=len(self.history) + 1,
            train_loss=train_loss,
            val_loss=val_loss,
            learning_rate=self.learning_rate,
            elapsed_s=self.clock.elapsed(),
        )
        self.history.append(record)
        if val_loss is not None and (self.best is None or val_loss < best_loss(self.best)):
            self.best = record
        return record

    def ended_by(self, record: EpochRecord) -> tuple[StopReason, str] | None:
        """Why the training is over with its latest epoch, and in words; None where it goes on."""
        settings = self.config.training
        if record.val_loss is None:
            return None  # the last epoch of a training is validated
        if self.early_stopping.update(record.val_loss, self._since_validated()):
            return (
                StopReason.CONVERGED,
                f"no improvement by more than {settings.min_delta:g} in {settings.patience} epochs",
            )
        if settings.time_limit_s is not None and record.elapsed_s >= settings.time_limit_s:
            return (
                StopReason.TIME_LIMIT,
                f"time limit of {settings.time_limit_s:g} s reached in epoch {record.epoch}",
            )
        if self.ends_by_deadline(self.latest_epoch_s()):
            return StopReason.TIME_LIMIT, f"its device hours are spent after epoch {record.epoch}"
        if record.epoch == settings.max_epochs:
            return StopReason.EPOCH_LIMIT, f"epoch limit of {settings.max_epochs} reached"
        return None

    def _since_validated(self) -> int:
        """Epochs from the validation before the latest one until now."""
        for index in range(len(self.history) - 2, -1, -1):
            if self.history[index].val_loss is not None:
                return len(self.history) - self.history[index].epoch
        return len(self.history)

    def ends_by_deadline(self, epoch_s: float) -> bool:
        """Whether another epoch, and as long again for what follows, would be over too late."""
        return self.deadline is not None and time.perf_counter() + 2 * epoch_s >= self.deadline

    def is_its_last(self) -> bool:
        """Whether time ends the training with the epoch that is not yet recorded."""
        if self.out_of_time():
            return True
        if self.deadline is None:
            return False
        before = self.history[-1].elapsed_s if self.history else 0.0
        return self.ends_by_deadline(self.clock.elapsed() - before)

    def latest_epoch_s(self) -> float:
        """What the latest epoch took, on the clock."""
        before = self.history[-2].elapsed_s if len(self.history) > 1 else 0.0
        return self.history[-1].elapsed_s - before

    def out_of_time(self) -> bool:
        """Whether the time limit is reached, as far as the host knows."""
        if self.deadline is not None and time.perf_counter() >= self.deadline:
            return True
        limit = self.config.training.time_limit_s
        return limit is not None and self.clock.elapsed() >= limit

    def result(self, reason: StopReason, message: str, model: nn.Module | None) -> FitResult:
        """What `fit` returns, with the clock stopped."""
        wall_clock_s = self.clock.elapsed()
        epochs_worth = self.n_windows / self.epoch_windows
        return FitResult(
            stopped_by=reason,
            message=message,
            epochs=len(self.history),
            best_epoch=self.best.epoch if self.best else 0,
            best_val_loss=best_loss(self.best) if self.best else math.nan,
            wall_clock_s=wall_clock_s,
            setup_s=self.setup_s,
            time_to_best_s=self.best.elapsed_s if self.best else math.nan,
            total_s=time.perf_counter() - self.began,
            s_per_epoch=wall_clock_s / epochs_worth if epochs_worth else math.nan,
            samples_per_s=self.n_windows / wall_clock_s if wall_clock_s else math.nan,
            peak_memory_bytes=self.peak_memory_bytes(),
            n_parameters=self.n_parameters,
            n_frozen=self.n_frozen,
            backend=self.backend,
            backend_fallback=self.fallback,
            precision=self.config.training.precision,
            history=tuple(self.history),
            model=model,
            resumed_from=self.resumed_from,
            checkpoint_load_s=self.checkpoint_load_s,
            timed_from=self.timed_from,
            timed_until=self.timed_until,
            context_lost=self.context_lost,
        )

    def peak_memory_bytes(self) -> int:
        """CUDA: the most this training takes alone; CPU: the most the process ever took."""
        if self.device.type == "cuda":
            allocated = torch.cuda.max_memory_allocated(self.device) - self.others_bytes
            return max(allocated, self.earlier_peak_bytes)
        return peak_memory_of_process()


def best_loss(best: EpochRecord) -> float:
    """The validation loss of a training's best epoch, which was validated."""
    assert best.val_loss is not None, "an epoch that was not validated is no best one"
    return best.val_loss


def peak_memory_of_process() -> int:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # kilobytes everywhere but on macOS
