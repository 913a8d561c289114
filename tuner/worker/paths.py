"""Where a worker keeps what must outlive it:
checkpoints and undelivered results, beside the logs.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import re
import secrets
import shutil
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tuner.files.durable import read_regular, write_durably
from tuner.storage.queue.claims import Ledger
from tuner.storage.queue.epochs import EpochRow, EpochTable
from tuner.storage.queue.verifications import Verifications
from tuner.storage.records import Claim, TrialResult
from tuner.storage.retry import DATABASE_FAILURES, cause_of, passes
from tuner.storage.url import DatabaseUrl
from tuner.study.open import OpenStudy

# What was computed and not yet stored waits in local files: a result outlives its worker and a
# database outage.


AT_MOST_BYTES = 64 << 20
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outbox:
    """The files in `folder` of one study. `study_key` is what
    no other study has, in this database or another.
    """

    folder: Path
    study_key: str

    def put_result(self, held: Claim, result: TrialResult) -> None:
        """Raises OSError when it cannot be written."""
        self._put(self._result_path(held), held, {"result": result.to_json()})

    def remove_result(self, held: Claim) -> None:
        _remove(self._result_path(held))

    def put_epochs(self, claim: Claim, rows: Sequence[EpochRow]) -> None:
        """Raises OSError when they cannot be written."""
        path = self.folder / f"epochs-{claim.token}-{secrets.token_hex(4)}.json"
        self._put(path, claim, {"epochs": [asdict(row) for row in rows]})

    def _result_path(self, held: Claim) -> Path:
        return self.folder / f"result-{held.token}.json"

    def _put(self, path: Path, held: Claim, what: dict[str, Any]) -> None:
        entry = {"study": self.study_key, "claim": asdict(held)} | what
        write_durably(path, json.dumps(entry).encode())

    def deliver(
        self, ledger: Ledger, epochs: EpochTable, runs: Verifications, *, only: Claim | None = None
    ) -> int:
        """Bring the study's entries (or the epochs of one claim,
        `only`) to the database; returns how many.

        Safe to run by several at once, and again after a failure: what is written twice counts
        once. An entry that cannot be read, or that the database refuses, stays where it is, with a
        notice.

        Raises:
            DBAPIError, StorageInternalError: the database is away; what was not delivered stays.
        """
        delivered = 0
        pattern = "*.json" if only is None else f"epochs-{only.token}-*.json"
        # Epochs first: a trial that is told as finished should have its curve.
        for path in sorted(self.folder.glob(pattern)):
            deliver = self._read(path, ledger, epochs, runs)
            if deliver is None:
                continue
            try:
                deliver()
            except DATABASE_FAILURES as error:
                if passes(error):
                    raise
                _log.warning("%s is refused by the database: %s", path, cause_of(error))
                continue
            _remove(path)
            delivered += 1
        return delivered

    def _read(
        self, path: Path, ledger: Ledger, epochs: EpochTable, runs: Verifications
    ) -> Callable[[], None] | None:
        """What delivers the entry; None when it is another study's,
        unreadable or just delivered by another.
        """
        try:
            entry = json.loads(read_regular(path, at_most=AT_MOST_BYTES))
            if entry["study"] != self.study_key:
                return None
            claim = Claim(**entry["claim"])
            if "epochs" in entry:
                rows = [EpochRow(**row) for row in entry["epochs"]]
                return lambda: epochs.write(claim.trial_number, claim.work_id, rows)
            result = TrialResult.from_json(entry["result"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.warning("%s holds nothing that could be delivered: %s", path, error)
            return None
        if claim.trial_id is None:
            return lambda: _told("a verification run", counted=runs.finish(claim, result))
        return lambda: _told(f"trial {claim.trial_number}", counted=ledger.finish(claim, result))


def _told(what: str, *, counted: bool) -> None:
    _log.info(
        "%s: a result from before was delivered, and %s",
        what,
        "counts" if counted else "came too late to count",
    )


def _remove(path: Path) -> None:
    """What cannot be taken away (another user's, on a disk that is read only by now) is delivered
    again, and changes nothing.
    """
    with contextlib.suppress(OSError):
        path.unlink(missing_ok=True)


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
