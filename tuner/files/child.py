"""A child process: how it is started, told, heard and ended, and how its end is told.

No child outlives the process that started it. Who started it ends it, with all in its group; where
that process was killed itself, the kernel does so, as the child has asked for (`end_with`). Where
the child runs code of the user's, the database's secrets are not in its environment.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import math
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import IO, Any, Self

from tuner.display.text import signal_name
from tuner.errors import TERMINATED, TunerError
from tuner.files.environment import without_secrets
from tuner.files.plain import excerpt

PR_SET_PDEATHSIG = 1
GRACE_S = 2.0
"""For a command that took too long, to end by itself once it is asked to."""
END_S = 10.0
"""For a process that was killed to be gone: a GPU's memory is given back first."""
LINE_BYTES = 1 << 20
"""Of one line; none that is meant is longer."""
LAST_BYTES = 4096
"""Of what it printed, where its last line is looked for."""


class ChildError(TunerError):
    """It has ended, or it says what nobody understands, in one line."""


class SilentError(ChildError):
    """It said nothing in time, or was not done in time."""


@dataclass(slots=True, eq=False)
class Lines:
    """Lines that come through a pipe; `what` is who writes them.

    Raises:
        ChildError: a line is longer than any that is meant.
    """

    pipe: int
    what: str
    ended: bool = False
    """Whether nothing comes any more."""
    _whole: deque[bytes] = field(default_factory=deque)
    _rest: bytes = b""

    def came(self) -> list[bytes]:
        """All that are there by now; waits for none."""
        return list(iter(lambda: self.next(0.0), None))

    def next(self, within_s: float | None = None) -> bytes | None:
        """The next one; None where none comes in time, or none comes any more."""
        until = math.inf if within_s is None else time.monotonic() + within_s
        poll = select.poll()
        poll.register(self.pipe, select.POLLIN)
        while not self._whole and not self.ended:
            left = max(0.0, until - time.monotonic())
            if not poll.poll(None if within_s is None else left * 1000):
                return None
            came = os.read(self.pipe, 1 << 16)
            self.ended = not came
            *lines, self._rest = (self._rest + came).split(b"\n")
            self._whole += lines
            if len(self._rest) > LINE_BYTES:
                self._rest = b""
                raise ChildError(f"{self.what} said a line of more than {LINE_BYTES >> 20} MiB")
        return self._whole.popleft() if self._whole else None


