"""Sets of learning curves: read from exported studies, or simulated."""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.pruning.simulated_curves import WORLDS, simulate
from tuner.config import TrainingSettings
from tuner.search.bounds import FinishedTrial, Stopping
from tuner.spec.pareto import Point
from tuner.spec.study_file import load_study_file
from tuner.study.archive import read_archive

SIMULATED_TRIALS = 200
FIRST_SEED = 100
"""Of the simulated sets. The bounds of `Caution` were chosen on the sets of seeds 0 to 3."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One recorded trial, never pruned."""

    number: int
    stopped_by: str
    values: Point | None
    losses: tuple[float, ...]
    elapsed_s: tuple[float, ...]
    seconds: float

    @property
    def converged(self) -> bool:
        return self.stopped_by == "converged"

    def finished(self) -> FinishedTrial | None:
        """What the pruner may learn from it, once it is over."""
        if self.values is None:
            return None
        return FinishedTrial(
            number=self.number, values=self.values, curves=(self.losses,), dominates=self.converged
        )


@dataclass(frozen=True, slots=True)
class Curves:
    """A set of recorded trials, and the rule that ended them."""

    name: str
    stopping: Stopping
    trials: tuple[Recorded, ...]


def recorded(trials: Sequence[dict[str, Any]]) -> tuple[Recorded, ...]:
    """Trials as simulated or read from a file."""
    return tuple(
        Recorded(
            number=trial["number"],
            stopped_by=trial["stopped_by"],
            values=None
            if trial["test_mql"] is None
            else (trial["wall_clock_s"], trial["test_mql"]),
            losses=tuple(trial["losses"]),
            elapsed_s=tuple(trial["elapsed_s"]),
            seconds=trial["wall_clock_s"],
        )
        for trial in trials
    )


def simulated_sets() -> Iterator[Curves]:
    """One set a world, of the reference job's patience and limit; not the sets on which the bounds were chosen."""
    space = load_study_file("rmsnorm").space
    stopping = Stopping(patience=10, min_delta=1e-5, max_epochs=200)
    for seed, (name, world) in enumerate(WORLDS.items(), start=FIRST_SEED):
        yield Curves(
            name,
            stopping,
            recorded(simulate(world, space, stopping, trials=SIMULATED_TRIALS, seed=seed)),
        )


def read_curves(path: Path, *, even_clock: bool, numbers: range | None = None) -> Curves:
    """The trials of an exported study (`tuner study export`) that were trained to their end, of these numbers or all."""
    archive = read_archive(path)
    trials = []
    for record in archive.records:
        if numbers is not None and record.number not in numbers:
            continue
        rows = archive.curves.get(record.number, ())
        if (
            record.state.name == "PRUNED"
            or not rows
            or any(row.val_loss is None or row.repeat for row in rows)
        ):
            continue
        elapsed = [row.elapsed_s for row in rows]
        if even_clock:
            shortest = min(later - sooner for sooner, later in itertools.pairwise([0.0, *elapsed]))
            elapsed = [shortest * row.epoch for row in rows]
        stopped_by = record.recorded.stopped_by
        trials.append(
            {
                "number": record.number,
                "stopped_by": stopped_by,
                "wall_clock_s": elapsed[-1],
                "test_mql": record.values[1] if record.values else None,
                "losses": [row.val_loss for row in rows],
                "elapsed_s": elapsed,
            }
        )
    name = archive.name if numbers is None else f"{archive.name}, trials {numbers[0]}-{numbers[-1]}"
    return Curves(name, stopping_of(archive.definition.training), recorded(trials))


def stopping_of(training: TrainingSettings) -> Stopping:
    """The rule that ended a study's trials."""
    return Stopping(
        patience=training.patience, min_delta=training.min_delta, max_epochs=training.max_epochs
    )


def numbers(text: str) -> range:
    """`188-399`: both included."""
    first, dash, last = text.partition("-")
    if not (first.isdecimal() and dash and last.isdecimal() and int(first) <= int(last)):
        raise argparse.ArgumentTypeError(f"expected FIRST-LAST, such as 188-399, got {text!r}")
    return range(int(first), int(last) + 1)
