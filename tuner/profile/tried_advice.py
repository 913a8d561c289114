"""Advice on a training of ours: each piece tried, and the bottleneck in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from tuner.config import Backend, CompileMode, Precision, RunConfig
from tuner.data.windows import DeviceData
from tuner.errors import UsageError
from tuner.estimate.driven import Patch, Running, trained_with, with_batch
from tuner.models.fault import FAULTS, on_one_line
from tuner.profile.profile_records import Advice, Pace, Profile
from tuner.profile.script_changes import no_waits, without
from tuner.profile.stage_times import NoMemoryError, guarded, measure_pace
from tuner.profile.variant_faults import Faults, Loop, batched_gain
from tuner.training.stage_marks import Stage

# Settings that may help: each a configuration to be run through the same measurement.


NEAR = 1.1
"""A smaller batch is preferred to one that is faster by less than this."""

LEAST_SHARE = 0.05
"""Of the epoch: what takes less is not worth a trial that lessens it."""

TINY = 2.0
"""A batch is called tiny where a larger one more than halves the time of a window."""

NO_LARGER = "an epoch has no more windows"

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
        each.batch_size: each.step_s
        for each in now.seen.memory
        if each.step_s is not None and each.batch_size >= present
    }
    failure = now.seen.memory[-1].failure if now.seen.memory else ""
    size, advice = larger_batch(present, known, failure or NO_LARGER)
    return advice if size == present else Candidate(advice, with_batch(now.config, size))


def larger_batch(present: int, step_s: Mapping[int, float], why_none: str) -> tuple[int, Advice]:
    """The smallest batch that is about as fast as any of those tried, and the advice to take it;
    the present one, and why there is no advice.

    Args:
        present: the batch size.
        step_s: seconds a step by batch size, also of the present one.
        why_none: where no other was tried.
    """
    begun = Advice(change="a larger batch")
    window_s = {size: took / size for size, took in step_s.items()}
    if len(window_s) < 2:  # noqa: PLR2004 - the present one, and one to compare it with
        return present, replace(begun, outcome=f"none was tried: {why_none}")
    fastest = min(window_s.values())
    size = min(size for size, took in window_s.items() if took <= fastest * NEAR)
    if size == present:
        outcome = f"no gain: windows of a batch of {max(window_s)} take as long"
        return present, replace(begun, outcome=outcome)
    ratio = step_s[size] / step_s[present]
    return size, Advice(
        change=f"batch_size {size} in place of {present}",
        why=f"a step of {size} windows takes {ratio:.1f} times as long as one of {present}",
        mathematics="fewer updates an epoch: tune the learning rate anew",
        fault=window_s[present] / fastest >= TINY,
    )


def _backends(now: Trials) -> Iterator[Candidate | Advice]:
    on_gpu = now.device.type == "cuda"
    there = [Backend.COMPILE, Backend.EAGER]
    if on_gpu:
        there = [Backend.GRAPH, Backend.TRITON, *there]
    ran = now.seen.pace.backend
    for backend in there:
        if backend.value == ran:
            continue
        begun = Advice(change=f"backend {backend.value} in place of {ran}")
        if now.faults.waits.found and backend is not Backend.EAGER and on_gpu:
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
    share = now.seen.stages.share(Stage.OPTIMISER)
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
    share = now.seen.stages.share(Stage.VALIDATION)
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


def of_loop(
    loop: Loop, whole_s: float, device: torch.device, *, fused: bool, seen: Profile
) -> Advice:
    """Of parts that are called one after the other: what one call in their place would give.

    Args:
        loop: the parts.
        whole_s: of a step on the batch that the loop was seen in.
        device: where they are.
        fused: whether AdamW updates all weights in one kernel.
        seen: what was measured of the training.
    """
    begun = Advice(
        change=f"run {loop.name} as one call over a batched input",
        why=(
            f"{loop.name} ({loop.kind}) is called {len(loop.calls)} times a step, one after "
            f"the other: {loop.share:.0%} of the forward pass"
        ),
        fault=True,
    )
    try:
        loop_s, one_s = guarded(batched_gain)(loop, device, fused=fused)
    except Exception as error:  # noqa: BLE001 - a class may do anything
        return replace(begun, outcome=f"not tried: {on_one_line(error)}")
    pace, computing = seen.pace, seen.stages.share(Stage.FORWARD, Stage.BACKWARD, Stage.OPTIMISER)
    saved = computing * min(MOST_SAVED, max(0.0, loop_s - one_s) / whole_s)
    return judged(begun, replace(pace, epoch_s=pace.epoch_s * (1 - saved)), pace)


MOST_S = 8.0
"""For the timed steps of one candidate, as the present pace has it."""

LEAST_STEPS = 9

MOST_SAVED = 0.95
"""Of a step: a part cannot take longer than the whole, but two timings may say so."""

NO_GAIN = "no gain"

CERTAIN_GAIN = 1.5
"""From so much on, a setting that changes the mathematics is called a fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """What is known of a training, and tries candidates on its data, one after the other."""

    config: RunConfig
    data: DeviceData
    seen: Profile
    """What is measured of it as it is."""
    steps: int
    announce: Callable[[str], None]
    faults: Faults = field(default_factory=Faults)
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

    def of_faults(self) -> Iterator[Advice]:
        faults = self.faults
        if faults.dead:
            self.announce(f"trying the network without {', '.join(faults.dead[:3])}")
            advice = of_dead(faults.dead, "forecast")
            yield self._tried(advice, self.config, without(faults.dead))
        for loop in faults.loops:
            self.announce(f"trying {loop.name} as one call")
            advice = of_loop(loop, faults.whole_s, self.device, fused=True, seen=self.seen)
            captured = self.device.type == "cuda" and self.seen.pace.backend != Backend.EAGER.value
            if captured and advice.helps:
                plain = "timed as plain operations, though the step is captured"
                advice = replace(advice, outcome=plain)
            yield advice
        if faults.waits.found:
            yield self._without_waits()

    def _without_waits(self) -> Advice:
        named = "; ".join(str(each) for each in self.faults.waits.found[:3])
        begun = Advice(
            change="write it with operations on tensors alone",
            why=f"each step waits for the device: {named}",
            fault=True,
        )
        if self.device.type == "cpu":
            return replace(begun, outcome=NO_WAIT)
        self.announce("trying the network without waiting")
        return self._tried(begun, self.config, no_waits)

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
            return replace(begun, outcome=f"failed: {on_one_line(error)}")
        if found.fallback:
            return replace(begun, outcome=f"not possible here: {found.fallback}")
        return judged(begun, found, self.seen.pace, now)

    def _fitting(self) -> int:
        return max(LEAST_STEPS, min(self.steps, int(MOST_S / self.seen.pace.step_s)))


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
