"""What was seen of a network, as records for programs and as sentences for a person."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from tuner.training.inspection.dead_parts import ConstantForecasts, DeadParameter
from tuner.training.inspection.host_waits import Waits

NAMED = 3
"""So many of a kind are named in a sentence; all of them are in the record."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """Nothing of it keeps a network from being trained."""

    dead_parameters: tuple[DeadParameter, ...] = ()
    constant_forecasts: ConstantForecasts = field(default_factory=ConstantForecasts)
    ignored_inputs: tuple[str, ...] = ()
    moved_by_others: float = 0.0
    """By how much a window's forecast changed with the other windows of its batch."""
    waits: Waits = field(default_factory=Waits)
    diverged: str = ""
    """In which of the steps that were looked at the loss became no number, in words."""

    def as_dict(self) -> dict[str, Any]:
        """For `--json`: a list of each kind."""
        constant = asdict(self.constant_forecasts)
        return {
            "dead_parameters": [
                {"name": each.name, "shape": list(each.shape)} for each in self.dead_parameters
            ],
            "constant_forecasts": {
                key: list(value) if isinstance(value, tuple) else value
                for key, value in constant.items()
            },
            "ignored_inputs": list(self.ignored_inputs),
            "moved_by_others": self.moved_by_others,
            "waits": [{"where": each.where, "what": each.what} for each in self.waits.found],
        }

    def notices(self, model: str) -> tuple[str, ...]:
        """One line for each kind of finding: what it is, and what to do.

        Args:
            model: how the network was named.
        """
        said = (
            self._of_divergence(),
            self._of_parameters(),
            self._of_forecasts(),
            self._of_inputs(),
            self._of_others(),
            self._of_waits(),
            self._of_waits_not_looked_for(),
        )
        return tuple(f"{model}: {each}" for each in said if each)

    def _of_divergence(self) -> str:
        if not self.diverged:
            return ""
        return f"{self.diverged}; begin with a lower learning_rate, or check its arithmetic"

    def _of_parameters(self) -> str:
        if not self.dead_parameters:
            return ""
        one = len(self.dead_parameters) == 1
        return (
            f"{'parameter' if one else 'parameters'} {_some(self.dead_parameters)} never "
            f"{'gets' if one else 'get'} a gradient: no forecast depends on "
            f"{'it' if one else 'them'}; use {'it' if one else 'them'} in forward, or leave "
            f"{'it' if one else 'them'} out of the class"
        )

    def _of_forecasts(self) -> str:
        if not self.constant_forecasts.count:
            return ""
        return (
            f"{self.constant_forecasts} are the same for every window, and training does not "
            "change them: check what the last layer returns for them"
        )

    def _of_inputs(self) -> str:
        if not self.ignored_inputs:
            return ""
        one = len(self.ignored_inputs) == 1 and not self.ignored_inputs[0].endswith("s")
        return (
            f"{' and '.join(self.ignored_inputs)} {'changes' if one else 'change'} no forecast: "
            "the network does not use what the task has; where that is not meant, use it in forward"
        )

    def _of_others(self) -> str:
        if not self.moved_by_others:
            return ""
        return (
            "a window's forecast depends on the others of its batch (it moved by "
            f"{self.moved_by_others:.2g} among others): one that is forecast alone gets another; "
            "where that is not meant, compute over the windows of a batch in training only"
        )

    def _of_waits(self) -> str:
        if not self.waits.found:
            return ""
        one = len(self.waits.found) == 1
        return (
            f"{_some(self.waits.found, '; ')} {'waits' if one else 'wait'} for the GPU: such a "
            "step cannot be captured as a CUDA graph, and runs more slowly; write it with "
            "operations on tensors alone"
        )

    def _of_waits_not_looked_for(self) -> str:
        if not self.waits.failed:
            return ""
        return f"what waits for a GPU could not be looked for: {self.waits.failed}"


def _some(things: Sequence[object], comma: str = ", ") -> str:
    named = comma.join(str(each) for each in things[:NAMED])
    return named if len(things) <= NAMED else f"{named} and {len(things) - NAMED} more"
