"""Where a worker keeps what must outlive it:
checkpoints and undelivered results, beside the logs.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from tuner.storage.queue.outbox import Outbox
from tuner.storage.url import DatabaseUrl
from tuner.study.open import OpenStudy

_TRIAL = re.compile(r"trial-(\d+)-")


@dataclass(frozen=True, slots=True)
class WorkerPaths:
    """Folders beneath `root`, which is the one of the SQLite file,
    else `storage` in the working folder.

    They may be shared between machines: every file says which study, trial and training it belongs
    to.
    """

    root: Path

    @property
    def outbox(self) -> Path:
        return self.root / "outbox"

    def checkpoints(self, study: str, study_key: str) -> Path:
        """Of one study: a readable name, and what keeps
        it apart from namesakes in other databases.
        """
        readable = re.sub(r"[^A-Za-z0-9_-]+", "_", study)[:60]
        return (
            self.root
            / "checkpoints"
            / f"{readable}-{hashlib.sha256(study_key.encode()).hexdigest()[:8]}"
        )


def working_folder(address: DatabaseUrl) -> Path:
    """Where logs, checkpoints and undelivered results are kept:
    beside an SQLite file, else in ./storage.
    """
    return (address.sqlite_path.parent if address.is_sqlite else Path("storage")).absolute()


def forget_trials(folder: Path, numbers: Collection[int]) -> None:
    """Delete the checkpoints of these trials."""
    for path in folder.glob("trial-*"):
        match = _TRIAL.match(path.name)
        if match and int(match[1]) in numbers:
            with contextlib.suppress(OSError):
                if path.is_dir() and not path.is_symlink():  # a program's own
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
    with contextlib.suppress(OSError):  # there, and empty
        folder.rmdir()


def deliver(studies: Iterable[OpenStudy], paths: WorkerPaths) -> None:
    """Bring to the database what workers on this machine had computed and could not store.

    Raises:
        DBAPIError, StorageInternalError: the database is away; what was not delivered stays.
    """
    for opened in studies:
        Outbox(paths.outbox, opened.key()).deliver(
            opened.ledger, opened.epochs, opened.verifications
        )


def tidy_up(opened: OpenStudy, paths: WorkerPaths) -> None:
    """Deliver what earlier workers on this machine could not, and delete checkpoints that nobody
    needs any more.

    Raises:
        DBAPIError, StorageInternalError: the database is away; what was not delivered stays.
    """
    deliver([opened], paths)
    folder = paths.checkpoints(opened.name, opened.key())
    if folder.is_dir():
        over = {
            trial.number
            for trial in opened.optuna.get_trials(deepcopy=False)
            if trial.state.is_finished()
        }
        forget_trials(folder, over)
