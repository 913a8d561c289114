"""Programs that call a function in processes of its own, ended in the middle of that."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence

import psutil


def ended_by(
    kind: signal.Signals,
    words: Sequence[str],
    least: int,
    environment: Mapping[str, str] = os.environ,
) -> int:
    """Send a program a signal a moment after so many processes are beneath it; its exit code. None
    of these may be left then."""
    process = subprocess.Popen(words, env=environment, stderr=subprocess.DEVNULL)
    children: list[psutil.Process] = []
    until = time.monotonic() + 60
    while len(children) < least and time.monotonic() < until:
        time.sleep(0.03)
        children = psutil.Process(process.pid).children(recursive=True)
    assert len(children) >= least
    time.sleep(0.2)
    process.send_signal(kind)
    code = process.wait(30)
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.wait_procs(children, timeout=10)
    assert not [each for each in children if each.is_running()]
    return code
