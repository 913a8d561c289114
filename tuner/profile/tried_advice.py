"""Advice on a training of ours: each piece tried, and the bottleneck in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from tuner.config import Backend, RunConfig
from tuner.data.windows import DeviceData
from tuner.errors import UsageError
from tuner.models.fault import FAULTS, on_one_line
from tuner.profile.profile_records import Advice, Pace
from tuner.profile.settings_to_try import Candidate
from tuner.profile.stage_times import NoMemoryError, Paced, guarded, measure_pace
from tuner.profile.timed_training import Patch, Running
from tuner.profile.variant_faults import Faults, Loop, batched_gain, saved_share
from tuner.profile.what_if import no_waits, without
from tuner.trial.job import lost_context

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
    """Tries candidates on a configuration's data, one after the other."""

    config: RunConfig
    data: DeviceData
    present: Paced
    steps: int
    announce: Callable[[str], None]
    computing: float = 1.0
    """Of an epoch: forward, backward and optimiser."""
    beside: Running | None = None
    """The present training, still running; None where two do not fit side by side."""

    def of_settings(self, found: Iterable[Candidate | Advice]) -> Iterator[Advice]:
        for each in found:
            if isinstance(each, Advice):
                yield each
                continue
            self.announce(f"trying {each.change}")
            begun = Advice(
                change=each.change, why=each.why, fault=each.fault, mathematics=each.mathematics
            )
            yield self._tried(begun, each.config)

    def of_faults(self, faults: Faults) -> Iterator[Advice]:
        if faults.dead:
            named = ", ".join(faults.dead[:3])
            self.announce(f"trying the network without {named}")
            begun = Advice(
                change=f"leave {named} out of the network, or use what it gives",
                why=f"no parameter of {named} ever gets a gradient: no forecast depends on it",
                fault=True,
            )
            yield self._tried(begun, self.config, without(faults.dead))
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
        if self.data.minimum.device.type == "cpu":
            return replace(begun, outcome="a CPU waits for nothing: the gain is to be had on a GPU")
        self.announce("trying the network without waiting")
        return self._tried(begun, self.config, no_waits)

    def _as_one(self, loop: Loop, whole_s: float) -> Advice:
        begun = Advice(
            change=f"run {loop.name} as one call over a batched input",
            why=(
                f"{loop.name} ({loop.kind}) is called {len(loop.calls)} times a step, one after "
                f"the other: {loop.share:.0%} of the forward pass"
            ),
            fault=True,
        )
        device = self.data.minimum.device
        if device.type == "cuda" and self.present.backend != Backend.EAGER.value:
            begun = replace(begun, outcome="timed as plain operations, though the step is captured")
        try:
            loop_s, one_s = guarded(lambda: batched_gain(loop, device, fused=True))
        except Exception as error:
            if lost_context(error):
                raise
            return replace(begun, outcome=f"not tried: {on_one_line(error)}")
        pace = self.present.pace
        saved = self.computing * saved_share(loop_s, one_s, whole_s)
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
