"""How a study is searched and run: what may change between two launches, unlike the study's definition.

Stored with the study, so that a worker on another machine needs only the database's address and the data.
"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass

from tuner.errors import StorageError


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPolicy:
    """What `tuner launch` was last told about a study. Workers read it before each trial."""

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
