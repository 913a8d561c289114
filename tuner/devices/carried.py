"""What earlier attempts at a training saw of their device: it travels in the notes of a checkpoint.

A time that is continued is a sum of parts, and to be trusted only where each of them is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tuner.devices.watch import Observation


@dataclass(slots=True)
class Carried:
    """The parts before this one. Times are in seconds since 1970 on the clock of the machine that
    ran the part.
    """

    contaminated: bool = False
    why: str = ""
    parts: list[tuple[float, float]] = field(default_factory=list)

    def take(self, notes: Mapping[str, Any]) -> None:
        """Go on from a checkpoint's notes; what does not say that it was clean was not."""
        self.contaminated = notes.get("contaminated") is not False
        self.why = str(
            notes.get("contamination", "nothing is known of the device before the interruption")
        )
        self.parts = [(float(began), float(ended)) for began, ended in notes.get("parts", ())]

    def notes(self, seen: Observation, began: float, now: float) -> dict[str, Any]:
        """For a checkpoint written `now`, of a part that began at `began` and saw `seen`."""
        whole = self.merged(seen)
        parts = [*self.parts, (began, now)]
        return {
            "contaminated": whole.contaminated,
            "contamination": whole.why,
            "parts": [list(part) for part in parts],
        }

    def merged(self, seen: Observation) -> Observation:
        """What is to be said of all parts together; details are the last one's."""
        why = "; ".join(
            reason for reason in (self.why if self.contaminated else "", seen.why) if reason
        )
        return Observation(self.contaminated or seen.contaminated, why, seen.details)
