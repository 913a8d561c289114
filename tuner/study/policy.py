"""How a study is searched and run: what may change between two launches, unlike the study's definition.

Stored with the study, so that a worker on another machine needs only the database's address and the data.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

from tuner.errors import StorageError

NONE = "none"
"""What a flag says that lifts a limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPolicy:
    """What the launches of a study have said, the later over the earlier. Workers read it before each trial."""

    sampler: str = "auto"
    seed: int | None = None
    """Of the sampler; with one worker the search is then reproducible."""
    prune: bool = True
    """End trials early whose best possible end is dominated by finished ones."""
    max_time_s: float | None = None
    """Constraint on the time objective, seconds."""
    max_mql: float | None = None
    max_memory_bytes: int | None = None
    reruns: int = 1
    """How often a contaminated timing is run again."""
    checkpoint_s: float = 30.0
    """Seconds between two checkpoints of a training; 0: none."""

    def flags(self) -> dict[str, str]:
        """Each setting as `tuner launch` takes it, by its field: `{"prune": "--no-prune", ...}`."""
        memory = None if self.max_memory_bytes is None else f"{exact(self.max_memory_bytes / 1e9)}GB"
        return {
            "sampler": f"--sampler {self.sampler}",
            "seed": f"--sampler-seed {_or_none(self.seed)}",
            "prune": "--prune" if self.prune else "--no-prune",
            "max_time_s": f"--max-time {_or_none(self.max_time_s)}",
            "max_mql": f"--max-mql {_or_none(self.max_mql)}",
            "max_memory_bytes": f"--max-memory {memory or NONE}",
            "reruns": f"--reruns {self.reruns}",
            "checkpoint_s": f"--checkpoint-every {f'{exact(self.checkpoint_s)}s' if self.checkpoint_s else NONE}",
        }

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), sort_keys=True)

    @staticmethod
    def from_json(text: str | None) -> SearchPolicy:
        """The stored policy; the default one where none was stored.

        Raises:
            StorageError: a newer tuner wrote settings that this one does not know.
        """
        data = json.loads(text) if text else {}
        unknown = data.keys() - {field.name for field in dataclasses.fields(SearchPolicy)}
        if unknown:
            raise StorageError(
                f"the study's policy holds settings that this tuner does not know ({', '.join(sorted(unknown))}); "
                "upgrade tuner on this machine"
            )
        return SearchPolicy(**data)


def exact(value: float) -> str:
    """A number as a flag takes it, with all the digits that tell it from others: `10`, `0.8123457`, `4294967295`."""
    return f"{value:.15g}"


def _or_none(value: float | None) -> str:
    return NONE if value is None else exact(value)
