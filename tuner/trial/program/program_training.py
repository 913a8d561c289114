"""One training by a program: its lines in their order, its clock, and how it came out.

The clock runs from the program's `started` line, else from its start, to the line of its last
epoch; an attempt that goes on from a checkpoint of the program's goes on with the clock as it stood
there. Nothing here knows a device or a database.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import math
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from tuner.config import EpochRecord, StopReason
from tuner.files.durable import is_full, read_regular, write_durably
from tuner.files.plain import digest_of
from tuner.spec.program import ClockLabel, Program
from tuner.trial.program.program_process import (
    EpochSaid,
    Figures,
    Final,
    ProgramError,
    ProgramProcess,
    Started,
    is_figure,
    read_line,
)

# What outlives a run of a program that was interrupted: its own folder, and what it had told. The
# two belong together. A program that goes on from a checkpoint of its own goes on with the clock as
# it stood there; one that has none begins anew, and so does its clock.


MOST_BYTES = 64 << 20
_EPOCH = TypeAdapter(EpochRecord)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Earlier:
    """What is left of an earlier attempt: the epochs that it told, and notes of its device."""

    epochs: tuple[EpochRecord, ...] = ()
    notes: Mapping[str, Any] | None = None


@dataclass(slots=True, kw_only=True)
class KeptFolder:
    """The folder of one run. `identity` is all that the run depends on: what differs in any of it
    is not continued.

    What cannot be written is said once, and the training goes on: what is then on disk may be less
    than was told, and never anything else.
    """

    folder: Path
    identity: dict[str, Any]
    _epochs: list[EpochRecord] = field(default_factory=list)
    """Those that this attempt has told, with those that it went on from."""
    _behind: bool = False
    """Whether what is on disk is less than that."""
    _shut: bool = False
    """Whether the program's part cannot be used."""
    _said: bool = False

    @property
    def own(self) -> Path | None:
        """The program's own part, to keep a checkpoint in; None where there is no room for it."""
        return None if self._shut else self._own

    def earlier(self) -> Earlier:
        """What may be gone on with; nothing where the program keeps no checkpoint."""
        found = Earlier()
        if not self._shut and self._is_of_this_run() and self._has_checkpoint():
            found = Earlier(self._told(), self._notes())
        if not found.epochs:
            self.begin_anew()
            return found
        self._epochs = list(found.epochs)
        self._write_all()  # without half a line at its end
        return found

    def begin_anew(self) -> None:
        """Nothing of before counts."""
        self._epochs, self._behind = [], False
        shutil.rmtree(self.folder, ignore_errors=True)
        if (problem := self._problem_of_own()) is not None:
            self._shut = True
            self._say(problem)
            return
        self._write_all()

    def _problem_of_own(self) -> OSError | None:
        """Why the program's part is not there and empty."""
        try:
            self._own.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            return error
        if self._has_checkpoint():
            return OSError(errno.EBUSY, "what lies there cannot be removed")
        return None

    def went_on_from(self, epochs: Sequence[EpochRecord]) -> None:
        """The program says so: what it told beyond these it will tell again."""
        if self._epochs == list(epochs):
            return
        self._epochs = list(epochs)
        if not self._write_all():
            with contextlib.suppress(OSError):  # else it would count what is told again
                self._told_path.unlink()

    def add(self, epoch: EpochRecord) -> None:
        """One more is over."""
        self._epochs.append(epoch)
        if self._behind:
            self._write_all()
            return
        try:
            with self._told_path.open("a") as file:
                file.write(json.dumps(asdict(epoch)) + "\n")
        except OSError as error:
            self._fell_behind(error)

    def note(self, notes: Mapping[str, Any]) -> None:
        """What is known of the device up to now."""
        with contextlib.suppress(OSError):
            write_durably(self.folder / "notes.json", json.dumps(notes).encode())

    def _write_all(self) -> bool:
        """Whether whose run it is and what it told are on disk."""
        if self._shut:
            return False
        lines = "".join(json.dumps(asdict(epoch)) + "\n" for epoch in self._epochs)
        try:
            run = {"sha256": digest_of(self.identity)}
            write_durably(self.folder / "run.json", json.dumps(run).encode())
            write_durably(self._told_path, lines.encode())
        except OSError as error:
            self._fell_behind(error)
            return False
        self._behind = False
        return True

    def _fell_behind(self, error: OSError) -> None:
        self._behind = True
        self._say(error)

    def _say(self, error: OSError) -> None:
        if not self._said:
            self._said = True
            why = "the disk is full" if is_full(error) else str(error.strerror or error)
            _log.warning("no checkpoint in %s: %s; the training goes on without", self.folder, why)

    @property
    def _own(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def _told_path(self) -> Path:
        return self.folder / "told.jsonl"

    def _is_of_this_run(self) -> bool:
        try:
            content = json.loads(read_regular(self.folder / "run.json", at_most=MOST_BYTES))
            return bool(content["sha256"] == digest_of(self.identity))
        except (OSError, ValueError, KeyError, TypeError):
            return False

    def _has_checkpoint(self) -> bool:
        try:
            return any(self._own.iterdir())
        except OSError:
            return False

    def _told(self) -> tuple[EpochRecord, ...]:
        try:
            lines = read_regular(self._told_path, at_most=MOST_BYTES).splitlines(keepends=True)
        except (OSError, ValueError):
            return ()
        found: list[EpochRecord] = []
        for line in lines:
            epoch = _epoch_of(line)
            if epoch is None or epoch.epoch != len(found) + 1:
                break
            found.append(epoch)
        return tuple(found)

    def _notes(self) -> Mapping[str, Any] | None:
        try:
            notes = json.loads(read_regular(self.folder / "notes.json", at_most=MOST_BYTES))
        except (OSError, ValueError):
            return None
        return notes if isinstance(notes, dict) else None


def _epoch_of(line: bytes) -> EpochRecord | None:
    """None for half a line, or what was not written here."""
    if not line.endswith(b"\n"):
        return None
    try:
        found = _EPOCH.validate_json(line)
    except ValueError:
        return None
    figures = (found.train_loss, found.val_loss, found.learning_rate, found.elapsed_s)
    return found if all(each is not None and math.isfinite(each) for each in figures) else None


LINGER_S = 30.0
"""For a program that has told its final values to end."""
TOLERANCE_S = 0.5
"""A callback's clock may be ahead of ours by this much, for a line takes its time to come."""
BEAT_S = 1.0


class GapError(Exception):
    """The program went on from a checkpoint of which it had not told: it is begun anew."""


class KilledError(ProgramError):
    """Somebody killed the program, or the kernel did, for want of memory: it may go on once."""


@dataclass(slots=True, kw_only=True)
class ProgramTraining:
    """What becomes of one run of a program, line by line."""

    program: Program
    max_epochs: int
    on_epoch: Callable[[EpochRecord], StopReason | None]
    should_stop: Callable[[], StopReason | None]
    earlier: Earlier = Earlier()
    rate: float = 0.0
    """The learning rate of an epoch that tells none."""
    on_started: Callable[[], None] = lambda: None
    """Called when the program says that its clock starts."""
    on_begun: Callable[[Sequence[EpochRecord]], None] = lambda _earlier: None
    """Told, before the first epoch, the epochs that this attempt goes on from."""
    on_wait: Callable[[], None] = lambda: None
    """Called about once a second while the program works."""
    history: list[EpochRecord] = field(default_factory=list)
    resumed_from: int = 0
    stopped_by: StopReason | None = None
    final: Figures | None = None
    setup_s: float = 0.0
    evaluation_s: float = 0.0
    total_s: float = 0.0
    timed_from: float | None = None
    timed_until: float | None = None
    _began: float = 0.0
    _started: float | None = None
    _beat: float = 0.0
    _last_moment: float = 0.0
    """When the last epoch was told."""
    _diverged: EpochSaid | None = None
    _lasted_s: float = 0.0
    """The clock of the last epoch, as a callback had it."""

    def follow(self, running: ProgramProcess) -> None:
        """Until the program has ended, or is to be ended.

        Raises:
            ProgramError: the program did not what it should.
            GapError: it is to be begun anew.
        """
        self._began, self._beat = running.began, time.perf_counter()
        for said in running.lines():
            if said is None:
                if self._over(running):
                    break
                continue
            line, moment = said
            if self.stopped_by in (None, StopReason.INTERRUPTED):
                self._take(line, moment, running)
        self.total_s = time.perf_counter() - self._began
        if self.stopped_by is None:
            self._judge_end(running)

    def _over(self, running: ProgramProcess) -> bool:
        """Whether nothing more is waited for."""
        now = time.perf_counter()
        if now > self._beat + BEAT_S:
            self._beat = now
            self.on_wait()
        if self.stopped_by is None and (reason := self.should_stop()) is not None:
            if self.final is not None:
                return True
            self.stopped_by = reason
        if self.stopped_by is not None:
            running.ask_to_stop()
            return False
        silent_s = now - max(self._began, running.last_came)
        if self.final is not None:
            return silent_s > LINGER_S
        if silent_s > self.program.silence_s:
            raise ProgramError(
                f"it hung: it told nothing for {self.program.silence_s:g} s (silence_s in "
                "[process])"
            )
        return False

    def _take(self, line: bytes, moment: float, running: ProgramProcess) -> None:
        said = read_line(line)
        if self.final is not None:
            raise ProgramError("it told more after its final values")
        match said:
            case Started():
                self._start(moment)
                self.on_started()
            case EpochSaid():
                reason = self._epoch(said, moment)
                self.stopped_by = self.stopped_by or reason
                if self.stopped_by is not None:
                    running.ask_to_stop()
            case Final(final=figures):
                self._end(figures, moment)

    def _start(self, moment: float) -> None:
        if self._started is not None:
            raise ProgramError("it told twice that it started, or after an epoch")
        self._started = moment
        self.setup_s = moment - self._began
        self.timed_from = time.time() - (time.perf_counter() - moment)

    def _epoch(self, said: EpochSaid, moment: float) -> StopReason | None:
        if self._started is None:  # its whole life counts then
            self._start(self._began)
        if not self.history and said.epoch != 1:
            self._resume(said.epoch)
        elif not self.history:
            self.on_begun(())
        if said.epoch != len(self.history) + 1:
            raise ProgramError(
                f"it told epoch {said.epoch} after epoch {len(self.history)}; each comes once, in "
                "their order"
            )
        if said.epoch > self.max_epochs:
            raise ProgramError(
                f"it went on after epoch {self.max_epochs}, the last that max_epochs allows"
            )
        if said.diverged:
            self._diverged = said
            return StopReason.DIVERGED
        record = EpochRecord(
            epoch=said.epoch,
            train_loss=said.train_loss,
            val_loss=said.val_loss,
            learning_rate=self.rate if said.learning_rate is None else said.learning_rate,
            elapsed_s=self._before_s + self._elapsed(said, moment),
        )
        self.history.append(record)
        self._last_moment = moment
        self.timed_until = time.time() - (time.perf_counter() - moment)
        return self.on_epoch(record)

    def _end(self, figures: Figures, moment: float) -> None:
        if not self.history and self.earlier.epochs:
            # Whether it had told its last epoch, only it knows.
            if figures.epochs != len(self.earlier.epochs):
                raise GapError
            self._resume(len(self.earlier.epochs) + 1)
            self._last_moment = self._started or self._began
        self.final = figures
        self.evaluation_s = moment - self._last_moment
        if figures.epochs not in (None, len(self.history)):
            raise ProgramError(
                f"its final values are of {figures.epochs} epochs, and it told {len(self.history)}"
            )
        whole = figures.converged is True or len(self.history) == self.max_epochs
        if self.stopped_by is StopReason.INTERRUPTED and whole:
            self.stopped_by = None  # all is told that is waited for

    def _resume(self, epoch: int) -> None:
        known = len(self.earlier.epochs)
        if epoch > known + 1:
            if known:
                raise GapError
            raise ProgramError(f"its first epoch is {epoch}; expected 1, for nothing was before it")
        self.history = list(self.earlier.epochs[: epoch - 1])
        self.resumed_from = epoch - 1
        self.on_begun(self.history)

    @property
    def _before_s(self) -> float:
        """What earlier attempts have counted."""
        return self.earlier.epochs[self.resumed_from - 1].elapsed_s if self.resumed_from else 0.0

    def _elapsed(self, said: EpochSaid, moment: float) -> float:
        """Seconds of this attempt's clock at the end of an epoch."""
        assert self._started is not None, "the first epoch started it"
        if self.program.label is ClockLabel.PROCESS:
            if said.elapsed_s is not None:
                raise ProgramError(
                    'its lines have an elapsed_s, and its study file says clock = "process": say '
                    'clock = "lightning" or "huggingface" there, as the callback does, or leave '
                    "elapsed_s out"
                )
            return moment - self._started
        if said.elapsed_s is None:
            raise ProgramError(
                "its lines have no elapsed_s, and its study file says clock = "
                f'"{self.program.clock}": use the callback of tuner.callbacks, or say clock = '
                '"process"'
            )
        if not self._lasted_s <= said.elapsed_s <= moment - self._began + TOLERANCE_S:
            raise ProgramError(
                f"its clock says {said.elapsed_s:.3f} s after epoch {said.epoch}, which came "
                f"{moment - self._began:.3f} s after its start: that cannot be"
            )
        self._lasted_s = said.elapsed_s
        return said.elapsed_s

    def _judge_end(self, running: ProgramProcess) -> None:
        how = running.how_it_ended()
        if self.final is None or not self.history:
            if how == "SIGKILL":
                raise KilledError(
                    f"it was killed (SIGKILL) after {len(self.history)} epochs; the kernel does "
                    "that where the machine's memory is full"
                )
            what = "without an epoch" if not self.history else "without final values"
            said = f"it ended {what} ({how}, {len(self.history)} epochs told)"
            if not running.ended_well:
                raise ProgramError(said)
            raise ProgramError(
                f"{said}; expected lines of JSON in the file that TUNER_REPORT names, at last "
                '{"final": {"test_mql": ...}}'
            )
        # Who was killed after all was told, by us or by somebody else, has told it.
        if not running.ended_well and how not in ("no end", "SIGKILL"):
            raise ProgramError(f"it told its final values, and ended with {how} all the same")
        self._refuse_impossible(self.final)
        self.stopped_by = self._how_it_stopped(self.final)

    def diverged_in_words(self) -> str:
        """Of a training whose last loss, or final value, is no number that can be kept."""
        said = self._diverged
        if said is None:
            return "it diverged: its final values are no numbers"
        return (
            f"it diverged: in epoch {said.epoch} it told train_loss {said.train_loss:g} and "
            f"val_loss {said.val_loss:g}"
        )

    def _refuse_impossible(self, final: Figures) -> None:
        """Raises ProgramError for a time or an error with which nothing can be compared."""
        if self.history[-1].elapsed_s <= 0:
            raise ProgramError(
                "its lines came all at once, so that its clock says 0 s: say started before the "
                "first epoch, and flush after each line"
            )
        for name in ("test_mql", "val_mql"):
            figure = getattr(final, name)
            if figure is not None and is_figure(figure) and figure <= 0:
                raise ProgramError(
                    f"its final {name} is {figure:g}; expected an error, which is above 0"
                )

    def _how_it_stopped(self, final: Figures) -> StopReason:
        figures = [each for each in (final.test_mql, final.val_mql) if each is not None]
        if not all(is_figure(each) for each in figures):
            return StopReason.DIVERGED
        converged = final.converged
        if converged is None:
            converged = len(self.history) < self.max_epochs
        return StopReason.CONVERGED if converged else StopReason.EPOCH_LIMIT

    @property
    def best(self) -> EpochRecord:
        """The epoch of the lowest validation loss."""
        return min(self.history, key=_loss)


def _loss(record: EpochRecord) -> float:
    return math.inf if record.val_loss is None else record.val_loss
