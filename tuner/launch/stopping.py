"""How a launch is told to end before its studies are filled: once, cleanly; again, at once."""

from __future__ import annotations

from dataclasses import dataclass, field

from tuner.launch.outcome import Outcome


@dataclass(slots=True)
class StopRequests:
    """Made by whoever runs a launch, in a signal handler or in another thread."""

    _asked: list[Outcome] = field(default_factory=list)

    def ask(self, why: Outcome = Outcome.INTERRUPTED) -> None:
        """The workers are to hand back what they run; asked again, they are killed."""
        self._asked.append(why)

    @property
    def first(self) -> Outcome | None:
        """Why the launch is to end; None as long as nobody asked for it."""
        return self._asked[0] if self._asked else None

    @property
    def urgent(self) -> bool:
        """Whether somebody asked again."""
        return len(self._asked) > 1
