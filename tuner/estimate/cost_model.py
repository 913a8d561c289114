"""What was measured of some sizes, and what follows for those between.

A Gaussian process goes through the logarithms of what was measured, of the time of a step or of
memory, over the logarithms of the sizes. It learns which of them do not matter: often the most
memory is a validation's, whatever the batch. Which numbers cost more as they grow, and which less,
is seen between sizes that differ in one alone: so each size that was measured bounds others.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import statistics
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, ClassVar, TypeGuard

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter

from tuner.config import Backend, Hyperparameters, Value
from tuner.errors import DataError
from tuner.files.durable import put, read_regular
from tuner.files.environment import user_cache
from tuner.record import Recorded
from tuner.spec.definition import StudyDefinition
from tuner.spec.space import SearchSpace

# The sizes of a search space: those values of a configuration that change what an epoch costs.


Size = Mapping[str, int | str | bool]
"""By hyperparameter."""

MOST_LISTED = 4096
"""Of a larger space so many are drawn, spread evenly."""


def size_of(params: Mapping[str, Value]) -> dict[str, int | str | bool]:
    """The size of a configuration."""
    return {name: value for name, value in params.items() if not isinstance(value, float)}


def key_of(size: Size) -> str:
    """The same for equal sizes, whatever their order."""
    return json.dumps(dict(size), sort_keys=True)


def sizes_of(space: SearchSpace, *, most: int = MOST_LISTED) -> tuple[Size, ...]:
    """All sizes of a space, each once; of a space with more than `most` so many that are spread
    over it.
    """
    found: dict[str, Size] = {}
    for params in _all(space, most) or _drawn(space, most):
        size = size_of(space.only_there(params))
        found[key_of(size)] = size
    return tuple(found.values())


def hyperparameters_of(
    size: Size, space: SearchSpace, defaults: Hyperparameters
) -> Hyperparameters:
    """A configuration of this size, else as the default."""
    params = space.nearest(dict(size), defaults.as_dict())
    return Hyperparameters.of(params)


def to_measure(space: SearchSpace, defaults: Hyperparameters, *, most: int) -> tuple[Size, ...]:
    """The sizes to measure, the most telling first: the default, the cheapest and the dearest
    corner, the default with each value at its ends, and then what is farthest from all before.

    All sizes are among them where there are no more than `most`.
    """
    import pandas as pd

    default, sizes = size_of(defaults.as_dict()), sizes_of(space)
    everything = {key_of(each): each for each in (default, *sizes)}
    keys = list(everything)
    # Every hyperparameter from 0 to 1; what is not there lies in the middle.
    table = pd.DataFrame(map(dict, everything.values()))
    places = table.rank(method="dense", pct=True).fillna(0.5).to_numpy()
    first = [key_of(each) for each in (default, *_corners(sizes), *_ends(default, sizes))]
    chosen = [keys.index(key) for key in dict.fromkeys(first)]
    count, away = min(most, len(keys)), np.full(len(keys), np.inf)
    for number in range(count):
        if number == len(chosen):
            chosen.append(int(away.argmax()))
        latest = chosen[number]
        away = np.minimum(away, np.abs(places - places[latest]).sum(axis=1))
        away[latest] = -1.0
    return tuple(everything[keys[each]] for each in chosen[:count])


def largest_size(space: SearchSpace) -> Size:
    """The size whose numbers are all largest."""
    return _corners(sizes_of(space))[1]


def _all(space: SearchSpace, most: int) -> list[dict[str, Value]]:
    """Every combination of values that are no fractions; nothing where there are more."""
    values: dict[str, tuple[Value, ...]] = {}
    for name, r in space.ranges.items():
        if r.levels is None:
            continue
        number = r.levels
        if math.prod([number, *map(len, values.values())]) > most:
            return []
        values[name] = tuple(r.decode(r.spread((n + 0.5) / number)) for n in range(number))
    chosen = itertools.product(*values.values())
    return [dict(zip(values, each, strict=True)) for each in chosen]


def _drawn(space: SearchSpace, most: int) -> Iterator[dict[str, Value]]:
    """Evenly spread, and always the same."""
    from scipy.stats import qmc

    for place in qmc.Halton(space.dimensions, rng=0).random(most):
        yield space.at(place.tolist())


def _corners(everything: tuple[Size, ...]) -> list[Size]:
    """The size with all numbers smallest, and the one with all largest."""
    return [min(everything, key=partial(_total, sign=sign)) for sign in (1, -1)]


def _ends(default: Size, everything: tuple[Size, ...]) -> list[Size]:
    """The default with one value changed, as far as it goes; each choice once."""
    known = {key_of(each): each for each in everything}
    found = []
    for name in default:
        values = {each[name] for each in everything if name in each}
        numbers = sorted(v for v in values if is_number(v))
        ends = [numbers[0], numbers[-1]] if len(numbers) == len(values) else list(values)
        for value in sorted(ends, key=str):
            key = key_of({**default, name: value})
            if key in known:
                found.append(known[key])
    return found


def _total(size: Size, *, sign: int) -> float:
    return sum(sign * math.log(max(value, 1)) for value in size.values() if is_number(value))


Array = np.ndarray[Any, Any]

Z80 = 1.2816
"""Standard deviations to each side of four fifths of a normal distribution."""
LEAST_SPREAD = 0.03
"""Of the logarithm, of what was measured itself: two timings of one thing differ by that."""
FEW = 2
"""Measured sizes for each coordinate; fewer show nothing: then the root of each number stands."""
MANY = 6
"""Measured sizes for each coordinate, from which on the process's own spreads are right."""
FOLDS = 5
OTHER_SPREAD = 0.5
"""Of the logarithm, where a value that is no number differs from what was measured."""
LENGTHS = (0.2, 1000.0)
"""Of the process, in standard deviations of what was measured; the longest: it does not matter."""
RESTARTS = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Foretold:
    """A figure with the range that it lies in four times out of five."""

    middle: float
    low: float
    high: float

    @staticmethod
    def around(log_middle: float, spread: float) -> Foretold:
        return Foretold(
            middle=math.exp(log_middle),
            low=math.exp(log_middle - Z80 * spread),
            high=math.exp(log_middle + Z80 * spread),
        )

    @staticmethod
    def exactly(figure: float) -> Foretold:
        """What is certain."""
        return Foretold(middle=figure, low=figure, high=figure)

    @staticmethod
    def of_all(figures: Array) -> Foretold:
        """Of one of these: their middle, and what lies between the tenths at both ends."""
        low, middle, high = map(float, np.quantile(figures, (0.1, 0.5, 0.9)))
        return Foretold(middle=middle, low=low, high=high)

    def by(self, other: Foretold) -> Foretold:
        """Times another: middle by middle, end by end."""
        return Foretold(
            middle=self.middle * other.middle, low=self.low * other.low, high=self.high * other.high
        )

    def times(self, factor: float) -> Foretold:
        return self.each(lambda figure: figure * factor)

    def plus(self, more: float) -> Foretold:
        return self.each(lambda figure: figure + more)

    def at_most(self, most: float) -> Foretold:
        return self.each(lambda figure: min(figure, most))

    def each(self, change: Callable[[float], float]) -> Foretold:
        return Foretold(middle=change(self.middle), low=change(self.low), high=change(self.high))

    @property
    def ratio(self) -> float:
        """How many times its low end its high end is."""
        return self.high / self.low if self.low > 0 else math.inf

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class CostModel:
    """Of one figure, by size. What was measured is taken as it is."""

    sizes: tuple[Size, ...]
    logs: Array
    names: tuple[str, ...]
    directions: Mapping[str, int]
    """Of each number: 1 where more of it costs no less, -1 where it costs no more."""

    @staticmethod
    def of(measured: Sequence[tuple[Size, float]]) -> CostModel:
        """Several figures of one size count by their median."""
        by_key: dict[str, list[float]] = {}
        sizes: dict[str, Size] = {}
        for size, figure in measured:
            if figure > 0 and math.isfinite(figure):
                by_key.setdefault(key_of(size), []).append(math.log(figure))
                sizes[key_of(size)] = size
        names = tuple(sorted({name for size in sizes.values() for name in size}))
        logs = np.array([float(np.median(by_key[key])) for key in sizes])
        known = tuple(sizes.values())
        return CostModel(known, logs, names, _directions(known, logs))

    def at(self, wanted: Sequence[Size]) -> list[Foretold | None]:
        """Of each of these sizes; None where too little was measured to say."""
        there = {key_of(size): log for size, log in zip(self.sizes, self.logs, strict=True)}
        unknown = [size for size in wanted if key_of(size) not in there]
        guessed = dict(zip(map(key_of, unknown), self._between(unknown), strict=True))
        known = {key: Foretold.around(float(log), LEAST_SPREAD) for key, log in there.items()}
        found = guessed | known
        return [found[key_of(size)] for size in wanted]

    def _between(self, wanted: Sequence[Size]) -> list[Foretold | None]:
        if not wanted:
            return []
        if not self.sizes:
            return [None for _ in wanted]
        places = _places([*self.sizes, *wanted], self.names)
        known, asked = places[: len(self.sizes)], places[len(self.sizes) :]
        if len(known) < FEW * max(known.shape[1], 2):
            return [self._by_root(size) for size in wanted]
        logs, spreads = _fitted(known, self.logs, asked)
        spreads = np.maximum(spreads, LEAST_SPREAD) * _too_sure(known, self.logs)
        found: list[Foretold | None] = []
        for size, log, spread in zip(wanted, logs, spreads, strict=True):
            low, high = self._bounds(size)
            held = min(max(float(log), low), high)
            widest = self._nearest(size)[1]
            found.append(Foretold.around(held, min(float(spread), widest)))
        return found

    def _by_root(self, size: Size) -> Foretold:
        """Of one that little is known for: with the root of each number, by the nearest known."""
        nearest, spread = self._nearest(size)
        away = sum(_roots(size, self.sizes[nearest]))
        return Foretold.around(float(self.logs[nearest]) + away, spread)

    def _nearest(self, size: Size) -> tuple[int, float]:
        """Which that was measured, and how far off the root of each number may be from there.

        The power may be anything from 0 (it does not matter) to 1: the farther, the wider.
        """
        spreads = [_spread_of_root(size, known) for known in self.sizes]
        nearest = min(range(len(spreads)), key=lambda each: spreads[each])
        return nearest, spreads[nearest]

    def _bounds(self, size: Size) -> tuple[float, float]:
        """What the logarithm of a size lies between, by those that cost no more and no less."""
        low, high = -math.inf, math.inf
        for other, log in zip(self.sizes, self.logs, strict=True):
            if _no_dearer(other, size, self.directions):
                low = max(low, float(log))
            if _no_dearer(size, other, self.directions):
                high = min(high, float(log))
        return (low, high) if low <= high else (-math.inf, math.inf)


