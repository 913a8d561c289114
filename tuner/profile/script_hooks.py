"""Hooks in somebody else's training: where its steps begin, and where their stages end."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data import dataloader

from tuner.profile.profile_records import (
    Busy,
    Pace,
    Profile,
    Recorder,
    Recording,
    how_recorded,
    merged,
    moment,
    of_falling,
    of_no_number,
    seconds_between,
    stages_of,
    trend_of,
)
from tuner.profile.script_changes import replaced
from tuner.training.stage_marks import Stage

# What hooks saw of somebody else's training.


@dataclass(slots=True)
class Loader:
    """What is known of the training's DataLoader."""

    batches: int | None = None
    samples: int | None = None
    batch_size: int | None = None
    workers: int = 0

    @property
    def windows(self) -> int:
        """Of an epoch; 0 where its length is unknown."""
        if self.batches and self.batch_size:
            whole = self.batches * self.batch_size
            return min(whole, self.samples or whole)
        return self.samples or 0


@dataclass(slots=True)
class Observed:
    """What the hooks saw."""

    steps: list[float] = field(default_factory=list)
    """Seconds of each timed step without validation, unrecorded."""
    validations: list[float] = field(default_factory=list)
    """Seconds by which a step with validation before it took longer."""
    recordings: list[Recording] = field(default_factory=list)
    recorded_steps: int = 0
    samples: int = 0
    sampled_steps: int = 0
    loader: Loader = field(default_factory=Loader)
    network: nn.Module | None = None
    inputs: tuple[tuple[Any, ...], dict[str, Any]] | None = None
    alive: set[str] = field(default_factory=set)
    began: float = 0.0
    setup_s: float = 0.0
    busy: float | None = None
    """Of one core, in per cent, what this process did in the timed steps."""
    loss: Tensor | None = None
    """The last one."""


SETTLE = 8
"""Steps before anything is timed."""

ROUNDS = 3
"""Recorded and unrecorded steps take turns."""


class EnoughError(BaseException):
    """All steps that were wanted are done: no `except Exception` of the script's holds it up."""


