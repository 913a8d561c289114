"""Runs a program and leaves nothing of it behind: a process between a worker and the program.

`python -I -S program_guard.py LIFELINE FOLDER WORD...` starts the words as a program, and ends with
its exit code; with 128 and the number of the signal that ended it, as shells do. All that the
program started is killed then, wherever it hid: what loses its parent becomes this process's child.
The same happens once the lifeline ends, which is when the worker closes it or dies; a byte in it
says to ask the program to end (SIGTERM). The folder is removed last.

It needs nothing but Python itself, so that it is there within milliseconds, and has one thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import select
import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
NOT_STARTED = 127
AS_USUAL = (
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGPIPE, signal.SIGXFSZ,
)  # fmt: skip
"""Signals that this process, Python or a worker's trainer ignore, and a program must not."""
END_S = 10.0
"""What does not die within this is in the kernel's hands."""


def main(words: Sequence[str]) -> int:
    lifeline, folder, command = int(words[0]), words[1], list(words[2:])
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    program = _started(command)
    try:
        return _until_over(program, lifeline, woken)
    finally:
        _kill_all(program)
        shutil.rmtree(folder, ignore_errors=True)


def _started(command: list[str]) -> int:
    parent = os.getpid()
    program = os.fork()
    if program:
        with contextlib.suppress(OSError):  # it has done so itself by now
            os.setpgid(program, program)
        return program
    try:
        os.setpgid(0, 0)
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(NOT_STARTED)
        signal.set_wakeup_fd(-1)
        for number in AS_USUAL:
            signal.signal(number, signal.SIG_DFL)
        os.execvp(command[0], command)  # noqa: S606 - a shell is what must not read it
    except OSError as error:
        os.write(2, f"{command[0]} cannot be started: {error.strerror}\n".encode())
    finally:
        os._exit(NOT_STARTED)


def _until_over(program: int, lifeline: int, woken: int) -> int:
    """The exit code of the program; that of a killed one where the lifeline ended."""
    while True:
        ready = select.select([lifeline, woken], [], [])[0]
        if woken in ready:
            os.read(woken, 4096)
            code = _reaped(program)
            if code is not None:
                return code
        if lifeline in ready:
            if not os.read(lifeline, 1):
                return 128 + signal.SIGKILL
            with contextlib.suppress(OSError):
                os.killpg(program, signal.SIGTERM)


def _reaped(program: int) -> int | None:
    """Take in who has ended; the exit code of the program where it is among them."""
    found = None
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if not ended:
            return found
        if ended == program:
            code = os.waitstatus_to_exitcode(status)
            found = code if code >= 0 else 128 - code


def _kill_all(program: int) -> None:
    """Again and again: what is killed leaves its children to this process."""
    until = time.monotonic() + END_S
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            os.killpg(program, signal.SIGKILL)
        for each in _descendants(os.getpid()):
            with contextlib.suppress(OSError):
                os.kill(each, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.005)


def _descendants(ancestor: int) -> list[int]:
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name, in parentheses, may hold anything.
            parents[int(entry.parent.name)] = int(entry.read_text().rpartition(")")[2].split()[1])
    found: list[int] = []
    last = [ancestor]
    while last:
        last = [pid for pid, parent in parents.items() if parent in last and pid not in found]
        found += last
    return found


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