@dataclass(slots=True, eq=False)
class ChildProcess:
    """A child, started as this is made; its context ends it.

    From the main thread: the kernel ends it with the thread that started it.

    Raises:
        OSError: it cannot be started.
    """

    what: str
    """It is, for a person: `the process that measures`."""
    command: Sequence[str]
    """Its words; no shell reads them."""
    _: KW_ONLY
    environment: Mapping[str, str] | None = None
    """All of it; None: ours without the database's secrets."""
    folder: Path | None = None
    log: IO[bytes] | None = None
    """Gets what it prints to stderr, and to its standard output unless it is `asked`; None: that
    goes where ours does. It stays the caller's to close.
    """
    told: bool = False
    """Whether it hears on its standard input; else nothing is to be read there."""
    asked: bool = False
    """Whether what it prints to its standard output are answers."""
    passed: Sequence[int] = ()
    """Descriptors that it has, too."""
    group: bool = True
    """Whether it leads a process group: Ctrl-C reaches us alone, and what it started ends with
    it.
    """
    session: bool = False
    """Whether it leads a session, too, by which is found all that it has left behind."""
    popen: subprocess.Popen[bytes] = field(init=False)
    lines: Lines = field(init=False)
    """What it answers."""

    def __post_init__(self) -> None:
        self.popen = subprocess.Popen(
            list(self.command),
            env=without_secrets(os.environ) if self.environment is None else self.environment,
            cwd=self.folder,
            stdin=subprocess.PIPE if self.told else subprocess.DEVNULL,
            stdout=subprocess.PIPE if self.asked else self.log,
            stderr=self.log,
            pass_fds=self.passed,
            process_group=0 if self.group and not self.session else None,
            start_new_session=self.session,
        )
        if self.popen.stdout is not None:
            self.lines = Lines(self.popen.stdout.fileno(), self.what)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    @property
    def stdin(self) -> IO[bytes]:
        """Where it is told."""
        assert self.popen.stdin is not None, "it is told something"
        return self.popen.stdin

    @property
    def code(self) -> int | None:
        """Its exit code, as of `Popen.returncode`, once it has ended."""
        return self.popen.poll()

    @property
    def runs(self) -> bool:
        return self.code is None

    def say(self, document: Any) -> None:
        """Tell it a line of JSON.

        Raises:
            ChildError: it has ended.
        """
        try:
            self.stdin.write(json.dumps(document).encode() + b"\n")
            self.stdin.flush()
        except OSError:
            raise ChildError(self.how_it_ended()) from None

    def give(self, told: bytes) -> bool:
        """Tell it all that it is to hear; whether it was there to hear it."""
        try:
            with self.stdin as all_of_it:
                all_of_it.write(told)
        except BrokenPipeError:
            return False
        return True

    def hear(self, within_s: float | None = None) -> Any:
        """The next line of JSON that it says.

        Raises:
            SilentError: it says none in time.
            ChildError: it has ended, or the line is no JSON.
        """
        line = self.lines.next(within_s)
        if line is None and self.lines.ended:
            raise ChildError(self.how_it_ended())
        if line is None:
            raise SilentError(f"{self.what} was not done after {within_s:.0f} s")
        try:
            return json.loads(line)
        except (ValueError, RecursionError):
            said = excerpt(line.decode(errors="replace"))
            raise ChildError(f"{self.what} said {said!r}, which is no line of JSON") from None

    def wait(self, within_s: float) -> int | None:
        """For its end; its exit code, None where it goes on."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.popen.wait(within_s)
        return self.popen.returncode

    def how_it_ended(self) -> str:
        """In one line, with the last one of its log."""
        code = self.wait(END_S)
        if code is None:
            return f"{self.what} says nothing more"
        words = "" if self.log is None else last_words(self.log)
        if self.log is None and code >= 0:
            return f"{self.what} {in_words(code)}; what it said last stands above"
        return f"{self.what} {in_words(code)}{words and ': '}{words}"

    def end(self, grace_s: float = 0.0) -> None:
        """End it, and its group: at once, or after so many seconds in which it was asked to."""
        if grace_s and self.runs:
            self.send_signal(signal.SIGTERM)
            self.wait(grace_s)
        self.send_signal(signal.SIGKILL)
        self.wait(END_S)
        for stream in (self.popen.stdin, self.popen.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):  # what nobody reads any more
                    stream.close()

    def send_signal(self, number: signal.Signals) -> None:
        """Send it one, and its group: also that of a leader that has ended."""
        if not self.group:
            self.popen.send_signal(number)
            return
        # Of one that was waited for, the number may be another user's by now.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.popen.pid, number)


@dataclass(frozen=True, slots=True)
class Ran:
    """What a command came to: its exit code, as of `Popen.returncode`, and what it printed."""

    code: int
    printed: str
    said: str
    """To stderr."""

    def last_words(self) -> str:
        return _last_of(self.said)


def ran(
    command: Sequence[str],
    *,
    within_s: float | None = None,
    given: str = "",
    environment: Mapping[str, str] | None = None,
    folder: Path | None = None,
) -> Ran:
    """Run a command to its end.

    Args:
        command: its words; no shell reads them.
        within_s: seconds that it may take: then it and what it started are ended.
        given: what it reads on its standard input.
        environment: all of it; None: ours without the database's secrets.
        folder: where it runs.

    Raises:
        OSError: it cannot be started.
        SilentError: it was not done in time.
    """
    with (
        tempfile.TemporaryFile() as log,
        ChildProcess(
            command[0],
            command,
            environment=environment,
            folder=folder,
            log=log,
            told=True,
            asked=True,
        ) as child,
    ):
        try:
            printed, _ = child.popen.communicate(given.encode(), within_s)
        except subprocess.TimeoutExpired:
            child.end(GRACE_S)
            raise SilentError(f"{command[0]} did not answer within {within_s:.0f} s") from None
        log.seek(0)
        said = log.read().decode(errors="replace")
        return Ran(child.popen.returncode, printed.decode(errors="replace"), said)


def in_words(code: int) -> str:
    """How a process ended, by its exit code as of `Popen.returncode`."""
    if code >= 0:
        return f"ended with exit code {code}"
    full = "; the kernel does that where the machine's memory is full"
    return f"was ended by {signal_name(-code)}{full if code == -signal.SIGKILL else ''}"


def last_words(log: IO[bytes]) -> str:
    """The last line of what was printed there; empty where there is none."""
    size = os.fstat(log.fileno()).st_size
    # Not by reading on: a child shares our place in its log.
    text = os.pread(log.fileno(), LAST_BYTES, max(0, size - LAST_BYTES)).decode(errors="replace")
    return _last_of(text)


def _last_of(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].removeprefix("tuner: error: ") if lines else ""


def last_line(log: Path) -> str:
    """The same of a log that others have written."""
    with log.open("rb") as file:
        return last_words(file) or "no output"


# What a child itself does about its parent.


def end_with(parent: int, number: signal.Signals) -> None:
    """Have the kernel, where it is Linux, send this process a signal once its parent has died.

    The parent is the thread that started it: the process may live on.
    """
    if sys.platform != "linux":
        return
    ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:  # it died before we asked
        sys.exit(TERMINATED)


class Orders:
    """What a child is told, a line of JSON each, until its parent wants no more; it ends with that.

    What it prints otherwise goes to stderr: a class of the user's may print.
    """

    def __init__(self, parent: int) -> None:
        end_with(parent, signal.SIGKILL)
        self._answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)

    def __iter__(self) -> Iterator[Any]:
        return map(json.loads, sys.stdin)

    def answer(self, document: Any) -> None:
        """In one line."""
        self._answers.write(json.dumps(document) + "\n")
        self._answers.flush()

    def close(self) -> None:
        """A fork of this process has nothing to answer."""
        self._answers.close()
