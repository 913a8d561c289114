"""A program of the user's own, as whoever trains has it: started under a guard, heard, and ended.

What it reports comes through a named pipe, which every language opens like a file; what it prints
is only counted, and its end kept for a log. Nothing is read without a limit.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import psutil
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tuner.display.text import shown
from tuner.errors import TunerError
from tuner.files.environment import without_secrets
from tuner.files.kinds import LARGEST_FIGURE, MOST_EPOCHS
from tuner.files.plain import LARGEST, excerpt
from tuner.trial.program import program_guard

# What a program says of its training: lines of JSON, each checked before anything reads it.


LINE_BYTES = 1 << 16
"""Of one line; none that is meant is longer."""


class ProgramError(TunerError):
    """What is wrong with a program or with what it said, in one line: its trial's failure."""


class _Said(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


Seconds = Annotated[float, Field(ge=0, le=LARGEST_FIGURE, allow_inf_nan=False)]


class Started(_Said):
    """Its set-up is over: the clock starts."""

    started: Literal[True]


class EpochSaid(_Said):
    """An epoch is over, training and validation. A loss may be NaN: then it has diverged."""

    epoch: Annotated[int, Field(ge=1, le=MOST_EPOCHS)]
    train_loss: float
    val_loss: float
    learning_rate: Annotated[float, Field(ge=0, le=LARGEST_FIGURE, allow_inf_nan=False)] | None = (
        None
    )
    elapsed_s: Seconds | None = None
    """On the clock of one of tuner's callbacks, since it started in this process."""

    @property
    def diverged(self) -> bool:
        return not (is_figure(self.train_loss) and is_figure(self.val_loss))


class Figures(_Said):
    """How good it became, and what else is known of it."""

    test_mql: float | None = None
    val_mql: float | None = None
    converged: bool | None = None
    epochs: Annotated[int, Field(ge=1, le=MOST_EPOCHS)] | None = None
    """How many its training had: for one that had told all of them before it was interrupted."""
    n_parameters: Annotated[int, Field(ge=0, le=LARGEST)] | None = None
    peak_memory_bytes: Annotated[int, Field(ge=0, le=LARGEST)] | None = None

    @model_validator(mode="after")
    def _says_something(self) -> Figures:
        if self.test_mql is None and self.val_mql is None:
            raise ValueError("has neither test_mql nor val_mql")
        return self


class Final(_Said):
    """The last line."""

    final: Figures


Said = Started | EpochSaid | Final
_KINDS: dict[str, type[Said]] = {"started": Started, "epoch": EpochSaid, "final": Final}


class _TwiceError(Exception):
    """A key of a table, which has two values."""


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _TwiceError(excerpt(next(key for key in keys if keys.count(key) > 1), at_most=40))
    return table


def is_whole(line: bytes) -> bool:
    """Whether it is a line that was written to its end: some JSON."""
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def is_figure(value: float | None) -> bool:
    """Whether it is a number that can be kept."""
    return value is not None and math.isfinite(value) and abs(value) <= LARGEST_FIGURE


def read_line(line: bytes) -> Said:
    """What one line says.

    Raises:
        ProgramError: it says nothing that is known here.
    """
    shown = excerpt(line.decode("utf-8", "replace").strip(), at_most=80)
    try:
        data = json.loads(line, object_pairs_hook=_once)
    except _TwiceError as error:
        raise ProgramError(f"its report holds {shown!r}, which says {error} twice") from None
    except (ValueError, RecursionError):
        raise ProgramError(f"its report holds {shown!r}, which is no line of JSON") from None
    named = data if isinstance(data, dict) else {}
    kind = next((kind for name, kind in _KINDS.items() if name in named), None)
    if kind is None:
        raise ProgramError(
            f"its report holds {shown!r}; expected a table with started, epoch or final"
        )
    try:
        return kind.model_validate(data)
    except ValidationError as error:
        raise ProgramError(f"its report holds {shown!r}: {_what_is_wrong(kind, error)}") from None


def _what_is_wrong(kind: type[Said], error: ValidationError) -> str:
    details = error.errors(include_url=False)
    # An unknown key first: a misspelt one is also why another is missing.
    first = next((each for each in details if each["type"] == "extra_forbidden"), details[0])
    where = excerpt(".".join(str(part) for part in first["loc"]) or "the table", at_most=80)
    if first["type"] == "extra_forbidden":
        within = Figures if len(first["loc"]) > 1 else kind
        return f"{where} is unknown; expected some of {', '.join(within.model_fields)}"
    return excerpt(f"{where}: {first['msg']}", at_most=160)


# Reads what a program reports and prints, in a thread that does nothing else: a line's moment is
# when it came, whatever whoever trains is at.


REPORT_BYTES = 64 << 20
PRINTED_BYTES = 256 << 20
PENDING_BYTES = 8 << 20
"""Of lines that came and are not handled yet."""
LINE_COSTS = 200
"""Bytes that such a line takes beside its own."""
AT_ONCE = 64
"""Lines handed over before who handles them looks at anything else."""
KEPT_BYTES = 4096
KEPT_LINES = 10


class ProgramReader:
    """Reads both while the `with` block runs, and leaves no thread and no descriptor of its own.

    Args:
        report: a descriptor whose end is never read, which does not block.
        output: one that does not block, for what is printed.
    """

    def __init__(self, report: int, output: int) -> None:
        self._report, self._output = report, output
        self._lock = threading.Condition()
        self._pending: deque[tuple[bytes, float]] = deque()
        self._pending_bytes = 0
        self._error: ProgramError | None = None
        self._over = self._ending = self._closing = False
        self._last_came = 0.0
        self._rest = b""
        self._rest_came = 0.0
        self._reported = self._printed = 0
        self._kept: deque[bytes] = deque()
        self._kept_bytes = 0
        self._thread = threading.Thread(target=self._run, name="program-reader", daemon=True)

    def __enter__(self) -> Self:
        self._woken, self._wakes = os.pipe()
        os.set_blocking(self._wakes, False)
        try:
            self._thread.start()
        except RuntimeError as error:
            self._close()
            raise OSError(0, str(error)) from None
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._closing = True
            self._lock.notify_all()
        self._wake()
        self._thread.join()
        self._close()

    # -- for who handles the lines -----------------------------------------------------------------

    def take(self, for_s: float) -> list[tuple[bytes, float]]:
        """The next lines, each with the moment (`time.perf_counter`) at which it came; none where
        none comes within `for_s`, or all have come.

        Raises:
            ProgramError: it says more than anybody reads; told after what came before that.
        """
        with self._lock:
            if not self._pending and not self._over:
                self._lock.wait(for_s)
            if not self._pending and self._error is not None:
                raise self._error
            found = [self._pending.popleft() for _ in range(min(AT_ONCE, len(self._pending)))]
            self._pending_bytes -= sum(map(_cost, found))
            self._lock.notify_all()
        return found

    def program_ended(self) -> None:
        """Nothing comes any more: what is in the pipes is the last."""
        if not self._ending:
            self._ending = True
            self._wake()

    @property
    def is_over(self) -> bool:
        """Whether all that came can be taken."""
        return self._over

    @property
    def last_came(self) -> float:
        """When the last line came, also one that nobody has taken; 0 where none did."""
        return self._last_came

    def last_printed(self) -> list[str]:
        """The last lines that it printed, harmless to show."""
        text = b"".join(self._kept)[-KEPT_BYTES:].decode("utf-8", "replace")
        lines = [shown(line.rpartition("\r")[2]).rstrip() for line in text.splitlines()]
        return [line for line in lines if line][-KEPT_LINES:]

    # -- the thread --------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            self._read()
        except ProgramError as error:
            self._error = error
        except OSError as error:
            self._error = ProgramError(f"its report cannot be read: {error.strerror}")
        finally:
            with self._lock:
                self._over = True
                self._lock.notify_all()

    def _read(self) -> None:
        with selectors.DefaultSelector() as selector:
            for descriptor in (self._report, self._output, self._woken):
                selector.register(descriptor, selectors.EVENT_READ)
            while not self._closing:
                ending = self._ending  # read before the pipes are looked at
                ready = {key.fd for key, _ in selector.select(0 if ending else None)}
                if self._report in ready:
                    self._take_reported()
                if self._output in ready and not self._take_printed():
                    selector.unregister(self._output)
                    with self._lock:
                        self._lock.notify_all()  # its end is near
                if ending and not ready - {self._woken}:
                    self._take_rest()
                    return

    def _take_reported(self) -> None:
        came = os.read(self._report, LINE_BYTES)
        now = time.perf_counter()
        self._reported += len(came)
        *lines, self._rest = (self._rest + came).split(b"\n")
        if max(map(len, [*lines, self._rest])) > LINE_BYTES:
            raise ProgramError(f"its report has a line of more than {LINE_BYTES >> 10} KiB")
        if self._reported > REPORT_BYTES:
            raise ProgramError(f"its report is longer than {REPORT_BYTES >> 20} MiB")
        self._rest_came = now
        self._tell([(line, now) for line in lines if line.strip()])

    def _take_rest(self) -> None:
        """The last line of a program that has ended, where only its end of line is missing."""
        if is_whole(self._rest):
            self._tell([(self._rest, self._rest_came)])

    def _tell(self, found: list[tuple[bytes, float]]) -> None:
        if not found:
            return
        now = found[-1][1]
        with self._lock:
            self._last_came = now
            self._pending += found
            self._pending_bytes += sum(map(_cost, found))
            self._lock.notify_all()
            while self._pending_bytes > PENDING_BYTES and not self._closing:
                self._lock.wait()

    def _take_printed(self) -> bool:
        """False once all that could print have ended, or closed it."""
        came = os.read(self._output, 1 << 20)
        self._printed += len(came)
        if self._printed > PRINTED_BYTES:
            raise ProgramError(
                f"it printed more than {PRINTED_BYTES >> 20} MiB; print less, or into a file"
            )
        self._kept.append(came[-KEPT_BYTES:])
        self._kept_bytes += len(self._kept[-1])
        while self._kept_bytes - len(self._kept[0]) >= KEPT_BYTES:
            self._kept_bytes -= len(self._kept.popleft())
        return bool(came)

    def _wake(self) -> None:
        os.write(self._wakes, b"w")

    def _close(self) -> None:
        os.close(self._woken)
        os.close(self._wakes)


def _cost(line: tuple[bytes, float]) -> int:
    return len(line[0]) + LINE_COSTS


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

    def __exit__(self, *_: object) -> None:
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
