"""A device's context that is lost: only a fresh process can go on, and not for ever."""

from __future__ import annotations

from tuner.errors import TunerError

MAX_RESTARTS = 5
"""A device whose workers end this often without a result of theirs in between gets no other one, however well those on
other devices do. Where a launch waits twice as long each time, that is a quarter of a minute: longer than a database
that restarts keeps every trial from finishing."""

LOST_CONTEXT_WORDS = (
    "CUDA error",
    "Triton Error [CUDA]",
    "CUBLAS_STATUS",
    "CUDNN_STATUS",
    "CUSPARSE_STATUS",
    "device-side assert",
)
"""How a failure says that the process's CUDA context is not to be used again."""


class ContextLostError(Exception):
    """The device's context is unusable after a failure: only a fresh process can go on.

    `results` is how many this process had that count, without the failure itself: signs that its device works.
    """

    def __init__(self, reason: str, *, results: int = 0) -> None:
        super().__init__(reason)
        self.results = results

    def failures(self, before: int) -> int:
        """How many processes in a row lost the device and had no result beside that, with this one and `before`."""
        return 1 if self.results else before + 1


def lost_context(error: Exception) -> bool:
    """True when the failure leaves a CUDA context behind in which every later call fails too."""
    if isinstance(error, TunerError):
        return False
    named = any(cls.__name__ == "AcceleratorError" for cls in type(error).__mro__)
    return named or any(words in str(error) for words in LOST_CONTEXT_WORDS)