def steps_of_epoch(windows: int, batch_size: int) -> int:
    """Batches of one epoch, a short last one included."""
    return max(1, math.ceil(windows / batch_size))


def _directions(sizes: Sequence[Size], logs: Array) -> dict[str, int]:
    """Which way each number drives the cost, by the pairs of sizes that differ in it alone.

    A number of which no such pair tells costs more as it grows; one that goes either way has no
    direction, and is left out.
    """
    found = {}
    for name in sorted({name for size in sizes for name in size}):
        changes = _changes_with(name, sizes, logs)
        if all(change > -LEAST_SPREAD for change in changes):
            found[name] = 1
        elif all(change < LEAST_SPREAD for change in changes):
            found[name] = -1
    return found


def _changes_with(name: str, sizes: Sequence[Size], logs: Array) -> list[float]:
    """Of the logarithm, from the smaller to the larger, wherever nothing else differs."""
    alike: dict[str, list[tuple[float, float]]] = {}
    for size, log in zip(sizes, logs, strict=True):
        value = size.get(name)
        if is_number(value):
            rest = key_of({other: size[other] for other in size if other != name})
            alike.setdefault(rest, []).append((float(value), float(log)))
    changes = []
    for values in alike.values():
        ordered = sorted(values)
        changes += [after - before for (_, before), (_, after) in itertools.pairwise(ordered)]
    return changes


