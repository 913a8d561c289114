"""How a study is searched and run: what may change
between two launches, unlike the study's definition.

Stored with the study, so that a worker on another machine needs only the database's address and the
data.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any

from pydantic import Field

from tuner.config import SamplerName
from tuner.errors import StorageError, UsageError
from tuner.files.plain import LARGEST, UNREADABLE, Strict, excerpt, explained, read_json
from tuner.spec.margin import MARGIN, TOO_MUCH, in_percent

NONE = "none"
"""What a flag says that lifts a limit."""


_PRUNING = {None: "pruning as the sampler has it", True: "--prune", False: "--no-prune"}
LARGEST_SEED = 2**32 - 1
"""What NumPy's generators and Optuna's samplers take."""
MOST_RERUNS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPolicy:
    """What the launches of a study have said, the later over the earlier.
    Workers read it before each trial.
    """

    sampler: str = "auto"
    seed: int | None = None
    """Of the sampler; with one worker the search is then reproducible."""
    prune: bool | None = None
    """End trials early whose best possible end is dominated by finished ones; None where nobody has
    said it: as the sampler has it (`tuner.search.methods.prunes`)."""
    max_time_s: float | None = None
    """Constraint on the time objective, seconds."""
    max_mql: float | None = None
    max_memory_bytes: int | None = None
    reruns: int = 1
    """How often a contaminated timing is run again."""
    checkpoint_s: float = 30.0
    """Seconds between two checkpoints of a training; 0: none."""
    margin: float | None = None
    """How much higher than the default's an MQL may be that is as good, relative; None where nobody
    has said it yet and no confirmation has begun."""
    search_s: float | None = None
    """No trial begins once those of the search have had their devices for so many seconds."""
    max_gpu_s: float | None = None
    """Of devices, for all that is trained for the studies that share it: no training begins that
    cannot be paid, and one under way ends at the limit (`tuner.storage.queue.gpu_hours`)."""
    gpu_shared: tuple[str, ...] = ()
    """The names of these studies; empty: this one alone."""

    @property
    def counted_margin(self) -> float:
        """The margin that counts."""
        return MARGIN if self.margin is None else self.margin

    def flags(self) -> dict[str, str]:
        """Each setting as `tuner launch` takes it, by its field: `{"prune": "--no-prune", ...}`."""
        memory = (
            None if self.max_memory_bytes is None else f"{exact(self.max_memory_bytes / 1e9)}GB"
        )
        return {
            "sampler": f"--sampler {self.sampler}",
            "seed": f"--sampler-seed {_or_none(self.seed)}",
            "prune": _PRUNING[self.prune],
            "max_time_s": f"--max-time {_or_none(self.max_time_s)}",
            "max_mql": f"--max-mql {_or_none(self.max_mql)}",
            "max_memory_bytes": f"--max-memory {memory or NONE}",
            "reruns": f"--reruns {self.reruns}",
            "checkpoint_s": "--checkpoint-every "
            f"{f'{exact(self.checkpoint_s)}s' if self.checkpoint_s else NONE}",
            "margin": f"--margin {in_percent(self.counted_margin)}",
            "search_s": "--search-time "
            f"{NONE if self.search_s is None else f'{exact(self.search_s)}s'}",
            "max_gpu_s": "--max-gpu-hours "
            f"{NONE if self.max_gpu_s is None else exact(self.max_gpu_s / 3600)}",
            "gpu_shared": f"(shared by {', '.join(self.gpu_shared)})",
        }

    def to_json(self) -> str:
        """The stored form. What came later than others, and nobody has said, is left out."""
        plain = dataclasses.asdict(self)
        for name in ("margin", "search_s", "max_gpu_s", "gpu_shared"):
            if not plain[name] and plain[name] != 0:
                del plain[name]
        return json.dumps(plain, sort_keys=True)

    @staticmethod
    def from_json(text: str | None, study: str | None = None) -> SearchPolicy:
        """The stored policy; where none was stored, what was usual in versions that did not store
        it for each study. `study` is the name of whose it is.

        Raises:
            StorageError: a newer tuner wrote settings that this one does not know, or somebody what
                is none.
        """
        whose = "the study's policy" if study is None else f"the policy of study {study!r}"
        try:
            data = read_json(text) if text else {}
            unknown = data.keys() - _Stored.model_fields.keys() if isinstance(data, dict) else set()
            if unknown:
                raise StorageError(
                    f"{whose} holds settings that this tuner does not know "
                    f"({excerpt(', '.join(sorted(unknown)))}); upgrade tuner on this machine"
                )
            stored = _Stored.model_validate_json(json.dumps(data), strict=True)
        except UNREADABLE as error:
            raise StorageError(
                f"{whose} cannot be read ({explained(error)}); restore it from a backup, or start "
                "another study with --study NAME"
            ) from None
        return SearchPolicy(**stored.model_dump())


class Unsaid(Enum):
    """In place of a value that nobody named: what the study has stays."""

    UNSAID = "unsaid"


UNSAID = Unsaid.UNSAID


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyChanges:
    """What one launch says of a `SearchPolicy`:
    only what is named changes, and None lifts a limit.
    """

    sampler: str | Unsaid = UNSAID
    seed: int | Unsaid | None = UNSAID
    prune: bool | Unsaid = UNSAID
    max_time_s: float | Unsaid | None = UNSAID
    max_mql: float | Unsaid | None = UNSAID
    max_memory_bytes: int | Unsaid | None = UNSAID
    reruns: int | Unsaid = UNSAID
    checkpoint_s: float | Unsaid = UNSAID
    margin: float | Unsaid | None = UNSAID
    search_s: float | Unsaid | None = UNSAID
    max_gpu_s: float | Unsaid | None = UNSAID
    gpu_shared: tuple[str, ...] | Unsaid = UNSAID

    def said(self) -> Mapping[str, Any]:
        """The fields that were named, with their values.

        Raises:
            UsageError: a value that its field does not take.
        """
        named = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        named = {name: value for name, value in named.items() if value is not UNSAID}
        try:
            _Stored.model_validate(named, strict=True)
        except ValueError as error:
            raise UsageError(f"policy: {explained(error)}") from None
        return named


class _Stored(Strict):
    """A policy as others stored it; what is absent has its default."""

    sampler: SamplerName = "auto"
    seed: Annotated[int, Field(ge=0, le=LARGEST_SEED)] | None = None
    prune: bool | None = True
    """Absent where a version stored it in which each study pruned that said nothing."""
    max_time_s: Annotated[float, Field(gt=0)] | None = None
    max_mql: Annotated[float, Field(gt=0)] | None = None
    max_memory_bytes: Annotated[int, Field(gt=0, le=LARGEST)] | None = None
    reruns: Annotated[int, Field(ge=0, le=MOST_RERUNS)] = 1
    checkpoint_s: Annotated[float, Field(ge=0)] = 30.0
    margin: Annotated[float, Field(ge=0, lt=TOO_MUCH)] | None = None
    search_s: Annotated[float, Field(gt=0)] | None = None
    max_gpu_s: Annotated[float, Field(gt=0)] | None = None
    gpu_shared: tuple[str, ...] = ()


def exact(value: float) -> str:
    """A number as a flag takes it, with all the digits that tell it from others:
    `10`, `0.8123457`, `4294967295`.
    """
    return f"{value:.15g}"


def _or_none(value: float | None) -> str:
    return NONE if value is None else exact(value)
