"""Advice on a training of ours: each piece tried, and the bottleneck in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from tuner.bench.contender import trained_with, with_batch
from tuner.config import Backend, CompileMode, Precision, RunConfig
from tuner.data.windows import DeviceData
from tuner.errors import UsageError
from tuner.models.fault import FAULTS, on_one_line
from tuner.profile.profile_records import Advice, AtBatch, Pace, Stages
from tuner.profile.script_changes import no_waits, without
from tuner.profile.stage_times import NoMemoryError, Paced, Patch, Running, guarded, measure_pace
from tuner.profile.variant_faults import Faults, Loop, batched_gain, saved_share
from tuner.training.stage_marks import Stage
from tuner.trial.job import lost_context

# Settings that may help: each a configuration to be run through the same measurement.


NEAR = 1.1
"""A smaller batch is preferred to one that is faster by less than this."""

LEAST_SHARE = 0.05
"""Of the epoch: what takes less is not worth a trial that lessens it."""

TINY = 2.0
"""A batch is called tiny where a larger one more than halves the time of a window."""

ACCUMULATED = 4
SELDOM = 2
"""Epochs from one validation to the next, as it is tried."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """One setting, changed, and the advice that it would be."""

    advice: Advice
    config: RunConfig


def candidates(now: Trials) -> Iterator[Candidate | Advice]:
    """What to try, and, of what there is nothing to try, why not."""
    yield _batch(now)
    yield from _backends(now)
    yield from _precisions(now)
    yield _accumulation(now)
    yield _validation(now)
    yield Advice(
        change="a fused optimiser",
        outcome="there is one already: AdamW in one kernel, on a CPU too",
    )
    yield Advice(
        change="workers that load data",
        outcome="there is nothing to load: all windows lie on the device",
    )


def _batch(now: Trials) -> Candidate | Advice:
    present = now.config.hyperparameters.batch_size
    known = {
        each.batch_size: each.step_s / each.batch_size
        for each in now.memory
        if each.step_s is not None and each.batch_size >= present
    }
    begun = Advice(change="a larger batch")
    if len(known) < 2:  # noqa: PLR2004 - the present one, and one to compare it with
        failure = now.memory[-1].failure if now.memory else ""
        why = failure or "an epoch has no more windows"
        return replace(begun, outcome=f"none was tried: {why}")
    fastest = min(known.values())
    size = min(size for size, window_s in known.items() if window_s <= fastest * NEAR)
    if size == present:
        outcome = f"no gain: windows of a batch of {max(known)} take as long"
        return replace(begun, outcome=outcome)
    why = f"a step of {size} windows takes {known[size] * size / (known[present] * present):.1f} "
    advice = Advice(
        change=f"batch_size {size} in place of {present}",
        why=why + f"times as long as one of {present}",
        mathematics="fewer updates an epoch: tune learning_rate anew",
        fault=known[present] / fastest >= TINY,
    )
    return Candidate(advice, with_batch(now.config, size))


def _backends(now: Trials) -> Iterator[Candidate | Advice]:
    on_gpu = now.device.type == "cuda"
    there = [Backend.COMPILE, Backend.EAGER]
    if on_gpu:
        there = [Backend.GRAPH, Backend.TRITON, *there]
    ran = now.present.backend
    for backend in there:
        if backend.value == ran:
            continue
        begun = Advice(change=f"backend {backend.value} in place of {ran}")
        if now.waits and backend is not Backend.EAGER and on_gpu:
            outcome = "not tried: a step that waits for the device cannot be captured"
            yield replace(begun, outcome=outcome)
        else:
            advice = replace(begun, why=_of_backend(backend, now.device))
            yield Candidate(advice, trained_with(now.config, backend=backend))
    for mode in CompileMode if on_gpu and ran == Backend.COMPILE.value else ():
        if mode is not now.config.training.compile_mode:
            advice = Advice(
                change=f"compile_mode {mode.value}",
                why="torch.compile searches longer, or launches what it made as one",
            )
            yield Candidate(advice, trained_with(now.config, compile_mode=mode))


def _of_backend(backend: Backend, device: torch.device) -> str:
    if backend is Backend.COMPILE and device.type == "cpu":
        return "C++ kernels for what stands between the products"
    return {
        Backend.GRAPH: "the whole step is captured, and launched at once",
        Backend.TRITON: "fused kernels in a captured step",
        Backend.COMPILE: "torch.compile in a captured step",
    }.get(backend, "plain operations, one after the other")


def _precisions(now: Trials) -> Iterator[Candidate]:
    present = now.config.training.precision
    on_gpu = now.device.type == "cuda"
    wanted = [Precision.BF16, *([Precision.FP16] if on_gpu else [])]
    if on_gpu and present is Precision.FP32:
        wanted.insert(0, Precision.TF32)
    for precision in wanted:
        if precision is present or present.half:
            continue
        advice = Advice(
            change=f"precision {precision.value} in place of {present.value}",
            why="products in fewer bits, on tensor cores where there are any",
            mathematics="rounding: compare the error of the forecasts",
        )
        # The present backend may not know the precision: auto finds one that does.
        yield Candidate(advice, trained_with(now.config, precision=precision))


def _accumulation(now: Trials) -> Candidate | Advice:
    share = now.stages.share(Stage.OPTIMISER)
    if now.config.hyperparameters.accumulate is not None:
        return Advice(change="accumulation", outcome="not tried: the variant searches it")
    if share < LEAST_SHARE:
        outcome = f"not tried: the optimiser takes {share:.0%} of an epoch"
        return Advice(change="accumulation", outcome=outcome)
    accumulate = now.config.accumulate * ACCUMULATED
    advice = Advice(
        change=f"accumulate {accumulate}",
        why=f"the optimiser takes {share:.0%} of an epoch",
        mathematics="fewer updates an epoch: tune learning_rate anew",
    )
    return Candidate(advice, trained_with(now.config, accumulate=accumulate))


def _validation(now: Trials) -> Candidate | Advice:
    share = now.stages.share(Stage.VALIDATION)
    if share < LEAST_SHARE:
        outcome = f"not tried: it takes {share:.0%} of an epoch"
        return Advice(change="validation every other epoch", outcome=outcome)
    every = now.config.training.validate_every * SELDOM
    advice = Advice(
        change=f"validate_every {every}",
        why=f"validation takes {share:.0%} of an epoch",
        mathematics="early stopping looks less often, and the best weights may be missed",
    )
    return Candidate(advice, trained_with(now.config, validate_every=every))


NO_WAIT = "a CPU waits for nothing: the gain is to be had on a GPU"


def of_dead(parts: Sequence[str], nothing: str) -> Advice:
    """Of parts that get no gradient: no `nothing` depends on them."""
    named = ", ".join(parts[:3])
    return Advice(
        change=f"leave {named} out of the network, or use what it gives",
        why=f"no parameter of {named} ever gets a gradient: no {nothing} depends on it",
        fault=True,
    )


def of_loop(name: str, kind: str, calls: int, share: float) -> Advice:
    """Of parts that are called one after the other, which take this share of the forward pass."""
    return Advice(
        change=f"run {name} as one call over a batched input",
        why=(
            f"{name} ({kind}) is called {calls} times a step, one after "
            f"the other: {share:.0%} of the forward pass"
        ),
        fault=True,
    )


def computing(stages: Stages) -> float:
    """The share of an epoch that a network's own arithmetic takes."""
    return stages.share(Stage.FORWARD, Stage.BACKWARD, Stage.OPTIMISER)


