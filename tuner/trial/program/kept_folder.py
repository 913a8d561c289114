"""What outlives a run of a program that was interrupted: its own folder, and what it had told.

The two belong together. A program that goes on from a checkpoint of its own goes on with the clock
as it stood there; one that has none begins anew, and so does its clock.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tuner.config import EpochRecord
from tuner.files.durable import read_regular, write_durably

MOST_BYTES = 64 << 20
_FIGURES = ("train_loss", "val_loss", "learning_rate", "elapsed_s")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Earlier:
    """What is left of an earlier attempt: the epochs that it told, and notes of its device."""

    epochs: tuple[EpochRecord, ...] = ()
    notes: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptFolder:
    """The folder of one run. `identity` is all that the run depends on: what differs in any of it
    is not continued.
    """

    folder: Path
    identity: Mapping[str, Any]

    @property
    def own(self) -> Path:
        """The program's own part, to keep a checkpoint in."""
        return self.folder / "checkpoint"

    def earlier(self) -> Earlier:
        """What may be gone on with; nothing where the program keeps no checkpoint."""
        found = Earlier()
        if self._is_of_this_run() and self._has_checkpoint():
            found = Earlier(self._told(), self._notes())
        if not found.epochs:
            self.begin_anew()
        else:
            self._write_told(found.epochs)  # without half a line at its end
        return found

    def begin_anew(self) -> None:
        """Nothing of before counts."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.own.mkdir(parents=True, exist_ok=True)
        write_durably(self.folder / "run.json", json.dumps({"sha256": self._digest()}).encode())

    def went_on_from(self, epochs: Sequence[EpochRecord]) -> None:
        """The program says so: what it told beyond these it will tell again."""
        self._write_told(epochs)

    def add(self, epoch: EpochRecord) -> None:
        """One more is over."""
        with contextlib.suppress(OSError), self._told_path.open("a") as file:
            file.write(json.dumps(asdict(epoch)) + "\n")

    def note(self, notes: Mapping[str, Any]) -> None:
        """What is known of the device up to now."""
        with contextlib.suppress(OSError):
            write_durably(self.folder / "notes.json", json.dumps(notes).encode())

    @property
    def _told_path(self) -> Path:
        return self.folder / "told.jsonl"

    def _write_told(self, epochs: Sequence[EpochRecord]) -> None:
        lines = "".join(json.dumps(asdict(epoch)) + "\n" for epoch in epochs)
        write_durably(self._told_path, lines.encode())

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
            return any(self.own.iterdir())
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
