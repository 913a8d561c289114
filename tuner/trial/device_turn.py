"""A trial's turn on its device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from tuner.config import StopReason
from tuner.devices import CpuCores, Gpu, exclusive
from tuner.devices.lock import giving_up, logs_waiting
from tuner.trial.time_left import TimeLeft


@contextmanager
def alone_on(
    device: Gpu | CpuCores,
    should_stop: Callable[[], StopReason | None],
    on_phase: Callable[[str], None],
    left: TimeLeft,
) -> Iterator[bool]:
    """The device for oneself, once it is free; False for who is to stop before that. Until then
    nothing is taken of the time that is `left`.

    Raises:
        DeviceLockError: devices cannot be locked.
    """
    give_up = giving_up(on_phase, lambda: should_stop() is not None)
    turn = exclusive(device.lock_names, give_up=give_up, waiting=logs_waiting(device.label))
    with ExitStack() as stack:
        with left.waiting():
            held = stack.enter_context(turn)
        yield held