def _no_dearer(one: Size, other: Size, directions: Mapping[str, int]) -> bool:
    """Whether every number of the one is on the cheaper side, and all else is the same."""
    if one.keys() != other.keys():
        return False
    for name, value in one.items():
        held = other[name]
        numbers = is_number(value) and is_number(held)
        if numbers and name in directions:
            if directions[name] * (float(value) - float(held)) > 0:
                return False
        elif value != held:
            return False
    return True


def _roots(size: Size, other: Size) -> list[float]:
    """Of each number, half the logarithm of how many times the one is the other."""
    return [
        0.5 * math.log(max(float(value), 0.5) / max(float(other[name]), 0.5))
        for name, value in size.items()
        if is_number(value) and is_number(other.get(name))
    ]


def _spread_of_root(size: Size, other: Size) -> float:
    """How far off the logarithm may be, if all that is known of the one is what the other took."""
    differ = sum(
        value != other.get(name)
        for name, value in size.items()
        if not (is_number(value) and is_number(other.get(name)))
    )
    return max(math.hypot(*_roots(size, other), differ**0.5 * OTHER_SPREAD), LEAST_SPREAD)


def is_number(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _places(sizes: Sequence[Size], names: Sequence[str]) -> Array:
    """(sizes, coordinates): logarithms of numbers, and one coordinate for each other value."""
    columns: list[Array] = []
    for name in names:
        values = [size.get(name) for size in sizes]
        numbers = [float(v) for v in values if is_number(v)]
        if len(numbers) == len(values):
            columns.append(np.log(np.maximum(np.array(numbers), 0.5)))
            continue
        others = sorted({str(value) for value in values})[1:]
        columns += [np.array([float(str(v) == each) for v in values]) for each in others]
    found = np.stack(columns, axis=1) if columns else np.zeros((len(sizes), 0))
    spread = found.std(axis=0)
    scaled: Array = (found - found.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return scaled


def _fitted(known: Array, logs: Array, asked: Array) -> tuple[Array, Array]:
    """Logarithms at `asked`, and how far off they may be."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    middle, scale = float(logs.mean()), max(float(logs.std()), 1e-3)
    lengths = np.full(known.shape[1], 2.0)
    kernel = ConstantKernel(1.0, (1e-2, 1e4)) * RBF(lengths, LENGTHS) + WhiteKernel(
        1e-4, (1e-7, 0.1)
    )
    model = GaussianProcessRegressor(kernel, n_restarts_optimizer=RESTARTS, random_state=0)
    with warnings.catch_warnings(action="ignore"):  # a length at its bound is as good as any
        model.fit(known, (logs - middle) / scale)
        found, spread = model.predict(asked, return_std=True)
    return middle + scale * found, scale * spread


def _too_sure(known: Array, logs: Array) -> float:
    """How many times too narrow the process's spreads are, by what it says of sizes left out.

    Of few sizes for each coordinate its lengths are fitted to chance. 1 where there are many.
    """
    if len(known) >= MANY * known.shape[1]:
        return 1.0
    off = []
    for fold in range(min(FOLDS, len(known))):
        out = np.arange(len(known)) % FOLDS == fold
        told, spreads = _fitted(known[~out], logs[~out], known[out])
        off.append(np.abs(logs[out] - told) / np.maximum(spreads, LEAST_SPREAD))
    return max(1.0, float(np.quantile(np.concatenate(off), 0.8)) / Z80)


# What was measured of the sizes of a search on one kind of device, and where it is kept.


KIND, KEPT_BYTES = "costs", 4 << 20
"""Of what is kept in the cache."""
MEASURED_AS = 2
"""Rises when what is measured means something else: what was kept before is measured anew."""
Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
NOTHING_ELSE = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSize:
    """Of one size: what some of its batches and a validation took."""

    __pydantic_config__: ClassVar = NOTHING_ELSE

    size: Size
    epoch_s: Seconds | None = None
    """Validation included; None where it does not fit."""
    setup_s: Seconds = 0.0
    """From nothing to the first step: made, warmed up, captured; its kernels were there."""
    built_s: Seconds = 0.0
    """More, the first time: kernels that a compiler makes once for this size."""
    peak_bytes: Annotated[int, Field(ge=0)] = 0
    """CUDA: allocated by it alone; CPU: by its process, with all that this imports."""
    backend: str = ""
    failure: str = ""
    """Why it does not fit, in one line."""

    @property
    def fits(self) -> bool:
        return self.epoch_s is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeCosts:
    """Of the sizes of one search."""

    __pydantic_config__: ClassVar = NOTHING_ELSE

    device_model: str
    torch_version: str = ""
    windows: Annotated[int, Field(ge=1)] = 1
    """Of training, in an epoch."""
    evaluation_s: Seconds = 0.0
    """After a training: all forecasts of its test windows, and their scores; not a process's first
    ones."""
    start_s: Seconds = 0.0
    """Until a process has its libraries and the data on the device."""
    sizes: tuple[MeasuredSize, ...] = ()
    from_trials: bool = False
    """Recorded by trials, not measured for this."""

    def epoch_seconds(self, wanted: Sequence[Size]) -> dict[str, Foretold]:
        """Seconds an epoch of each of these sizes, by key; those that nothing tells of left out."""
        points = [
            (each.size, each.epoch_s / self.steps(each.size))
            for each in self.sizes
            if each.epoch_s is not None
        ]
        by_key, steps = _by_key(wanted, points), {key_of(size): self.steps(size) for size in wanted}
        return {key: step.times(steps[key]) for key, step in by_key.items()}

    def peak_bytes(self, wanted: Sequence[Size]) -> dict[str, Foretold]:
        """The most memory of each, by key."""
        return _by_key(wanted, [(each.size, each.peak_bytes) for each in self.sizes])

    def setup_seconds(self, wanted: Sequence[Size]) -> dict[str, Foretold]:
        return _by_key(wanted, [(each.size, each.setup_s) for each in self.sizes])

    @property
    def built_s(self) -> float | None:
        """What a compiler takes for the kernels of the usual size; None where nothing was seen to
        be built.
        """
        if self.from_trials:
            return None
        # Of a plain network nothing is built: its first set-up is slower, as a process's first is.
        built = [each for each in self.sizes if each.backend != Backend.EAGER.value]
        seen = [each.built_s for each in built if each.built_s > 0]
        return statistics.median(seen) if seen else None

    def of(self, size: Size) -> MeasuredSize | None:
        return next((each for each in self.sizes if key_of(each.size) == key_of(size)), None)

    def steps(self, size: Size) -> int:
        return steps_of_epoch(self.windows, int(size["batch_size"]))

    def to_json(self) -> str:
        return _COSTS.dump_json(self, exclude={"from_trials"}).decode()

    @staticmethod
    def from_json(text: str) -> SizeCosts:
        """Raises ValueError where it is no such record."""
        stored = _COSTS.validate_json(text, strict=True)
        for each in stored.sizes:
            batch_size = each.size.get("batch_size")
            if type(batch_size) is not int or batch_size < 1:
                raise ValueError(f"a size has the batch size {batch_size!r}")
        return stored


_COSTS = TypeAdapter(SizeCosts)


def _by_key(wanted: Sequence[Size], measured: Sequence[tuple[Size, float]]) -> dict[str, Foretold]:
    """What follows from what was measured; only figures above 0 are any."""
    found = CostModel.of(measured).at(wanted)
    return {key_of(size): each for size, each in zip(wanted, found, strict=True) if each}


def costs_of_trials(
    trials: Iterable[tuple[Mapping[str, Any], Recorded]], device_model: str
) -> SizeCosts | None:
    """What trials recorded of their sizes: the mean of the epochs of each.

    None where none tells an epoch's time.
    """
    windows, evaluations, found = [], [], list[tuple[dict[str, int | str | bool], Recorded]]()
    setups: dict[str, list[float]] = defaultdict(list)
    for params, recorded in trials:
        epoch_s, rate = recorded.s_per_epoch, recorded.samples_per_s
        if epoch_s and rate and math.isfinite(epoch_s) and math.isfinite(rate):
            size = size_of(dict(params))
            found.append((size, recorded))
            setups[key_of(size)].append(recorded.setup_s or 0.0)
            windows.append(round(epoch_s * rate))
            evaluations.append(recorded.evaluation_s or 0.0)
    if not found:
        return None
    sizes = []
    for size, recorded in found:
        # Of each size, the shortest set-up that a trial had; what the longest had more, a compiler
        # may have taken, before the first one.
        seen = setups[key_of(size)]
        sizes.append(
            MeasuredSize(
                size=size,
                epoch_s=recorded.s_per_epoch,
                setup_s=min(seen),
                built_s=max(seen) - min(seen),
                peak_bytes=recorded.peak_memory_bytes or 0,
                backend=recorded.backend or "",
            )
        )
    return SizeCosts(
        device_model=device_model,
        windows=max(1, statistics.median_high(windows)),
        evaluation_s=statistics.median_high(evaluations),
        sizes=tuple(sizes),
        from_trials=True,
    )


def key_of_search(definition: StudyDefinition, device_model: str, torch_version: str) -> str:
    """The same for all searches whose epochs cost the same: network, data, arithmetic, device."""
    plain = definition.comparable()
    training = {
        name: str(value)
        for name, value in plain["training"].items()
        if name not in ("max_epochs", "patience", "min_delta", "time_limit_s")
    }
    mine = [plain["architecture"], definition.model_source, plain["data_hash"], training]
    if definition.loss_source is not None:
        mine.append(definition.loss_source)
    mine += [device_model, torch_version, MEASURED_AS]
    text = json.dumps(mine, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def place_of(key: str) -> Path:
    """Where what was measured is kept for this user.

    Raises:
        DataError: there is no place for caches.
    """
    return user_cache() / KIND / f"{key[:32]}.json"


def keep(key: str, costs: SizeCosts) -> None:
    """For the next time; a cache that cannot be written is none."""
    with suppress(OSError, DataError):
        place_of(key).parent.mkdir(parents=True, exist_ok=True)
        put(place_of(key), costs.to_json().encode())


def kept(key: str) -> SizeCosts | None:
    """What was kept; None where there is nothing that can be read."""
    try:
        return SizeCosts.from_json(read_regular(place_of(key), at_most=KEPT_BYTES).decode())
    except (OSError, ValueError, DataError):
        return None
