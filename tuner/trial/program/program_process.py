"""A program of the user's own, as whoever trains has it: started under a guard, heard, and ended.

What it reports comes through a named pipe, which every language opens like a file; what it prints
is only counted, and its end kept for a log. Nothing is read without a limit.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Annotated, Any, Literal, Self

import psutil
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from tuner.display.text import shown, signal_name
from tuner.errors import TunerError
from tuner.files.child import ChildProcess
from tuner.files.environment import without_secrets
from tuner.files.kinds import LARGEST_FIGURE, MOST_EPOCHS
from tuner.files.plain import LARGEST, excerpt
from tuner.trial.program import program_guard

# What a program says of its training: lines of JSON, each checked before anything reads it.


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


REPORT_BYTES = 64 << 20
PRINTED_BYTES = 256 << 20
AT_ONCE = 64
"""Lines handed over before who handles them looks at anything else."""
KEPT_LINES = 10
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
        self.last_printed: list[str] = []
        """The last lines that it printed, harmless to show; none before its end."""
        self.began = 0.0
        """When it was started (`time.perf_counter`)."""
        self.last_came = 0.0
        """When its last line was taken; 0 where none was."""
        self._stop_asked = False

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
        trial, report = between / "trial.json", between / "report"
        own = self._own_folder or between / "checkpoint"
        own.mkdir(parents=True, exist_ok=True)
        trial.write_text(json.dumps({**self._trial, "checkpoint_folder": str(own)}))
        os.mkfifo(report, 0o600)
        log = opened.enter_context(tempfile.TemporaryFile())  # noqa: SIM115 - it is entered
        guard = [sys.executable, "-I", "-S", str(Path(program_guard.__file__))]
        self.began = time.perf_counter()
        self._child = ChildProcess(
            "the program",
            [*guard, str(between), str(PRINTED_BYTES), str(ASKED_S), *self._command],
            environment=without_secrets(os.environ)
            | {TRIAL: str(trial), REPORT: str(report), STOP: str(between / "stop")},
            folder=self._folder,
            log=log,
            told=True,
            asked=True,
            session=True,
        )
        opened.callback(self._see_it_end, log)

    def __exit__(self, *_: object) -> None:
        """End whatever is left of it."""
        self._opened.close()

    def _see_it_end(self, log: IO[bytes]) -> None:
        """Its guard kills what it started, and ends, once nobody can tell it anything."""
        popen = self._child.popen
        self._child.stdin.close()
        self._child.wait(program_guard.END_S + 1.0)
        self._child.end()
        if popen.returncode != 0:
            _kill_session(popen.pid)
        log.seek(0)
        text = log.read().decode("utf-8", "replace")
        lines = [shown(line.rpartition("\r")[2]).rstrip() for line in text.splitlines()]
        self.last_printed = [line for line in lines if line][-KEPT_LINES:]

    @property
    def pid(self) -> int:
        """Of its guard."""
        return self._child.popen.pid

    # -- what it says ------------------------------------------------------------------------------

    def lines(self) -> Iterator[tuple[bytes, float] | None]:
        """What it reports, line by line, each with the moment (`time.perf_counter`) at which it
        came; None in between, several times a second. Ends with the program.

        Raises:
            ProgramError: it says more than anybody reads.
        """
        lines, reported = self._child.lines, 0
        for number in itertools.count(1):
            line = lines.next(LOOK_S)
            if line is not None:
                self.last_came = time.perf_counter()
                said, moment = _stamped(line)
                reported += len(said)
                if reported > REPORT_BYTES:
                    raise ProgramError(f"its report is longer than {REPORT_BYTES >> 20} MiB")
                if said.strip():
                    yield said, moment
            elif lines.ended:
                self._child.wait(program_guard.END_S)
                return
            if line is None or number % AT_ONCE == 0:
                yield None

    # -- its end -----------------------------------------------------------------------------------

    def ask_to_stop(self) -> None:
        """Say that it shall end: its guard says so with a file, then ever more plainly."""
        if not self._stop_asked:
            self._stop_asked = True
            with contextlib.suppress(OSError):
                os.write(self._child.stdin.fileno(), b"s")

    def how_it_ended(self) -> str:
        """`exit code 3`, `SIGKILL`; to be asked once it has ended."""
        code = self._child.code
        if code is None:
            return "no end"
        number = -code if code < 0 else code - 128
        return signal_name(number) if number in signal.valid_signals() else f"exit code {code}"

    @property
    def ended_well(self) -> bool:
        return self._child.code == 0


def _stamped(line: bytes) -> tuple[bytes, float]:
    """What its guard passes on: a line of the program's, behind the moment at which it came."""
    moment, passed, said = line.partition(b" ")
    if not passed:
        raise ProgramError(
            f"it printed more than {PRINTED_BYTES >> 20} MiB; print less, or into a file"
        )
    if len(said) > program_guard.LINE_BYTES:
        raise ProgramError(
            f"its report has a line of more than {program_guard.LINE_BYTES >> 10} KiB"
        )
    return said, float(moment)


def _kill_session(leader: int) -> None:
    """What a guard that was killed itself could not end any more: it led their session."""
    for pid in psutil.pids():
        with contextlib.suppress(OSError):
            if os.getsid(pid) == leader:
                os.kill(pid, signal.SIGKILL)
