"""Made-up learning curves, where there are no recorded ones: what they imitate, and the figures they rest on.

A configuration is drawn from a variant's search space, at random. From it follow

- an epoch's seconds: steps times the time of a step, which grows with hidden and batch size;
- a validation curve: a power of the number of learning-rate-weighted steps, down to a floor that depends on the
  configuration, then rising again where the network overfits, under noise that grows with the learning rate;
- divergence, more likely with a high rate and small batches;
- early stopping and the epoch limit as in the study, which decide how long the curve is;
- a test MQL: a line through the best validation loss in logarithms, plus what a configuration does to test and
  validation differently, plus the seed's own share.

The constants are near what benchmarks/README.md shows for the reference job: epochs of 0.076 s, a best validation loss
of 0.226, an MQL of 0.805, seeds that differ by 0.012 at most. The default configuration takes somewhat more epochs here
than the 44 to 48 measured there. Curves of this kind show whether the bounds hold together; they are no measurement.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.search.bounds import Stopping, epochs_waited
from tuner.spec.ranges import FloatRange
from tuner.spec.space import SearchSpace

STEPS_OF_DEFAULT = 81
S_PER_STEP = 0.076 / STEPS_OF_DEFAULT
SEED_SD = 0.005
"""Of test MQL. Measured seeds differ by 0.012 between the extremes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """What the simulated job is like; the defaults imitate the reference job."""

    start: float = 0.75
    floor: float = 0.2245
    speed: float = 1.0
    """Of learning, relative to the reference job."""
    shape: float = 1.15
    """The power by which the excess loss falls."""
    noise: float = 0.002
    overfit: float = 1.0
    link_slope: float = 0.9
    mql: float = 0.805
    split_sd: float = 0.008
    """What a configuration does to the test split and not to the validation split, relative to MQL."""
    jitter: float = 0.01
    """Of an epoch's time."""


WORLDS = {
    "reference": World(),
    "slow": World(speed=0.45, shape=0.8, noise=0.003),
    "noisy": World(noise=0.008, split_sd=0.015, jitter=0.05),
    "overfitting": World(overfit=3.0, speed=1.6, split_sd=0.012),
}


def simulate(
    world: World, space: SearchSpace, stopping: Stopping, *, trials: int, seed: int
) -> list[dict[str, Any]]:
    """`trials` recorded trials, each as benchmarks/pruning/replay.py reads them."""
    random = np.random.default_rng(seed)
    return [
        _trial(number, world, _draw(space, random), stopping, random) for number in range(trials)
    ]


def _draw(space: SearchSpace, random: np.random.Generator) -> dict[str, float]:
    drawn = {}
    for name, span in space.ranges.items():
        if not isinstance(span, FloatRange):
            drawn[name] = float(
                2 ** random.integers(round(math.log2(span.low)), round(math.log2(span.high)) + 1)
            )
        elif span.scale == "log":
            drawn[name] = math.exp(random.uniform(math.log(span.low), math.log(span.high)))
        else:
            drawn[name] = random.uniform(span.low, span.high)
    return drawn


@dataclass(frozen=True, slots=True, kw_only=True)
class _Course:
    """How a configuration trains: what its curve follows, but for the noise of each epoch."""

    s_per_epoch: float
    pace: float
    """Progress of one epoch, 1 for the default."""
    floor: float
    noise: float
    shape: float
    overfit: float
    diverges_at: int

    def loss(self, world: World, epoch: int) -> float:
        progress = self.pace * epoch
        # Reversible normalisation makes even the first epochs useful: most of the excess goes within ten.
        excess = (world.start - self.floor) / (1 + 0.9 * progress) ** (
            self.shape * 1.6
        ) + 0.04 * math.exp(-progress / 9)
        return self.floor + excess + self.overfit * self.floor * max(0.0, progress - 25)


def _course(
    world: World, params: dict[str, float], stopping: Stopping, random: np.random.Generator
) -> _Course:
    rate, batch, hidden = (
        params["learning_rate"] / 1e-4,
        params["batch_size"] / 256,
        params["hidden_size"] / 64,
    )
    steps = STEPS_OF_DEFAULT / batch
    heat = rate / batch  # the scale of gradient noise
    floor = world.floor * (
        1
        + 0.012 * math.log10(max(heat, 1.0)) ** 2
        + 0.006 * (math.log2(hidden) - 1) ** 2
        + 0.05 * max(0.0, params["dropout"] - 0.25) ** 2
        + 0.3 * max(0.0, params["weight_decay"] - 0.02)
        + abs(random.normal(0, 0.003))
    )
    shape = world.shape * random.uniform(0.9, 1.1)
    overfit = world.overfit * 4e-5 * hidden * (1.2 - params["dropout"]) * random.uniform(0.6, 1.6)
    diverges_at = (
        random.integers(1, 12)
        if random.uniform() < 0.5 * min(1.0, max(0.0, (heat - 60) / 300))
        else stopping.max_epochs + 1
    )
    return _Course(
        s_per_epoch=steps * S_PER_STEP * (0.75 + 0.25 * hidden * max(batch, 0.5)),
        # Smaller batches make more steps, noisier ones.
        pace=world.speed * rate**0.9 / batch**0.75 * hidden**0.25,
        floor=floor,
        noise=world.noise * (0.4 + 0.3 * math.sqrt(min(heat, 40.0))),
        shape=shape,
        overfit=overfit,
        diverges_at=diverges_at,
    )


def _trial(
    number: int,
    world: World,
    params: dict[str, float],
    stopping: Stopping,
    random: np.random.Generator,
) -> dict[str, Any]:
    course = _course(world, params, stopping, random)
    losses: list[float] = []
    elapsed: list[float] = []
    stopped_by, best, waited, clock = "epoch_limit", math.inf, 0, 0.0
    for epoch in range(1, stopping.max_epochs + 1):
        clock += course.s_per_epoch * max(0.5, random.normal(1, world.jitter))
        if epoch >= course.diverges_at:
            stopped_by = "diverged"
            break
        loss = course.loss(world, epoch) * math.exp(random.normal(0, course.noise))
        losses.append(loss)
        elapsed.append(clock)
        if loss < best - stopping.min_delta:
            best, waited = loss, 0
        else:
            waited += 1
        if waited >= stopping.patience:
            stopped_by = "converged"
            break
    assert stopped_by == "diverged" or waited == epochs_waited(losses, stopping.min_delta)
    mql = None
    if stopped_by != "diverged":
        relative = world.link_slope * math.log(min(losses) / (world.floor * 1.01))
        mql = world.mql * math.exp(relative + random.normal(0, world.split_sd)) + random.normal(
            0, SEED_SD
        )
    return {
        "number": number,
        "params": params,
        "stopped_by": stopped_by,
        "wall_clock_s": clock,
        "test_mql": mql,
        "losses": losses,
        "elapsed_s": elapsed,
    }
