"""What outlives a run of a program that was interrupted: its own folder, and what it had told.

The two belong together. A program that goes on from a checkpoint of its own goes on with the clock
as it stood there; one that has none begins anew, and so does its clock.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import logging
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tuner.config import EpochRecord
from tuner.files.durable import is_full, read_regular, write_durably

MOST_BYTES = 64 << 20
_FIGURES = ("train_loss", "val_loss", "learning_rate", "elapsed_s")
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
    identity: Mapping[str, Any]
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
            write_durably(self.folder / "run.json", json.dumps({"sha256": self._digest()}).encode())
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

    def _digest(self) -> str:
        text = json.dumps(dict(self.identity), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()

    def _is_of_this_run(self) -> bool:
        try:
            content = json.loads(read_regular(self.folder / "run.json", at_most=MOST_BYTES))
            return bool(content["sha256"] == self._digest())
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
        data = json.loads(line)
        figures = {name: float(data[name]) for name in _FIGURES}
        epoch = int(data["epoch"])
    except (ValueError, KeyError, TypeError, OverflowError):
        return None
    if not all(map(math.isfinite, figures.values())):
        return None
    return EpochRecord(epoch=epoch, **figures)
