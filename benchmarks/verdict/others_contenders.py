"""What each contender of benchmarks/verdict/others.py is, and how its suggestions are paid for.

A contender suggests places, is told what their trainings came to, and may name a place at the end
that its library recommends. What it takes to suggest and to be told, CPU seconds of one thread, is
charged to the GPU: all of it, or, where the library can be asked while trainings run, what exceeds
them.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.verdict.budgets import BESIDE_S, Gpu, Place
from benchmarks.verdict.truths import Training, Truth
from tuner.config import Value


class Contender(Protocol):
    """Made of a GPU, of which it may ask the truth's name, the seed and the default's place."""

    def suggest(self) -> list[Place]:
        """What to train next: the default, alone, the first time. Nothing where it has to be told of
        what trains before it can say.
        """
        ...

    def tell(self, trainings: Sequence[Training]) -> None:
        """What the suggested places came to that were not told yet, in their order."""
        ...

    def recommended(self) -> Place | None:
        """What the library's own model names; None where it names nothing or has none."""
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """A contender and how it is found."""

    key: str
    name: str
    module: str
    """Within benchmarks.verdict: it makes a contender of a GPU by `contender(key, gpu)`."""
    package: str
    """What has to be importable."""
    distribution: str
    """What to install for that."""
    beside: bool
    """Whether it is asked while the trainings before run, so without their results."""
    rules: tuple[str, ...]
    """How a place is chosen at the end (others_rules.py)."""


SINGLE = ("knee", "within", "ours")
ENTRIES: Sequence[Entry] = (
    Entry("kg", "tuner, kg", "others_optuna", "optuna", "optuna", True, ("ours after five runs",)),
    Entry(
        "before",
        "tuner, kg after quasi-random points, uncapped",
        "others_optuna",
        "optuna",
        "optuna",
        True,
        ("ours after five runs",),
    ),
    Entry(
        "sweep",
        "by hand, a sweep of nine rates",
        "others_by_hand",
        "numpy",
        "numpy",
        True,
        ("no worse by its runs",),
    ),
    Entry(
        "five rates",
        "by hand, five rates once each",
        "others_by_hand",
        "numpy",
        "numpy",
        True,
        ("within",),
    ),
    Entry(
        "one knob",
        "by hand, one knob at a time",
        "others_by_hand",
        "numpy",
        "numpy",
        True,
        ("within",),
    ),
    Entry("random", "random", "others_optuna", "optuna", "optuna", False, ("within", "ours")),
    Entry("tpe", "Optuna, TPESampler", "others_optuna", "optuna", "optuna", False, SINGLE),
    Entry("nsga2", "Optuna, NSGAIISampler", "others_optuna", "optuna", "optuna", False, SINGLE),
    Entry("gp", "Optuna, GPSampler", "others_optuna", "optuna", "optuna", False, SINGLE),
    Entry(
        "ray",
        "Ray Tune, OptunaSearch with two metrics",
        "others_ray",
        "ray.tune",
        "ray[tune]",
        True,
        ("scalarised", "ours"),
    ),
    Entry(
        "repeater",
        "Ray Tune, OptunaSearch on the scalarised metric, Repeater of 5",
        "others_ray",
        "ray.tune",
        "ray[tune]",
        True,
        ("scalarised, mean", "ours after five runs"),
    ),
    Entry("morea", "Syne Tune, MOREA", "others_syne", "syne_tune", "syne-tune", False, SINGLE),
    Entry(
        "ax",
        "Ax, two objectives",
        "others_ax",
        "ax",
        "ax-platform",
        True,
        ("its model", "ours"),
    ),
    Entry(
        "ax1",
        "Ax, time under a constraint",
        "others_ax",
        "ax",
        "ax-platform",
        True,
        ("its model", "ours"),
    ),
    Entry(
        "botorch",
        "BoTorch, qLogNEHVI, 8 at a time",
        "others_botorch",
        "botorch",
        "botorch",
        True,
        ("its model", "ours"),
    ),
)
KEYS = tuple(entry.key for entry in ENTRIES)
LIBRARIES = ("optuna", "ray", "syne-tune", "ax-platform", "botorch", "gpytorch", "torch", "numpy")


def entry(key: str) -> Entry:
    return next(each for each in ENTRIES if each.key == key)


def installed(one: Entry) -> bool:
    return importlib.util.find_spec(one.package.partition(".")[0]) is not None


def made(one: Entry, gpu: Gpu) -> Contender:
    """A contender at the beginning of its search."""
    module = importlib.import_module(f"benchmarks.verdict.{one.module}")
    found: Contender = module.contender(one.key, gpu)
    return found


def library_versions() -> dict[str, str | None]:
    """What is installed; None of what is not."""
    found: dict[str, str | None] = {}
    for name in LIBRARIES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            found[name] = None
    return found


def cpu() -> str:
    """The processor's model, as far as the system says."""
    described = Path("/proc/cpuinfo")
    for line in described.read_text().splitlines() if described.exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


@dataclass(frozen=True, slots=True)
class Spent:
    """What a search's suggestions took."""

    suggest_s: float
    """To suggest and to be told, CPU seconds of one thread."""
    waited_s: float
    """What of it the GPU waited for."""
    asked: int


def spend(gpu: Gpu, contender: Contender, *, beside: bool) -> Spent:
    """Search until the GPU's seconds are spent."""
    untold: list[Training] = []
    suggest_s = waited_s = trained_s = 0.0
    asked = 0
    while gpu.left_s > 0:
        began = time.process_time()
        if not beside:
            _tell(contender, untold)
        batch = contender.suggest()
        had_to_wait = not batch
        _tell(contender, untold)
        batch = batch or contender.suggest()
        took = time.process_time() - began
        hidden_s = trained_s if beside and not had_to_wait else 0.0
        waited = max(0.0, took - hidden_s)
        gpu.wait(waited)
        assert asked or batch == [gpu.default], "every contender begins with the default"
        if not batch:  # its plan is at its end
            break
        suggest_s, waited_s, asked, trained_s = suggest_s + took, waited_s + waited, asked + 1, 0.0
        for place in batch:
            if gpu.left_s > 0:
                training = gpu.train(place)
                trained_s += training.seconds + BESIDE_S
                untold.append(training)
    _tell(contender, untold)
    return Spent(suggest_s, waited_s, asked)


def _tell(contender: Contender, untold: list[Training]) -> None:
    if untold:
        contender.tell(list(untold))
        untold.clear()


def place_of(job: Truth, encoded: Mapping[str, Value]) -> Place:
    """Where an encoded configuration lies: what a sampler searches, as `SearchSpace.encoded`."""
    params = job.space.decode({name: encoded[name] for name in job.space.ranges})
    return tuple(job.where(dict(params))[0].tolist())
