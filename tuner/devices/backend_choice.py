"""What `auto` came to, as it was measured on a device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner.config import Backend


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendChoice:
    """What `auto` means for networks of certain sizes on a device, as it was measured there."""

    backend: Backend
    reason: str = ""
    """Why not captured graphs, in one line; empty where it is these."""
    epoch_s: Mapping[str, float] = field(default_factory=dict, hash=False)
    """Seconds that an epoch would take, by each backend that was tried and works."""

    @property
    def measured(self) -> str:
        """`an epoch takes 0.41 s by graph, 1.2 s by eager`, the fastest first."""
        ranked = sorted(self.epoch_s.items(), key=lambda item: item[1])
        said = ", ".join(f"{seconds:.3g} s by {name}" for name, seconds in ranked)
        return f"an epoch takes {said}" if said else ""
