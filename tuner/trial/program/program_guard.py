"""Runs a program and leaves nothing of it behind: a process between a worker and the program.

`python -I -S program_guard.py FOLDER MOST ASKED_S WORD...` starts the words as a program, and ends
with its exit code; with 128 and the number of the signal that ended it, as shells do. All that the
program started is killed then, wherever it hid: what loses its parent becomes this process's child.
The same happens once standard input ends, which is when the worker closes it or dies. A byte there
says that the program shall stop: there is a file `stop` then, SIGTERM comes after ASKED_S, and the
end after as long again. The folder is removed last.

What the program reports, in the named pipe `report` of the folder, goes to standard output, each
line behind the moment at which it came, whatever the worker is at then. What it prints is only
counted: a line without a moment says that it is more than MOST bytes. The end of it goes to stderr.

It needs nothing but Python itself, so that it is there within milliseconds, and has one thread.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
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


LINE_BYTES = 1 << 16
"""Of one line; none that is meant is longer."""
PENDING_BYTES = 8 << 20
"""Of lines that came and are not taken yet: then the program waits, as with any full pipe."""
KEPT_BYTES = 4096


def main(words: Sequence[str]) -> int:
    folder, most, asked_s, command = words[0], int(words[1]), float(words[2]), list(words[3:])
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    woken = woken_by(signal.SIGCHLD)
    # Open at both ends: who opens it to write never waits, and its end is never read.
    report = os.open(f"{folder}/report", os.O_RDWR | os.O_NONBLOCK)
    printed, prints = os.pipe()
    program = _started(command, prints)
    os.close(prints)
    relay, code = Relay(report, printed, most), None
    try:
        code = _until_over(program, relay, woken, Path(folder, "stop"), asked_s)
    finally:
        kill_all(program)
        relay.take_rest()
        while code is not None and relay.pending and (0 not in relay.wait([0]) or os.read(0, 1)):
            pass  # until the worker has taken all, or hangs up
        os.write(2, relay.last_printed)
        shutil.rmtree(folder, ignore_errors=True)
    return 128 + signal.SIGKILL if code is None else code


class Relay:
    """What the program reports, on its way to the worker, and the end of what it prints."""

    def __init__(self, report: int, printed: int, most: int) -> None:
        self.pending, self.last_printed = bytearray(), b""
        self._report, self._printed, self._most = report, printed, most
        self._count, self._rest, self._rest_came = 0, b"", 0.0
        for each in (printed, 1):
            os.set_blocking(each, False)

    def wait(self, more: Sequence[int], for_s: float | None = None) -> Sequence[int]:
        """Take in what comes, and pass on what is taken; which of `more` have something, too."""
        reads = [*more, *([self._report] if len(self.pending) < PENDING_BYTES else [])]
        reads += [self._printed] if self._printed >= 0 else []
        ready = select.select(reads, [1] if self.pending else [], [], for_s)[0]
        if self._report in ready:
            self._take_reported()
        if self._printed in ready:
            self._take_printed()
        if self.pending:  # at once: who kills this process takes along what it has kept
            with contextlib.suppress(BlockingIOError, BrokenPipeError):
                del self.pending[: os.write(1, self.pending)]
        return ready

    def take_rest(self) -> None:
        """Of a program that has ended: what is in the pipes, and a last line where only its end of
        line is missing.
        """
        with contextlib.suppress(BlockingIOError):
            while True:
                self._take_reported()
        with contextlib.suppress(BlockingIOError):
            while self._printed >= 0:
                self._take_printed()
        import json  # it takes some milliseconds

        with contextlib.suppress(ValueError, RecursionError):
            json.loads(self._rest)
            self._add([self._rest], self._rest_came)

    def _take_reported(self) -> None:
        came = os.read(self._report, LINE_BYTES)
        self._rest_came = time.perf_counter()
        *lines, self._rest = (self._rest + came).split(b"\n")
        if len(self._rest) > LINE_BYTES:  # the worker refuses it
            lines, self._rest = [*lines, self._rest], b""
        self._add(lines, self._rest_came)

    def _add(self, lines: Sequence[bytes], moment: float) -> None:
        for line in lines:
            self.pending += b"%r %s\n" % (moment, line)

    def _take_printed(self) -> None:
        came = os.read(self._printed, 1 << 20)
        if not came:  # all that could print have ended, or closed it
            self._printed = -1
        if self._count <= self._most < self._count + len(came):
            self.pending += b"printed\n"
        self._count += len(came)
        self.last_printed = (self.last_printed + came)[-KEPT_BYTES:]


def _started(command: list[str], prints: int) -> int:
    parent = os.getpid()
    program = os.fork()
    if program:
        with contextlib.suppress(OSError):  # it has done so itself by now
            os.setpgid(program, program)
        return program
    try:
        os.setpgid(0, 0)
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(NOT_STARTED)
        signal.set_wakeup_fd(-1)
        for number in AS_USUAL:
            signal.signal(number, signal.SIG_DFL)
        for mine, its in ((os.open(os.devnull, os.O_RDONLY), 0), (prints, 1), (prints, 2)):
            os.dup2(mine, its)
        os.execvp(command[0], command)  # noqa: S606 - a shell is what must not read it
    except OSError as error:
        os.write(2, f"{command[0]} cannot be started: {error.strerror}\n".encode())
    finally:
        os._exit(NOT_STARTED)


def _until_over(program: int, relay: Relay, woken: int, stop: Path, asked_s: float) -> int | None:
    """The exit code of the program, or of one that had to be ended; None where standard input ended
    before.
    """
    signals, due = [signal.SIGTERM], math.inf
    while True:
        left = None if due == math.inf else max(0.0, due - time.monotonic())
        ready = relay.wait([0, woken], left)
        if woken in ready:
            os.read(woken, 4096)
            code = _reaped(program)
            if code is not None:
                return code
        if 0 in ready:
            if not os.read(0, 1):
                return None
            with contextlib.suppress(OSError):
                stop.touch()
            due = time.monotonic() + asked_s
        if time.monotonic() >= due:
            if not signals:
                return 128 + signal.SIGKILL
            with contextlib.suppress(OSError):
                os.killpg(program, signals.pop())
            due += asked_s


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


def woken_by(*signals: signal.Signals) -> int:
    """A pipe that can be read once one of these came; what is read are their numbers."""
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    for each in signals:
        signal.signal(each, lambda *_: None)
    return woken


def kill_all(program: int) -> None:
    """Again and again: what is killed leaves its children to this process."""
    until = time.monotonic() + END_S
    while time.monotonic() < until:
        with contextlib.suppress(OSError):
            os.killpg(program, signal.SIGKILL)
        for each in _children():
            with contextlib.suppress(OSError):
                os.kill(each, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.005)


def _children() -> list[int]:
    """Of this process: those of a child too, once that was killed."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            # The name, in parentheses, may hold anything.
            if int(entry.read_text().rpartition(")")[2].split()[1]) == os.getpid():
                found.append(int(entry.parent.name))
    return found


def prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


if __name__ == "__main__":
    os._exit(main(sys.argv[1:]))
