"""The protocol's training: epochs until the validation loss stops falling, under a clock."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import nn

from tuner.config import (
    EpochRecord,
    Hyperparameters,
    ModelShapes,
    Precision,
    RunConfig,
    StopReason,
)
from tuner.data.windows import DeviceData
from tuner.devices.backend_rules import why_not_together
from tuner.errors import UsageError, first_line
from tuner.files.arguments import refuse_truths
from tuner.models.fault import out_of_memory
from tuner.models.frozen_part import count_parameters
from tuner.models.registry import build_model
from tuner.training.batching import Shuffles
from tuner.training.checkpoint import Checkpoint, Checkpointer, CheckpointFiles
from tuner.training.clock import Clock, arithmetic, seeded, synchronizer
from tuner.training.engines.choose import choose_backend, make_engine, resolve_backend
from tuner.training.engines.eager import Engine, TrainedEpoch, show_windows
from tuner.training.engines.pool import EnginePool, Lent
from tuner.training.engines.ranks import Ranks
from tuner.training.model_state import Snapshot
from tuner.training.own_term import losses_in_words, skipped_in_words
from tuner.training.run_state import FitResult, RunState
from tuner.training.step import skipped_all

# Settings with which no training is possible.


def check_settings(config: RunConfig, shapes: ModelShapes) -> None:
    """Raises UsageError for settings with which no training is possible."""
    refuse_truths(config)
    h = config.hyperparameters
    for name, value in (("batch_size", h.batch_size), ("accumulate", config.accumulate)):
        if value < 1:
            raise UsageError(f"{name} must be at least 1, not {value}")
    if not h.learning_rate > 0:
        raise UsageError(f"learning_rate must be above 0, not {h.learning_rate}")
    if not h.weight_decay >= 0:
        raise UsageError(f"weight_decay must be at least 0, not {h.weight_decay}")
    if (problem := why_not_together(config.training)) is not None:
        raise UsageError(problem)
    if h.input_size not in (None, shapes.input_size):
        raise UsageError(
            f"input_size is {h.input_size}, the windows have {shapes.input_size} rows of past; "
            f"give data.seeing({h.input_size})"
        )


# The engine of one training: made for it or lent by a pool, and what becomes of it at the end.


SOUND = (
    StopReason.CONVERGED,
    StopReason.EPOCH_LIMIT,
    StopReason.TIME_LIMIT,
    StopReason.PRUNED,
    StopReason.INTERRUPTED,
)
"""Ends of a training after which its engine may serve another one."""


@dataclass(frozen=True, slots=True)
class EngineInUse:
    """An engine, warmed up, and whose it is.

    Attributes:
        engine: what trains.
        model: the training's own network: the engine's, or on the CPU where that is lent.
        pool: who lent it, and what it lent; None where the engine is this training's alone.
    """

    engine: Engine
    model: nn.Module
    pool: tuple[EnginePool, Lent] | None

    def finish(self, best: Snapshot, state: RunState, reason: StopReason) -> nn.Module:
        """The training's network with the best epoch's weights, or the last one's where its study
        says so; the engine's memory is given back.

        The network shares no memory with an engine that another training may get.
        """
        keeps_last = state.best is None or not state.config.training.restore_best_weights
        if self.pool is None:
            self.engine.close()
            if not keeps_last:
                best.restore(self.model)
            return self.model.eval()
        if keeps_last:
            best.take(self.engine.model)
        best.give_to(self.model)
        pool, lent = self.pool
        if reason in SOUND:
            pool.take_back(lent, peak_bytes=state.peak_memory_bytes())
        else:
            lent.engine.discard()
        return self.model.eval()


def ready_engine(
    state: RunState,
    data: DeviceData,
    model: nn.Module,
    pool: EnginePool | None,
    ranks: Ranks | None = None,
) -> EngineInUse:
    """The engine, warmed up: set-up is over.

    Args:
        state: of the training; told what runs, and what memory is not its own.
        data: on its device.
        model: the training's network.
        pool: asked for an engine first.
        ranks: that train it together.

    Raises:
        UsageError: a backend this device does not have.
    """
    config = state.config
    chosen = choose_backend(config, data.shapes, model, state.device, data.streamed)
    state.backend, state.fallback = chosen
    state.n_parameters, state.n_frozen = count_parameters(model)
    show_windows(model, data)
    lent = None if pool is None else pool.lend(config, data, model)
    if pool is not None:
        state.others_bytes = pool.n_bytes
    if pool is not None and lent is not None:
        state.earlier_peak_bytes = lent.peak_bytes
        used = EngineInUse(lent.engine, model, (pool, lent))
    else:
        made = make_engine(config, data, model.to(state.device), ranks)
        used = EngineInUse(made, model, None)
        made.warm_up()
    state.backend, state.fallback = used.engine.backend, used.engine.fallback
    state.clock.synchronize()
    state.end_setup()
    return used


# The device's memory before a training, and after one for which there was not enough.


def give_back_leftovers(device: torch.device, pool: EnginePool | None) -> None:
    """What earlier trainings of this process left in cycles: it would count as this one's memory.

    One that ended well on an engine of the pool leaves none, and looking for some takes a tenth of
    a second.
    """
    if device.type == "cuda" and (pool is None or not pool.took_back_last):
        gc.collect()


def without_memory(state: RunState, message: str, model: nn.Module | None) -> FitResult:
    """The result when memory ran out, with what the training held given back to the device."""
    if model is not None:
        model.zero_grad(set_to_none=True)
    gc.collect()
    if state.device.type == "cuda" and not state.context_lost:
        torch.cuda.empty_cache()
    state.clock.stop()
    state.end_setup()
    sizes, less = _sizes(state.config.hyperparameters), _with_less_memory(state.config)
    message = f"out of memory with {sizes}: {message}; {less}"
    return state.result(StopReason.OUT_OF_MEMORY, message, None)


def _sizes(hyperparameters: Hyperparameters) -> str:
    """The whole numbers of a configuration, on which its memory may depend."""
    batch_size = f"batch_size {hyperparameters.batch_size}"
    sizes = [
        f"{name} {value}"
        for name, value in hyperparameters.as_dict().items()
        if name != "batch_size" and type(value) is int
    ]
    return f"{', '.join(sizes)} and {batch_size}" if sizes else batch_size


def _with_less_memory(config: RunConfig) -> str:
    """What is left to be tried of a configuration whose training ran out of memory."""
    training, ways = config.training, ["smaller sizes", "a smaller batch_size with more accumulate"]
    if not training.checkpoint_activations:
        ways.append("checkpoint_activations")
    if not training.precision.half:
        ways.append("precision bf16")
    return f"try {', '.join(ways[:-1])} or {ways[-1]}"


def _steadier(config: RunConfig) -> str:
    """What is left to be tried of a configuration whose loss became no number."""
    training = config.training
    ways = [f"a learning_rate below {config.hyperparameters.learning_rate:.3g}"]
    ways.append(f"a gradient_clip below {training.gradient_clip:g}")
    if training.precision is Precision.FP16:
        ways.append("precision bf16")
    return f"try {', '.join(ways[:-1])} or {ways[-1]}"


# What a training is asked after every step: whether to stop, and whether at once.


ShouldStop = Callable[[], StopReason | None]


@dataclass(slots=True)
class Stopping:
    """Hears of a stop, and has an interruption wait for the epoch's end where that must be kept.

    Args:
        state: of the training.
        should_stop: asked until it gives a reason.
        checkpointer: what an interruption is to be continued from; None where it is not.
    """

    state: RunState
    should_stop: ShouldStop | None
    checkpointer: Checkpointer | None
    waiting: StopReason | None = field(default=None, init=False)
    """An interruption that was asked for in the epoch under way, and takes effect at its end."""

    def poll(self) -> StopReason | None:
        """After a step: why the epoch under way ends now."""
        if self.waiting is None and self.should_stop is not None:
            reason = self.should_stop()
            if reason is StopReason.INTERRUPTED and self._waits():
                self.waiting = reason
            elif reason is not None:
                return reason
        return StopReason.TIME_LIMIT if self.state.out_of_time() else None

    def _waits(self) -> bool:
        epochs, elapsed_s = len(self.state.history), self.state.clock.elapsed()
        return self.checkpointer is not None and self.checkpointer.waits_for_end(epochs, elapsed_s)


OnEpoch = Callable[[EpochRecord], StopReason | None]


def fit(
    config: RunConfig,
    data: DeviceData,
    *,
    on_epoch: OnEpoch | None = None,
    should_stop: ShouldStop | None = None,
    model: nn.Module | None = None,
    checkpoints: CheckpointFiles | None = None,
    on_resume: Callable[[Checkpoint], None] | None = None,
    engines: EnginePool | None = None,
    on_clock: Callable[[bool], None] = lambda _runs: None,
    deadline: float | None = None,
    ranks: Ranks | None = None,
) -> FitResult:
    """Trains one configuration to convergence on the device that holds the data.

    AdamW, gradient norm clipped over all parameters, learning rate times its decay after every
    epoch, a fresh permutation of the training windows every epoch, early stopping on the validation
    loss. The model keeps the weights of the strictly lowest validation loss, also where that fell
    by less than early stopping's `min_delta`. Same configuration, seed and device: the same result,
    bit for bit. The caller's random state is left alone.

    Args:
        config: architecture, hyperparameters, fixed settings and seed.
        data: windows on their device.
        on_epoch: called after every finished epoch, off the clock; a reason it returns ends the
            training, unless it ends by itself with that epoch. A diverged one is not finished.
        should_stop: asked after every step and so to be cheap; a reason it returns ends the
            training at once. An interruption that leaves a checkpoint awaits a short epoch's end.
        model: trains this network, in place, instead of a new one of `config.architecture`.
        checkpoints: what an interrupted attempt at this very training left is continued from, clock
            included; now and then, and when interrupted, this one leaves its own.
        on_resume: told of the checkpoint that is continued from, off the clock.
        on_clock: told, off the clock, that it is about to start (True) or has just stopped.
        engines: of earlier trainings in this process, to use and to add to; the result is the same,
            in memory of its own. Out of memory, or with `model`, they go; epochs may be told twice.
        deadline: a moment of `time.perf_counter`: no epoch is begun that would not be over, and the
            network evaluated, by then; one under way is cut short as at the time limit.
        ranks: devices that train it together, of which the data's is the first; they are at work.

    At the time limit, which counts `wall_clock_s`, the epoch under way is cut short and validated.

    Returns:
        What happened, in seconds; a loss that is no number and lack of memory are outcomes, too.

    Raises:
        UsageError: settings with which no training is possible, a backend this device does not
            have, or an architecture that cannot be built.

    Source: the reference job's protocol; docs/how-it-works.md.

    >>> from tuner import Architecture, Hyperparameters, load_data
    >>> chosen = Hyperparameters(
    ...     learning_rate=1e-3, weight_decay=0.0, batch_size=256, dropout=0.1, hidden_size=16
    ... )
    >>> once, model = TrainingSettings(max_epochs=1), Architecture(model="rmsnorm")
    >>> config = RunConfig(architecture=model, hyperparameters=chosen, training=once)
    >>> fit(config, load_data("demo")).epochs
    1
    """
    check_settings(config, data.shapes)
    if engines is not None and model is not None:
        engines.empty()

    def trained(pool: EnginePool | None) -> FitResult:
        give_back_leftovers(data.minimum.device, pool)
        told = on_epoch, should_stop, checkpoints, on_resume, pool, ranks
        return _result(_Training(data, _begin(config, data, on_clock, deadline), *told), model)

    return _beside(engines if model is None else None, trained)


def _beside(
    engines: EnginePool | None, trained: Callable[[EnginePool | None], FitResult]
) -> FitResult:
    """A training beside kept engines; without them where there was no memory for it beside them."""
    result = trained(engines)
    ran_out = result.stopped_by is StopReason.OUT_OF_MEMORY and not result.context_lost
    return trained(None) if ran_out and engines is not None and engines.empty() else result


def _result(training: _Training, model: nn.Module | None) -> FitResult:
    """How it ended; that memory ran out is one way."""
    state, message = training.state, ""
    try:
        return training.run(model)
    except Exception as error:
        if (reason := out_of_memory(error)) is None:
            raise
        message, state.context_lost = first_line(reason), reason is not error
        del reason  # it would keep the frames
    # Only out here are the frames of the failed training gone, and with them what it held.
    return without_memory(state, message, model)


def _begin(
    config: RunConfig, data: DeviceData, on_clock: Callable[[bool], None], deadline: float | None
) -> RunState:
    began, device = time.perf_counter(), data.minimum.device
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
    return RunState(
        config=config,
        device=device,
        epoch_windows=len(data.train),
        clock=Clock(synchronizer(device), told=on_clock),
        backend=resolve_backend(config, data.shapes, device),
        began=began,
        deadline=deadline,
    )


@dataclass(frozen=True, slots=True)
class _Training:
    """One training under way, and whom it tells."""

    data: DeviceData
    state: RunState
    on_epoch: OnEpoch | None
    should_stop: ShouldStop | None
    checkpoints: CheckpointFiles | None
    on_resume: Callable[[Checkpoint], None] | None
    engines: EnginePool | None
    ranks: Ranks | None

    def run(self, model: nn.Module | None) -> FitResult:
        """Set up, train, and leave the best weights in the model."""
        config, state = self.state.config, self.state
        with arithmetic(config.training.precision), seeded(config.seed, state.device) as generator:
            shuffles = Shuffles(generator, state.epoch_windows, state.device)
            if model is None:
                model = build_model(config.architecture, self.data.shapes, config.hyperparameters)
            # A model that was given is not on the CPU, as built: there `fit` lends no engine.
            used = ready_engine(state, self.data, model, self.engines, self.ranks)
            engine = used.engine
            best = engine.snapshot()
            checkpointer = self._resumed(engine, best, shuffles)
            state.clock.start()
            timed_from = time.time()
            reason, message = self._epochs(engine, best, shuffles, checkpointer)
            state.clock.stop()
            state.timed_from, state.timed_until = timed_from, time.time()
            if checkpointer is not None and reason is StopReason.INTERRUPTED:
                checkpointer.write()
            if reason.completed and skipped_all(engine.state()):
                reason, message = StopReason.DIVERGED, skipped_in_words(config)
            model = used.finish(best, state, reason)
        return state.result(reason, message, model)

    def _resumed(self, engine: Engine, best: Snapshot, shuffles: Shuffles) -> Checkpointer | None:
        """What keeps checkpoints, if asked for, with this training put where an earlier one was."""
        if self.checkpoints is None:
            return None
        checkpointer = Checkpointer(self.checkpoints, engine, best, shuffles, self.state.device)
        last_epoch, began = self.state.config.training.max_epochs, time.perf_counter()
        if (checkpoint := checkpointer.resume(before=last_epoch)) is not None:
            self.state.clock.synchronize()
            self.state.checkpoint_load_s = time.perf_counter() - began
            self.state.resume(checkpoint.progress)
            if self.on_resume is not None:
                self.on_resume(checkpoint)
        return checkpointer

    def _epochs(
        self, engine: Engine, best: Snapshot, shuffles: Shuffles, checkpointer: Checkpointer | None
    ) -> tuple[StopReason, str]:
        """Why they ended, and in words."""
        state, config = self.state, self.state.config
        stopping = Stopping(state, self.should_stop, checkpointer)
        for epoch in range(state.resumed_from + 1, config.training.max_epochs + 1):
            trained = engine.train_epoch(shuffles.next(), state.learning_rate, stopping.poll)
            state.n_windows += trained.n_windows
            if trained.stopped not in (None, StopReason.TIME_LIMIT):
                return trained.stopped, f"stopped during epoch {epoch}"
            ahead = shuffles.draw_ahead if epoch < config.training.max_epochs else None
            train_loss, val_loss = self._losses(engine, trained, epoch, ahead)
            if not math.isfinite(train_loss) or not math.isfinite(val_loss or 0.0):
                said = losses_in_words(config, train_loss, val_loss)
                return StopReason.DIVERGED, f"epoch {epoch}: {said}; {_steadier(config)}"
            record = state.add_epoch(train_loss, val_loss)
            if state.best is record:
                best.take(engine.model)
            if (ended := state.ended_by(record)) is not None:
                self._between_epochs(record, None, None)  # it is told, but cannot change that
                return ended
            state.learning_rate *= config.training.learning_rate_decay
            reason = self._between_epochs(record, stopping.waiting, checkpointer)
            if reason is not None:
                return reason, f"stopped after epoch {epoch}"
        raise AssertionError("the last epoch ends the training")

    def _losses(
        self, engine: Engine, trained: TrainedEpoch, epoch: int, ahead: Callable[[], None] | None
    ) -> tuple[float, float | None]:
        """Of training and of validation, which is None where this epoch has none.

        The last one always is validated: also one after which the time is over.

        Args:
            engine: that trained it.
            trained: what that came to.
            epoch: its number, from 1.
            ahead: what the host does while the device is still at work on this epoch.
        """
        mean = trained.loss_sum / trained.n_windows
        due = self.state.validates(epoch) or trained.stopped is not None
        losses = torch.stack([mean, engine.validation_loss()] if due else [mean])
        if ahead is not None:
            ahead()
        found = losses.tolist()  # the epoch's one wait for the device
        if not due and self.state.is_its_last():
            found += [float(engine.validation_loss())]
        return found[0], found[1] if len(found) > 1 else None

    def _between_epochs(
        self, record: EpochRecord, waiting: StopReason | None, checkpointer: Checkpointer | None
    ) -> StopReason | None:
        """What happens between two epochs, off the clock; the reason to stop.

        That is the callback's, else the one that has been `waiting` for the epoch's end.
        """
        if self.on_epoch is None and checkpointer is None:
            return waiting
        state = self.state
        with state.clock.paused():
            told = self.on_epoch(record) if self.on_epoch is not None else None
            reason = waiting if told is None else told
            interrupted = reason is StopReason.INTERRUPTED
            if checkpointer is not None and (reason is None or interrupted):
                checkpointer.epoch_ended(
                    state.progress,
                    epoch_s=state.latest_epoch_s(),
                    elapsed_s=record.elapsed_s,
                    stopping=interrupted,
                )
        return reason
