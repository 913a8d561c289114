"""The validation losses of a curve some of whose epochs were not validated."""

from __future__ import annotations

from collections.abc import Iterable

BEFORE_THE_FIRST = 2.0
"""Times the first loss, for epochs before it: clearly worse, so that the first one improves."""


def carried_on(losses: Iterable[float | None]) -> tuple[float, ...]:
    """A loss for each epoch: where one was not validated, that of the last one before it that was.

    So early stopping waits as many epochs with these as it did. Nothing where none was validated.
    """
    found: list[float] = []
    missing = 0
    for loss in losses:
        if loss is not None:
            found += [BEFORE_THE_FIRST * loss] * missing + [loss]
            missing = 0
        elif found:
            found.append(found[-1])
        else:
            missing += 1
    return tuple(found)
