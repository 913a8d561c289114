"""What a signal is called."""

from __future__ import annotations

import signal


def signal_name(number: int) -> str:
    """`SIGKILL`; `signal 40` where it has no name, as those that are numbered from SIGRTMIN on."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
