"""A program of the user's own, as whoever trains has it: started under a guard, heard, and ended.

What it reports comes through a named pipe, which every language opens like a file; what it prints
is only counted, and its end kept for a log. Nothing is read without a limit.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil

from tuner.display.text import shown
from tuner.files.environment import without_secrets
from tuner.trial.program import program_guard
from tuner.trial.program.program_lines import ProgramError
from tuner.trial.program.program_reader import ProgramReader

TRIAL, REPORT, STOP = "TUNER_TRIAL", "TUNER_REPORT", "TUNER_STOP"
"""Names of what a program finds in its environment: the files with its trial, for its report, and
one that is there once it shall stop."""
LOOK_S = 0.05
"""How often is looked whether the training shall stop."""
ASKED_S = 1.0
"""For a program that was asked to stop to end by itself: then comes SIGTERM, and after as long
SIGKILL. A worker that is told to stop has little more than three seconds."""


class NotStartedError(ProgramError):
    """The machine has no room for it, or no process: no trial's fault, and each would fail."""


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
        self._process: subprocess.Popen[bytes] | None = None
        self._reader: ProgramReader | None = None
        self.began = 0.0
        """When it was started (`time.perf_counter`)."""
        self._stop_asked: float | None = None
        self._signalled = False

    # -- its life ----------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        if not self._folder.is_dir():
            raise ProgramError(
                f"its folder {shown(str(self._folder))} is not on this host; a program is not "
                "carried to other hosts: put it there"
            )
        with contextlib.ExitStack() as opened:
            try:
                self._start(opened)
            except OSError as error:
                raise NotStartedError(f"it cannot be started: {error.strerror}") from None
            self._opened = opened.pop_all()
        return self

    def _start(self, opened: contextlib.ExitStack) -> None:
        """`opened` gives back what was taken, in the order of its end, however far this came."""
        between = Path(tempfile.mkdtemp(prefix="tuner-program-"))
        opened.callback(shutil.rmtree, between, ignore_errors=True)
        trial, report, self._stop_file = (
            between / "trial.json",
            between / "report",
            between / "stop",
        )
        own = self._own_folder or between / "checkpoint"
        own.mkdir(parents=True, exist_ok=True)
        trial.write_text(json.dumps({**self._trial, "checkpoint_folder": str(own)}))
        os.mkfifo(report, 0o600)
        # Open at both ends: who opens it to write never waits, and its end is never read.
        reported = os.open(report, os.O_RDWR | os.O_NONBLOCK)
        opened.callback(os.close, reported)
        with contextlib.ExitStack() as theirs:
            output, printed = _pipe(opened, theirs)
            os.set_blocking(output, False)
            self._reader = opened.enter_context(ProgramReader(reported, output))
            opened.callback(self._see_it_end)
            lifeline, self._lifeline = _pipe(theirs, opened)
            environment = without_secrets(os.environ)
            environment |= {TRIAL: str(trial), REPORT: str(report), STOP: str(self._stop_file)}
            guard = [sys.executable, "-I", "-S", str(Path(program_guard.__file__))]
            self.began = time.perf_counter()
            self._process = subprocess.Popen(
                [*guard, str(lifeline), str(between), *self._command],
                cwd=self._folder,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=printed,
                pass_fds=[lifeline],
                start_new_session=True,
            )

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End whatever is left of it."""
        self._opened.close()

    def _see_it_end(self) -> None:
        """Once its lifeline was closed: its guard kills what it started, and ends."""
        if self._process is None:
            return
        try:
            self._process.wait(program_guard.END_S + 1.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
        if self._process.returncode != 0:
            _kill_session(self._process.pid)

    @property
    def pid(self) -> int:
        """Of its guard."""
        return self._started.pid

    @property
    def _started(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "nobody asks before it was started"
        return self._process

    # -- what it says ------------------------------------------------------------------------------

    def lines(self) -> Iterator[tuple[bytes, float] | None]:
        """What it reports, line by line, each with the moment (`time.perf_counter`) at which it
        came; None in between, several times a second. Ends with the program.

        Raises:
            ProgramError: it says more than anybody reads.
        """
        reader = self._reader
        assert reader is not None, "nobody asks before it was started"
        while True:
            if self._started.poll() is not None:
                reader.program_ended()
            is_over = reader.is_over
            came = reader.take(LOOK_S)
            yield from came
            if is_over and not came:
                return
            yield None
            if self._pressed():
                return

    @property
    def last_came(self) -> float:
        """When its last line came, also one that nobody was given yet; 0 where none did."""
        return 0.0 if self._reader is None else self._reader.last_came

    def last_printed(self) -> list[str]:
        """The last lines that it printed, harmless to show."""
        return [] if self._reader is None else self._reader.last_printed()

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
        code = self._started.returncode
        if code is None:
            return "no end"
        number = -code if code < 0 else code - 128
        try:
            return signal.Signals(number).name if number > 0 else f"exit code {code}"
        except ValueError:
            return f"exit code {code}"

    @property
    def ended_well(self) -> bool:
        return self._started.returncode == 0


def _pipe(reads: contextlib.ExitStack, writes: contextlib.ExitStack) -> tuple[int, int]:
    """A pipe whose two ends are closed with these."""
    ends = os.pipe()
    reads.callback(os.close, ends[0])
    writes.callback(os.close, ends[1])
    return ends


def _kill_session(leader: int) -> None:
    """What a guard that was killed itself could not end any more: it led their session."""
    for pid in psutil.pids():
        with contextlib.suppress(OSError):
            if os.getsid(pid) == leader:
                os.kill(pid, signal.SIGKILL)
