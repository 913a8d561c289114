"""What was measured of the sizes of one search on one kind of device, and where it is kept.

It is kept in the user's cache: `tuner estimate` comes before any database. What trials recorded
serves as well, and needs no measuring.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field, TypeAdapter

from tuner.config import Backend
from tuner.data.cache import keep_text, kept_text
from tuner.estimate.cost_model import CostModel, Foretold, Size, key_of, size_of, steps_of_epoch
from tuner.record import Recorded
from tuner.spec.definition import StudyDefinition

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
    sizes, windows, evaluations = [], [], []
    for params, recorded in trials:
        epoch_s, rate = recorded.s_per_epoch, recorded.samples_per_s
        if not (epoch_s and rate and math.isfinite(epoch_s) and math.isfinite(rate)):
            continue
        windows.append(round(epoch_s * rate))
        evaluations.append(recorded.evaluation_s or 0.0)
        sizes.append(
            MeasuredSize(
                size=size_of(dict(params)),
                epoch_s=epoch_s,
                setup_s=recorded.setup_s or 0.0,
                peak_bytes=recorded.peak_memory_bytes or 0,
                backend=recorded.backend or "",
            )
        )
    if not sizes:
        return None
    middle = len(sizes) // 2
    sizes = _with_usual_set_up(sizes)
    return SizeCosts(
        device_model=device_model,
        windows=max(1, sorted(windows)[middle]),
        evaluation_s=sorted(evaluations)[middle],
        sizes=tuple(sizes),
        from_trials=True,
    )


def _with_usual_set_up(trials: Sequence[MeasuredSize]) -> list[MeasuredSize]:
    """Of each size, the shortest set-up that a trial had; what the longest had more, a compiler may
    have taken, before the first one.
    """
    by_key: dict[str, list[float]] = {}
    for each in trials:
        by_key.setdefault(key_of(each.size), []).append(each.setup_s)
    found = []
    for each in trials:
        seen = by_key[key_of(each.size)]
        found.append(dataclasses.replace(each, setup_s=min(seen), built_s=max(seen) - min(seen)))
    return found


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


def keep(key: str, costs: SizeCosts) -> None:
    """For the next time; a cache that cannot be written is none."""
    keep_text(KIND, key, costs.to_json())


def kept(key: str) -> SizeCosts | None:
    """What was kept; None where there is nothing that can be read."""
    text = kept_text(KIND, key, at_most=KEPT_BYTES)
    if text is None:
        return None
    try:
        return SizeCosts.from_json(text)
    except ValueError:
        return None
