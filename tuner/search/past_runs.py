"""All runs of a study by configuration, as the model of all runs takes them: some configurations
ran once, others several times.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from tuner.config import Value
from tuner.spec.margin import TOO_MUCH
from tuner.spec.space import SearchSpace

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Array = np.ndarray[Any, Any]
Place = tuple[float, ...]
"""Where a configuration lies in the unit cube, so that equal ones compare equal."""

SHORTEST = -2.0
"""Beyond e to this power of the default's length, a shorter training is as noisy as that."""

_LEAST = 1e-9
"""Seconds and MQL have logarithms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PastRun:
    """One trial that has finished. One of several seeds is one run, with its medians: it is what is
    bought, and what its noise is about.
    """

    where: Place
    seconds: float
    """The time objective."""
    mql: float
    epochs: float | None = None
    """None where they say nothing of how long the configuration trains."""
    converged: bool = True
    limits: tuple[float, ...] = ()
    """How far it is beyond each limit, as a share of it; the same limits for all runs."""


def place_of(space: SearchSpace, params: Mapping[str, Value]) -> Place:
    """Of a stored configuration; to nine digits, as floats survive any database."""
    return tuple(round(share, 9) for share in space.shares(params))


@dataclass(frozen=True, slots=True, kw_only=True)
class Configurations:
    """What ran, a row for each configuration, in the order of their first runs."""

    where: Array
    """(rows, coordinates)."""
    runs: Array
    """How often each one ran, (rows,)."""
    mean: Array
    """Of the logarithms of seconds and MQL, (rows, 2)."""
    squares: Array
    """Sums of the squared differences of the runs from these means, (rows, 2)."""
    length: Array
    """The logarithm of how long each one trains, relative to the default, at most 0: (rows,)."""
    default: int
    """The row of the default configuration."""

    @staticmethod
    def of(past: Sequence[PastRun], default: Place) -> Configurations:
        """`default` is where the default is; at least one of the runs is there."""
        rows = rows_of(past)
        logs = np.log([[max(run.seconds, _LEAST), max(run.mql, _LEAST)] for run in past])
        row = np.array([rows[run.where] for run in past])
        d = rows[default]
        # How far a run is beyond this fence says nothing of what is near the default.
        fence = float(logs[row == d, 1].mean()) + math.log1p(TOO_MUCH)
        logs[:, 1] = np.minimum(logs[:, 1], fence)
        runs = np.bincount(row, minlength=len(rows)).astype(float)
        mean = _sums(row, logs, len(rows)) / runs[:, None]
        squares = _sums(row, (logs - mean[row]) ** 2, len(rows))
        return Configurations(
            where=np.array(list(rows)),
            runs=runs,
            mean=mean,
            squares=squares,
            length=_lengths(past, row, mean[:, 0], d),
            default=d,
        )

    def taken(self, rows: Array) -> Configurations:
        """Some of them, the default among them."""
        return replace(some_of(self, rows), default=int(np.flatnonzero(rows == self.default)[0]))

    @property
    def places(self) -> list[Place]:
        """Where each row is."""
        return [tuple(place) for place in self.where.tolist()]

    def expecting(
        self, running: Mapping[Place, int], expected: Mapping[Place, tuple[float, float]]
    ) -> Configurations:
        """With runs that have not ended, so many at each place, as if they came to what is expected
        there ("kriging believer").

        Source: Ginsbourger, Le Riche and Carraro, "Kriging Is Well-Suited to Parallelize
            Optimization" (2010).
        """
        rows = {place: i for i, place in enumerate(self.places)}
        new = [place for place in running if place not in rows]
        usual = self.mean[self.default, 0]
        lengths = [expected[place][0] - usual for place in new]
        found = replace(
            self,
            where=np.vstack([self.where, *(np.array([place]) for place in new)]),
            runs=np.append(self.runs, np.zeros(len(new))),
            mean=np.vstack([self.mean, np.zeros((len(new), 2))]),
            squares=np.vstack([self.squares, np.zeros((len(new), 2))]),
            length=np.append(self.length, np.clip(lengths, SHORTEST, 0.0)),
        )
        rows |= {place: len(self.where) + i for i, place in enumerate(new)}
        for place, count in running.items():
            i = rows[place]
            total = found.runs[i] + count
            believed = np.array(expected[place])
            found.mean[i] = (found.runs[i] * found.mean[i] + count * believed) / total
            found.runs[i] = total
        return found


Rows = TypeVar("Rows", bound="DataclassInstance")


def some_of(table: Rows, rows: Array) -> Rows:
    """These rows of a record whose arrays have a row for each configuration."""
    columns = {each.name: getattr(table, each.name) for each in fields(table)}
    taken = {name: of[rows] for name, of in columns.items() if isinstance(of, np.ndarray)}
    return replace(table, **taken)


def rows_of(past: Sequence[PastRun]) -> dict[Place, int]:
    """The row of each configuration."""
    rows: dict[Place, int] = {}
    for run in past:
        rows.setdefault(run.where, len(rows))
    return rows


def _sums(row: Array, values: Array, rows: int) -> Array:
    found = np.zeros((rows, values.shape[1]))
    np.add.at(found, row, values)
    return found


def _lengths(past: Sequence[PastRun], row: Array, log_seconds: Array, default: int) -> Array:
    """Of epochs where a configuration's runs have them, and the default's; else of seconds."""
    sums, counts = np.zeros(len(log_seconds)), np.zeros(len(log_seconds))
    for run, i in zip(past, row.tolist(), strict=True):
        if run.epochs:
            sums[i] += math.log(run.epochs)
            counts[i] += 1
    found = log_seconds - log_seconds[default]
    if counts[default]:
        known = counts > 0
        found[known] = sums[known] / counts[known] - sums[default] / counts[default]
    lengths: Array = np.clip(found, SHORTEST, 0.0)
    return lengths
