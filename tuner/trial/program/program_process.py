"""A program of the user's own, as whoever trains has it: started under a guard, heard, and ended.

What it reports comes through a named pipe, which every language opens like a file; what it prints
is only counted, and its end kept for a log. Nothing is read without a limit.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from tuner.display.text import shown
from tuner.trial.program import program_guard
from tuner.trial.program.program_lines import LINE_BYTES, ProgramError

TRIAL, REPORT, STOP = "TUNER_TRIAL", "TUNER_REPORT", "TUNER_STOP"
"""Names of what a program finds in its environment: the files with its trial, for its report, and
one that is there once it shall stop."""
NOT_ITS_BUSINESS = ("TUNER_STORAGE", "PGPASSWORD")
LOOK_S = 0.05
"""How often is looked whether the training shall stop."""
ASKED_S = 1.0
"""For a program that was asked to stop to end by itself: then comes SIGTERM, and after as long
SIGKILL. A worker that is told to stop has little more than three seconds."""
REPORT_BYTES = 64 << 20
PRINTED_BYTES = 256 << 20
KEPT_BYTES = 4096
KEPT_LINES = 10


class ProgramProcess:
    """One run of a program, from its start to its end, as a context: nothing of it is left after.

    Args:
        command: its words; no shell reads them.
        folder: where it runs.
        trial: what it is told, as the JSON document in the file that `TUNER_TRIAL` names.
        own_folder: its own, to keep a checkpoint in; None: one that ends with it.
    """

    def __init__(
        self,
        command: Sequence[str],
        folder: Path,
        trial: Mapping[str, Any],
        own_folder: Path | None,
    ) -> None:
        self._command, self._folder = command, folder
        self._trial, self._own_folder = trial, own_folder
        self._rest = b""
        self._reported = self._printed = 0
        self._kept: deque[bytes] = deque()
        self._kept_bytes = 0
        self._stop_asked: float | None = None
        self._signalled = False

    # -- its life ----------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if not self._folder.is_dir():
            raise ProgramError(
                f"its folder {shown(str(self._folder))} is not on this host; a program is not "
                "carried to other hosts: put it there"
            )
        self._between = Path(tempfile.mkdtemp(prefix="tuner-program-"))
        try:
            self._start()
        except OSError as error:
            raise ProgramError(f"it cannot be started: {error.strerror}") from None
        return self

    def _start(self) -> None:
        trial, report = self._between / "trial.json", self._between / "report"
        self._stop_file = self._between / "stop"
        own = self._own_folder or self._between / "checkpoint"
        own.mkdir(parents=True, exist_ok=True)
        trial.write_text(json.dumps({**self._trial, "checkpoint_folder": str(own)}))
        os.mkfifo(report, 0o600)
        # Open at both ends: who opens it to write never waits, and its end is never read.
        self._report = os.open(report, os.O_RDWR | os.O_NONBLOCK)
        ours, theirs = os.pipe()
        self._output = ours
        os.set_blocking(ours, False)
        lifeline, self._lifeline = os.pipe()
        environment = {
            name: text for name, text in os.environ.items() if name not in NOT_ITS_BUSINESS
        } | {TRIAL: str(trial), REPORT: str(report), STOP: str(self._stop_file)}
        guard = [sys.executable, "-I", "-S", str(Path(program_guard.__file__))]
        try:
            self._process = subprocess.Popen(
                [*guard, str(lifeline), str(self._between), *self._command],
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=theirs,
                stderr=theirs,
                pass_fds=[lifeline],
                start_new_session=True,
            )
        finally:
            os.close(theirs)
            os.close(lifeline)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._report, selectors.EVENT_READ)
        self._selector.register(self._output, selectors.EVENT_READ)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End whatever is left of it."""
        os.close(self._lifeline)
        try:
            self._process.wait(program_guard.END_S + 1.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
        if self._process.returncode != 0:
            _kill_session(self._process.pid)
            shutil.rmtree(self._between, ignore_errors=True)
        self._selector.close()
        for descriptor in (self._report, self._output):
            os.close(descriptor)

    @property
    def pid(self) -> int:
        """Of its guard."""
        return self._process.pid

    # -- what it says ------------------------------------------------------------------------------

    def lines(self) -> Iterator[tuple[bytes, float] | None]:
        """What it reports, line by line, each with the moment (`time.perf_counter`) at which it
        came; None in between, several times a second. Ends with the program.

        Raises:
            ProgramError: it says more than anybody reads.
        """
        while True:
            ended = self._process.poll() is not None
            events = self._selector.select(0 if ended else LOOK_S)
            now = time.perf_counter()
            ready = {key.fd for key, _ in events}
            if self._output in ready:
                self._take_printed()
            if self._report in ready:
                for line in self._take_reported():
                    yield line, now
            elif ended:
                return
            yield None
            if self._pressed():
                return

    def _take_reported(self) -> list[bytes]:
        came = os.read(self._report, LINE_BYTES)
        self._reported += len(came)
        *lines, self._rest = (self._rest + came).split(b"\n")
        if max(map(len, [*lines, self._rest])) > LINE_BYTES:
            raise ProgramError(f"its report has a line of more than {LINE_BYTES >> 10} KiB")
        if self._reported > REPORT_BYTES:
            raise ProgramError(f"its report is longer than {REPORT_BYTES >> 20} MiB")
        return [line for line in lines if line.strip()]

    def _take_printed(self) -> None:
        came = os.read(self._output, 1 << 20)
        if not came:  # all that could print have ended, or closed it
            self._selector.unregister(self._output)
            return
        self._printed += len(came)
        if self._printed > PRINTED_BYTES:
            raise ProgramError(
                f"it printed more than {PRINTED_BYTES >> 20} MiB; print less, or into a file"
            )
        self._kept.append(came[-KEPT_BYTES:])
        self._kept_bytes += len(self._kept[-1])
        while self._kept_bytes - len(self._kept[0]) >= KEPT_BYTES:
            self._kept_bytes -= len(self._kept.popleft())

    def last_printed(self) -> list[str]:
        """The last lines that it printed, harmless to show."""
        text = b"".join(self._kept)[-KEPT_BYTES:].decode("utf-8", "replace")
        lines = [shown(line.rpartition("\r")[2]).rstrip() for line in text.splitlines()]
        return [line for line in lines if line][-KEPT_LINES:]

    # -- its end -----------------------------------------------------------------------------------

    def ask_to_stop(self) -> None:
        """Say that it shall end: with a file that is there, then ever more plainly."""
        if self._stop_asked is None:
            self._stop_asked = time.monotonic()
            with contextlib.suppress(OSError):
                self._stop_file.touch()

    def _pressed(self) -> bool:
        """Whether it has had all the time that it has to end by itself: the rest is done to it."""
        if self._stop_asked is None:
            return False
        for_s = time.monotonic() - self._stop_asked
        if for_s > ASKED_S and not self._signalled:
            self._signalled = True
            with contextlib.suppress(OSError):
                os.write(self._lifeline, b"t")
        return for_s > 2 * ASKED_S

    def how_it_ended(self) -> str:
        """`exit code 3`, `SIGKILL`; to be asked once it has ended."""
        code = self._process.returncode
        if code is None:
            return "no end"
        number = -code if code < 0 else code - 128
        try:
            return signal.Signals(number).name if number > 0 else f"exit code {code}"
        except ValueError:
            return f"exit code {code}"

    @property
    def ended_well(self) -> bool:
        return self._process.returncode == 0


def _kill_session(leader: int) -> None:
    """What a guard that was killed itself could not end any more: it led their session."""
    for pid in psutil.pids():
        with contextlib.suppress(OSError):
            if os.getsid(pid) == leader:
                os.kill(pid, signal.SIGKILL)
