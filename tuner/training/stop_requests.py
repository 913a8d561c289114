"""What a training is asked after every step: whether to stop, and whether at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tuner.config import StopReason
from tuner.training.checkpointing import Checkpointer
from tuner.training.run_state import RunState

ShouldStop = Callable[[], StopReason | None]


@dataclass(slots=True)
class Stopping:
    """Hears of a stop, and has an interruption wait for the epoch's end where that must be kept.

    Args:
        state: of the training.
        should_stop: asked until it gives a reason.
        checkpointer: what an interruption is to be continued from; None where it is not.
    """

    state: RunState
    should_stop: ShouldStop | None
    checkpointer: Checkpointer | None
    waiting: StopReason | None = field(default=None, init=False)
    """An interruption that was asked for in the epoch under way, and takes effect at its end."""

    def poll(self) -> StopReason | None:
        """After a step: why the epoch under way ends now."""
        if self.waiting is None and self.should_stop is not None:
            reason = self.should_stop()
            if reason is StopReason.INTERRUPTED and self._waits():
                self.waiting = reason
            elif reason is not None:
                return reason
        return StopReason.TIME_LIMIT if self.state.out_of_time() else None

    def _waits(self) -> bool:
        epochs, elapsed_s = len(self.state.history), self.state.clock.elapsed()
        return self.checkpointer is not None and self.checkpointer.waits_for_end(epochs, elapsed_s)
