"""What a worker does where its database is away or a disk is full, and where it keeps what must
outlive it: checkpoints and undelivered results, beside the logs.
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
from typing import Any, TypeVar

from tuner.files.durable import is_full, lacks_space, read_regular, write_durably
from tuner.storage.queue.epochs import EpochRow
from tuner.storage.queue.leased_queue import Queue
from tuner.storage.records import Claim, TrialResult
from tuner.storage.retry import DATABASE_FAILURES, NO_ROOM_BESIDE, cause_of, passes, persistently
from tuner.storage.url import DatabaseUrl
from tuner.study.open import OpenStudy
from tuner.worker.process import WAITING, Heartbeat, StopFlag

# Database calls of a worker: outages are waited for, and a disk that is full is named and waited
# for without end.


T = TypeVar("T")
LOOK_AGAIN_S = 5.0
_OF_A_FULL_DISK = (NO_ROOM_BESIDE, "unable to open database file")
"""What SQLite says as well when there is no room for a file that it needs beside the database."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Retry:
    """How the worker `name` tries again, and whom it tells meanwhile."""

    studies: Sequence[OpenStudy]
    name: str
    stop: StopFlag
    heartbeat: Heartbeat

    def __call__(self, action: Callable[[], T], what: str, *, until_stopped: bool = False) -> T:
        """Run `action` until the database takes it.

        With `until_stopped` a stop signal ends the waiting. Without, as for a result, only time
        ends it; but where the disk is full, which is waited for without end, a signal does.

        Raises:
            DBAPIError, StorageInternalError: the last failure.
        """
        full = noted = False

        def tried() -> T:
            nonlocal full
            try:
                return action()
            except DATABASE_FAILURES as error:
                full = is_full(error) or self._no_room(error)
                raise

        def give_up() -> bool:
            self.heartbeat.phase("database")
            return full or (until_stopped and self.stop.is_set())

        self.heartbeat.phase("database")
        while True:
            try:
                done = persistently(tried, what, give_up=give_up)
                break
            except DATABASE_FAILURES as failure:
                if not full:
                    raise
                if not noted:
                    _log.error("%s", line := self._full_in_words(failure, what))
                    self._note(line)
                    noted = True
                if self._wait():
                    raise
        if noted:
            _log.info("there is space again")
            self._note(None)
        return done

    def _no_room(self, error: Exception) -> bool:
        address = self.studies[0].database.address
        if not address.is_sqlite or not any(words in cause_of(error) for words in _OF_A_FULL_DISK):
            return False
        return lacks_space(address.sqlite_path.parent)

    def _wait(self) -> bool:
        """Until the next look; True when the worker was told to stop."""
        left = LOOK_AGAIN_S
        while left > 0:
            self.heartbeat.phase(WAITING)
            if self.stop.wait(min(1.0, left)):
                return True
            left -= 1.0
        return False

    def _full_in_words(self, failure: Exception, what: str) -> str:
        address = self.studies[0].database.address
        place = address.sqlite_path if address.is_sqlite else address
        return f"disk full: {cause_of(failure)} ({place}); waiting for space to store {what}"

    def _note(self, text: str | None) -> None:
        for opened in self.studies:
            with contextlib.suppress(*DATABASE_FAILURES):  # the note may need space too
                opened.roster.report(self.name, note=text and text[:200])


# What was computed and not yet stored waits in local files: a result outlives its worker and a
# database outage.


AT_MOST_BYTES = 64 << 20


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

    def deliver(self, opened: OpenStudy, *, only: Claim | None = None) -> int:
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
            deliver = self._read(path, opened)
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

    def _read(self, path: Path, opened: OpenStudy) -> Callable[[], None] | None:
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
                return lambda: opened.epochs.write(claim.trial_number, claim.work_id, rows)
            result = TrialResult.from_json(entry["result"])
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            _log.warning("%s holds nothing that could be delivered: %s", path, error)
            return None
        return lambda: _finish(opened, claim, result)


def _finish(opened: OpenStudy, claim: Claim, result: TrialResult) -> None:
    queue: Queue[Any] = opened.ledger
    what = f"trial {claim.trial_number}"
    if claim.trial_id is None:
        queue, what = opened.verifications, "a verification run"
    how = "counts" if queue.finish(claim, result) else "came too late to count"
    _log.info("%s: a result from before was delivered, and %s", what, how)


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

    def checkpoints(self, study_key: str) -> Path:
        """Of one study: a readable name, and what keeps
        it apart from namesakes in other databases.
        """
        readable = re.sub(r"[^A-Za-z0-9_-]+", "_", study_key.rpartition("@")[0])[:60]
        digest = hashlib.sha256(study_key.encode()).hexdigest()[:8]
        return self.root / "checkpoints" / f"{readable}-{digest}"


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


def forget_study(paths: WorkerPaths, study_key: str) -> None:
    """Delete what is kept here of a study: its checkpoints, and what was not delivered."""
    shutil.rmtree(paths.checkpoints(study_key), ignore_errors=True)
    for path in paths.outbox.glob("*.json"):
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
            if json.loads(read_regular(path, at_most=AT_MOST_BYTES))["study"] == study_key:
                path.unlink()


def deliver(studies: Iterable[OpenStudy], paths: WorkerPaths) -> None:
    """Bring to the database what workers on this machine had computed and could not store.

    Raises:
        DBAPIError, StorageInternalError: the database is away; what was not delivered stays.
    """
    for opened in studies:
        Outbox(paths.outbox, opened.key()).deliver(opened)


def tidy_up(opened: OpenStudy, paths: WorkerPaths) -> None:
    """Deliver what earlier workers on this machine could not, and delete checkpoints that nobody
    needs any more.

    Raises:
        DBAPIError, StorageInternalError: the database is away; what was not delivered stays.
    """
    deliver([opened], paths)
    folder = paths.checkpoints(opened.key())
    if folder.is_dir():
        trials = opened.optuna.get_trials(deepcopy=False)
        forget_trials(folder, {each.number for each in trials if each.state.is_finished()})