class Hooks:
    """Counts optimiser steps, and records the stages of some.

    Args:
        steps: to be timed; a third as many are recorded, in turns with these.
        on_network: told the network after its first step.
        ended: called after the last one.
    """

    def __init__(
        self, steps: int, *, on_network: Callable[[nn.Module], None], ended: Callable[[], None]
    ) -> None:
        self.seen = Observed(began=time.perf_counter())
        self._block = max(1, steps // ROUNDS)
        self._recorded = max(1, self._block // 3)
        self._on_network = on_network
        self._ended = ended
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self._recorder = Recorder(self.device)
        self._recording = False
        self._optimizer: Any = None
        self.number = 0
        """Of steps so far."""
        self._validated = False
        self._clocks = 0.0, 0.0
        self._last_loader: Any = None
        self._searching: Any = None
        self._on_network_hooks: list[Any] = []
        self._moments: list[tuple[Any, bool, bool]] = []

    @contextmanager
    def installed(self) -> Iterator[None]:
        """In here the process's trainings are watched."""
        with ExitStack() as stack:
            self._searching = register_module_forward_pre_hook(self._looking_for_network)
            for hook in (
                self._searching,
                register_optimizer_step_pre_hook(self._before_step),
                register_optimizer_step_post_hook(self._after_step),
            ):
                stack.callback(hook.remove)
            stack.callback(self._leave_network)
            stack.enter_context(self._replaced(torch.Tensor, "backward", self._backward))
            stack.enter_context(self._replaced(torch.Tensor, "to", self._moved))
            stack.enter_context(self._replaced(torch.Tensor, "cuda", self._moved))
            loaders = dataloader._BaseDataLoaderIter  # noqa: SLF001 - all loaders' iterators are one
            stack.enter_context(self._replaced(loaders, "__next__", self._loaded))
            yield

    def mark(self, stage: Stage) -> None:
        if self._recording:
            self._recorder(stage)

    # What the hooks see, in the order of a step.

    def _loaded(self, plain: Callable[..., Any], iterator: Any, *args: Any) -> Any:
        of_training = self.seen.network is None or self.seen.network.training
        begins = of_training and iterator is not self._last_loader
        self.mark(Stage.BETWEEN if begins else Stage.OTHER)
        try:
            return plain(iterator, *args)
        finally:
            if of_training:
                self._last_loader = iterator
            self.mark(Stage.DATA if of_training else Stage.VALIDATION)

    def _moved(self, plain: Callable[..., Any], tensor: Tensor, *args: Any, **named: Any) -> Any:
        if not self._recording:
            return plain(tensor, *args, **named)
        self._recorder(Stage.OTHER)
        found = plain(tensor, *args, **named)
        copied = found.device != tensor.device
        self._recorder(Stage.TRANSFER if copied else Stage.OTHER)
        return found

    def _looking_for_network(self, module: nn.Module, *_: Any) -> None:
        """The outermost module that is called in training, until a step has made sure of it."""
        found = self.seen.network
        if not module.training or not torch.is_grad_enabled() or found is module:
            return
        if next(module.parameters(), None) is None:
            return
        if found is None or any(inner is found for inner in module.modules()):
            self.seen.network = module

    def _entered(self, module: nn.Module, args: Any, named: Any) -> None:
        training = torch.is_grad_enabled() and module.training
        self._validated |= not training
        if not training:
            return
        self.mark(Stage.OTHER)
        self.seen.inputs = (args, named)
        tensor = next((each for each in (*args, *named.values()) if isinstance(each, Tensor)), None)
        if tensor is not None and tensor.ndim and self.number >= SETTLE:
            self.seen.samples += tensor.shape[0]

    def _left(self, module: nn.Module, *_: Any) -> None:
        training = torch.is_grad_enabled() and module.training
        self.mark(Stage.FORWARD if training else Stage.VALIDATION)

    def _backward(self, plain: Callable[..., Any], tensor: Tensor, *args: Any, **named: Any) -> Any:
        self.mark(Stage.FORWARD)  # the loss, since the network's forward pass was over
        self.seen.loss = tensor.detach()
        found = plain(tensor, *args, **named)
        self.mark(Stage.BACKWARD)
        return found

    def _before_step(self, optimizer: Any, *_: Any) -> None:
        if self._optimizer is None:
            self._optimizer = optimizer
        network = self.seen.network
        if network is not None and self.number < SETTLE - 1:
            for name, parameter in network.named_parameters():
                if parameter.grad is not None and bool(parameter.grad.any()):
                    self.seen.alive.add(name)

    def _after_step(self, optimizer: Any, *_: Any) -> None:
        self.mark(Stage.OPTIMISER)
        if optimizer is not self._optimizer:
            return
        self.number += 1
        if self.number == 1:
            self._searching.remove()
        if self.number == 1 and self.seen.network is not None:
            network = self.seen.network
            self._on_network_hooks = [
                network.register_forward_pre_hook(self._entered, with_kwargs=True),
                network.register_forward_hook(self._left),
            ]
            self._on_network(network)
        if self.number >= SETTLE:
            self._timed()

    # When what is timed.

    def _timed(self) -> None:
        """A step is over: a moment is noted, and at the end of a block the next one begins."""
        done = self.number - SETTLE
        if done == 0:
            self._know_loader()
            self._clocks = time.perf_counter(), time.process_time()
            self.seen.setup_s = self._clocks[0] - self.seen.began
        else:
            self._note()
        if done == ROUNDS * (self._block + self._recorded):
            self.finish()
            self._ended()
            return
        within = done % (self._block + self._recorded)
        if within == 0:
            self._stop_recording()
            self._moments.append((moment(self.device), False, True))
        elif within == self._block:
            self._recorder.start()
            self._recording = True

    def _note(self) -> None:
        self.seen.sampled_steps += 1
        if self._recording:
            self.seen.recorded_steps += 1
        else:
            self._moments.append((moment(self.device), self._validated, False))
        self._validated = False

    def _stop_recording(self) -> None:
        if self._recording:
            self._recording = False
            self.seen.recordings.append(self._recorder.stop())

    def finish(self) -> None:
        """What there is, is reckoned with: also where the training ends before all steps."""
        if self.number > SETTLE:
            took, computed = time.perf_counter(), time.process_time()
            self.seen.busy = 100 * (computed - self._clocks[1]) / (took - self._clocks[0])
            self._stop_recording()
            self._reckon()

    def _reckon(self) -> None:
        """From moments to seconds; a block begins with a moment of its own."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        before: Any = None
        usual: list[float] = []
        validated: list[float] = []
        for now, after_validation, begins in self._moments:
            if before is not None and not begins:
                (validated if after_validation else usual).append(seconds_between(before, now))
            before = now
        self.seen.steps = usual
        if usual:
            middle = sorted(usual)[len(usual) // 2]
            self.seen.validations = [max(0.0, took - middle) for took in validated]

    def _know_loader(self) -> None:
        loader, found = self._last_loader, self.seen.loader
        if loader is None:
            return
        found.workers = int(getattr(loader, "_num_workers", 0))
        sampler = getattr(loader, "_index_sampler", None)
        size = getattr(sampler, "batch_size", None)
        found.batch_size = size if isinstance(size, int) else None
        try:
            found.batches = len(sampler) if sampler is not None else None
            found.samples = len(loader._dataset)  # noqa: SLF001 - the iterator's, which has no other name
        except TypeError:  # a stream has no length
            found.batches = found.samples = None

    def _leave_network(self) -> None:
        for hook in self._on_network_hooks:
            hook.remove()

    @staticmethod
    def _replaced(kind: type, name: str, by: Callable[..., Any]) -> AbstractContextManager[None]:
        plain = getattr(kind, name)

        @functools.wraps(plain)
        def method(self_: Any, *args: Any, **named: Any) -> Any:
            return by(plain, self_, *args, **named)

        return replaced(kind, {name: method})


# What hooks saw, as a profile.


TICKS = 60
"""Stretches that the throughput is looked at in."""


def profile_of(hooks: Hooks, *, of_an_epoch: bool) -> Profile:
    """Pace, stages and throughput of a training of which some steps were timed: the rest needs more
    than its run. Whether throughput falls is said of an epoch, or of the steps that there were.
    """
    seen, loader, pace = hooks.seen, hooks.seen.loader, _pace_of(hooks.seen)
    trend = trend_of(ticks_of(seen.steps), seen.sampled_steps)
    steps = round(pace.windows / pace.batch_size) if of_an_epoch else seen.sampled_steps
    broken = seen.loss is not None and not bool(seen.loss.isfinite().all())
    faults = [of_falling(trend, steps), of_no_number(seen.sampled_steps) if broken else None]
    recorded, how = merged(seen.recordings), how_recorded(hooks.device)
    return Profile(
        busy=Busy(process=seen.busy),
        subject="" if seen.network is None else type(seen.network).__name__,
        device="",
        settings={"batch": pace.batch_size, "workers": loader.workers},
        pace=pace,
        stages=stages_of(recorded, seen.recorded_steps, pace, how=how),
        trend=trend,
        advice=tuple(each for each in faults if each is not None),
    )


def _pace_of(seen: Observed) -> Pace:
    """An epoch is as long as its DataLoader."""
    step_s, loader = usual(seen.steps), seen.loader
    a_step = seen.samples / seen.sampled_steps or loader.batch_size or 1
    windows = loader.windows
    validation_s = statistics.median(seen.validations) if seen.validations else 0.0
    return Pace(
        batch_size=_batch(a_step, loader.batch_size),
        windows=windows,
        step_s=step_s,
        epoch_s=step_s * windows / a_step + validation_s if windows else step_s,
        validation_s=validation_s,
        setup_s=seen.setup_s,
    )


def usual(steps: Sequence[float], parts: int = 5) -> float:
    """Seconds of a step: the median of the means of some stretches.

    A mean, since loaders with workers are fast and slow in turns; a median, since whatever else a
    machine does comes in stretches.
    """
    return statistics.median(ticks_of(steps, parts))


def ticks_of(steps: Sequence[float], parts: int = TICKS) -> list[float]:
    """Means of equal stretches."""
    each = max(1, len(steps) // parts)
    firsts = range(0, len(steps) - each + 1, each)
    return [statistics.fmean(steps[first : first + each]) for first in firsts]


def _batch(a_step: float, loaded: int | None) -> int:
    """Windows of a usual step: of the loader's batch, or of as many as add up to one update.

    The mean is a little less where an epoch's last batch is short.
    """
    if loaded is None or a_step < loaded / 2:
        return max(1, round(a_step))
    return loaded * max(1, round(a_step / loaded))