MOST_S = 8.0
"""For the timed steps of one candidate, as the present pace has it."""

LEAST_STEPS = 9

NO_GAIN = "no gain"

CERTAIN_GAIN = 1.5
"""From so much on, a setting that changes the mathematics is called a fault."""


class DeviceLostError(Exception):
    """Something that was tried left the process without its device: nothing more can be tried."""

    def __init__(self, advice: Advice) -> None:
        super().__init__(advice.outcome)
        self.advice = advice


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """What is known of a training, and tries candidates on its data, one after the other."""

    config: RunConfig
    data: DeviceData
    present: Paced
    steps: int
    announce: Callable[[str], None]
    stages: Stages
    memory: Sequence[AtBatch] = ()
    waits: bool = False
    """Whether a line of the network's reads a value from the device: it cannot be captured."""
    beside: Running | None = None
    """The present training, still running; None where two do not fit side by side."""

    @property
    def device(self) -> torch.device:
        return self.data.minimum.device

    def of_settings(self, found: Iterable[Candidate | Advice]) -> Iterator[Advice]:
        for each in found:
            if isinstance(each, Advice):
                yield each
                continue
            self.announce(f"trying {each.advice.change}")
            yield self._tried(each.advice, each.config)

    def of_faults(self, faults: Faults) -> Iterator[Advice]:
        if faults.dead:
            self.announce(f"trying the network without {', '.join(faults.dead[:3])}")
            advice = of_dead(faults.dead, "forecast")
            yield self._tried(advice, self.config, without(faults.dead))
        for loop in faults.loops:
            self.announce(f"trying {loop.name} as one call")
            yield self._as_one(loop, faults.whole_s)
        if faults.waits.found:
            yield self._without_waits(faults)

    def _without_waits(self, faults: Faults) -> Advice:
        named = "; ".join(str(each) for each in faults.waits.found[:3])
        begun = Advice(
            change="write it with operations on tensors alone",
            why=f"each step waits for the device: {named}",
            fault=True,
        )
        if self.device.type == "cpu":
            return replace(begun, outcome=NO_WAIT)
        self.announce("trying the network without waiting")
        return self._tried(begun, self.config, no_waits)

    def _as_one(self, loop: Loop, whole_s: float) -> Advice:
        begun = of_loop(loop.name, loop.kind, len(loop.calls), loop.share)
        if self.device.type == "cuda" and self.present.backend != Backend.EAGER.value:
            begun = replace(begun, outcome="timed as plain operations, though the step is captured")
        try:
            loop_s, one_s = guarded(batched_gain)(loop, self.device, fused=True)
        except Exception as error:
            if lost_context(error):
                raise
            return replace(begun, outcome=f"not tried: {on_one_line(error)}")
        pace = self.present.pace
        saved = computing(self.stages) * saved_share(loop_s, one_s, whole_s)
        return judged(begun, replace(pace, epoch_s=pace.epoch_s * (1 - saved)), pace)

    def _tried(self, begun: Advice, config: RunConfig, patch: Patch | None = None) -> Advice:
        """The advice with what it gave, or why it did not."""
        try:
            found, now = measure_pace(
                config, self.data, steps=self._fitting(), patch=patch, beside=self.beside
            )
        except NoMemoryError as error:
            return replace(begun, outcome=f"out of memory: {error}")
        except UsageError as error:
            return replace(begun, outcome=f"not possible here: {error}")
        except FAULTS as error:
            failed = replace(begun, outcome=f"failed: {on_one_line(error)}")
            if lost_context(error):
                raise DeviceLostError(failed) from error
            return failed
        if found.fallback:
            return replace(begun, outcome=f"not possible here: {found.fallback}")
        return judged(begun, found.pace, self.present.pace, None if now is None else now.pace)

    def _fitting(self) -> int:
        return max(LEAST_STEPS, min(self.steps, int(MOST_S / self.present.pace.step_s)))


def judged(begun: Advice, after: Pace, before: Pace, now: Pace | None = None) -> Advice:
    """With the gain on seconds an epoch per window.

    Args:
        begun: what was tried.
        after: its pace.
        before: the present pace.
        now: the present pace, measured again in turns with what was tried: the gain is by it.
    """
    gain = (before if now is None else now).window_s / after.window_s
    certain = begun.fault and (gain >= CERTAIN_GAIN or not begun.mathematics)
    tried = replace(begun, gain=gain, epoch_s=before.epoch_s / gain, fault=certain)
    if tried.helps:
        return tried
    return replace(tried, outcome="; ".join(filter(None, (NO_GAIN, tried.outcome))))
