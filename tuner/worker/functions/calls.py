"""Calls of a function: in a process of their own, each a trial of a study, by threads that hold
their leases.

The study is one of Optuna's in our database, with a document about it in the row that tuner has of
every study. Trials are claimed and leased as those of variants are (`tuner.storage.queue.claims`):
each has one result, and one whose process is lost comes back with its number, parameters and seed.
The document is none of a variant's, so those who list such studies leave these out
(`schema.OF_A_VARIANT`).
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import math
import os
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path
from types import CodeType
from typing import Any, Self

import optuna
from optuna.samplers import BaseSampler
from optuna.study import StudyDirection
from optuna.trial import Trial, TrialState
from sqlalchemy import insert, select

from tuner.devices.host import physical_host
from tuner.devices.lock import Holder
from tuner.errors import StorageError, TunerError, UsageError
from tuner.files.child import ChildError, ChildProcess
from tuner.files.environment import without_secrets
from tuner.files.plain import UNREADABLE, explained, read_json
from tuner.record import Recorded
from tuner.spec.policy import SearchPolicy
from tuner.storage import schema
from tuner.storage.database import Database, initialisation_lock
from tuner.storage.dialects import database_now
from tuner.storage.optuna.private import study_id_of
from tuner.storage.optuna.trials import KIND, ClaimedStorage
from tuner.storage.queue.claims import Ledger
from tuner.storage.queue.epochs import EpochRow, EpochTable
from tuner.storage.records import Claim, TrialResult
from tuner.storage.retry import DATABASE_FAILURES, persistently
from tuner.storage.schema import FUNCTION, studies
from tuner.worker.functions.called import COMPLETE, FAIL, Done, Function, Order, Source

Answers = Callable[[str, list[Any]], Any]
"""To what a trial asks for: the question, and what was said with it."""
CLOCK = "function"
"""What a time that is measured around a call is by."""


_ENTRY = "from tuner.worker.functions.called import main; main()"
_STOP_S, _LOOK_S = 1.0, 0.1


class FunctionError(TunerError):
    """The first call of a function failed: nothing is made of it."""

    def __init__(self, done: Done) -> None:
        super().__init__(f"the function failed at its first call: {done.why}")
        self.add_note(done.trace)


def source_of(function: Function | str) -> Source:
    """Of a function of this process, or of `path/to/file.py:name`.

    Raises:
        UsageError: no such file, no function is named, or it cannot be pickled.
    """
    if callable(function):
        pickled = _pickled(function)
        text = base64.b64encode(pickled).decode()
        return Source(sha256=_hash(function, pickled), pickle=text)
    location, _, name = function.rpartition(":")
    path = Path(location).expanduser().absolute()
    if not name.isidentifier() or not path.is_file():
        raise UsageError(f"objective {function!r}: expected path/to/file.py:function")
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    return Source(sha256=digest, file=str(path), name=name)


def _pickled(function: Any) -> bytes:
    """By value where another process may not find its module: one of the user's own."""
    import cloudpickle

    module = sys.modules.get(getattr(function, "__module__", ""))
    file = getattr(module, "__file__", None) or "site-packages"
    with contextlib.ExitStack() as stack:
        if not {"site-packages", "dist-packages"} & set(Path(file).parts):
            cloudpickle.register_pickle_by_value(module)
            stack.callback(cloudpickle.unregister_pickle_by_value, module)
        try:
            return bytes(cloudpickle.dumps(function))
        except Exception as error:  # noqa: BLE001 - pickles call code of the user's
            raise UsageError(f"the function cannot be sent to its process: {error}") from None


def _hash(function: Any, pickled: bytes) -> str:
    """Of its code and what it has closed over: a pickle tells where it stood, too, which a notebook
    changes each time.
    """
    if code := getattr(function, "__code__", None):
        import cloudpickle

        closed = [each.cell_contents for each in function.__closure__ or ()]
        pickled = cloudpickle.dumps((function.__defaults__, function.__kwdefaults__, closed))
        pickled += json.dumps(_told_of(code)).encode()
    return hashlib.sha256(pickled).hexdigest()


def _told_of(code: CodeType) -> list[Any]:
    found: list[Any] = [code.co_code.hex(), code.co_names]
    for each in code.co_consts:
        in_order = sorted(map(repr, each)) if isinstance(each, frozenset) else repr(each)
        found.append(_told_of(each) if isinstance(each, CodeType) else in_order)
    return found


@dataclass(slots=True)
class Caller:
    """Has a process from its first call on, and another one where that ended."""

    source: Source
    gpu: str | None = None
    """What the process sees of GPUs; None: as this one."""
    _child: ChildProcess | None = None

    def end(self) -> None:
        """Now, also from another thread: who waits for an answer gets a ChildError."""
        if self._child is not None:
            self._child.end(_STOP_S)

    def call(self, order: Order, answers: Answers | None = None) -> Done:
        """What one call comes to; also where the process ended at it.

        Raises:
            UsageError: the function cannot be loaded.
        """
        try:
            child = self._started()
            child.say(asdict(order))
            while "done" not in (said := child.hear()):
                assert answers is not None, "an order says whether it asks"
                child.say(answers(said["asks"], said["said"]))
        except ChildError as error:
            self.end()
            return Done(state=FAIL, why=str(error))
        return Done(**said["done"])

    def _started(self) -> ChildProcess:
        if self._child is not None and self._child.runs:
            return self._child
        path = os.pathsep.join(each or str(Path.cwd()) for each in sys.path)
        environment = without_secrets(os.environ) | {"PYTHONPATH": path}
        if self.gpu is not None:
            environment["CUDA_VISIBLE_DEVICES"] = self.gpu
        words, what = [sys.executable, "-c", _ENTRY], "the function's process"
        self._child = ChildProcess(what, words, environment=environment, told=True, asked=True)
        self._child.say(asdict(self.source))
        if refused := self._child.hear()["refused"]:
            raise UsageError(refused)
        return self._child


# The study.


@dataclass(frozen=True, slots=True)
class Asked:
    """A trial that was asked for; its lease lasts as long as this process does."""

    number: int
    seed: int
    params: Mapping[str, Any]
    """Of a study with a space; else the trial is asked."""
    trial: Trial
    """Optuna's: `trial.suggest_float(...)`."""
    ticket: Claim
    began: float


class CalledStudy(ABC):
    """A study of this name, made where there is none, and what its trials are called with."""

    def __init__(
        self,
        database: Database,
        name: str,
        document: Mapping[str, Any],
        *,
        directions: Sequence[str],
        budget: int,
        sampler: BaseSampler | None = None,
    ) -> None:
        """`directions`: of what the function returns; of one, seconds are the second objective.
        `budget`: of trials, of a study that is made.

        Raises:
            UsageError: the name is another study's: a key of the document is otherwise there.
            StorageError: what is stored cannot be read.
        """
        self.database, self.name = database, name
        self.directions = [each.upper() for each in directions]
        self.measures = len(self.directions) == 1
        with initialisation_lock(database.address):
            if name not in {each.study_name for each in database.optuna.get_all_studies()}:
                self._make(document, budget)
        mine = studies.c.study_id == database.optuna.get_study_id_from_name(name)
        with database.engine.connect() as connection:
            row = connection.execute(select(studies).where(mine)).first()
        if row is None or row.definition_hash != FUNCTION:
            raise UsageError(
                f"study {name!r} is there already, and no function's; give another name"
            )
        try:
            self.document = read_json(row.definition)
            differs = [key for key in document if self.document.get(key) != document[key]]
        except UNREADABLE as error:
            raise StorageError(f"study {name!r} cannot be read: {explained(error)}") from None
        if differs:
            other = " and ".join(differs)
            raise UsageError(f"study {name!r} is there with another {other}; give another name")
        storage = ClaimedStorage(database.optuna)
        self.optuna = optuna.load_study(study_name=name, storage=storage, sampler=sampler)
        self.ledger = Ledger(database, row.study_id, name=name, made_at=float(row.created_at))
        self.epochs = EpochTable(database.engine, row.study_id)
        self._held: dict[int, Claim] = {}
        self._over = threading.Event()
        self._over.set()

    def _make(self, document: Mapping[str, Any], budget: int) -> None:
        both = [StudyDirection[each] for each in (*self.directions, "MINIMIZE")][:2]
        storage = self.database.optuna
        study = optuna.create_study(study_name=self.name, storage=storage, directions=both)
        study.set_user_attr(KIND, f"a {document['kind']}")
        made = {"study_id": study_id_of(study), "definition": json.dumps(document)}
        made |= {"definition_hash": FUNCTION, "policy": SearchPolicy().to_json(), "budget": budget}
        with self.database.engine.begin() as connection:
            schema.forget_study(connection, study_id_of(study))  # SQLite gives numbers again
            connection.execute(insert(studies).values(created_at=database_now(), **made))

    @abstractmethod
    def given(self, trial: Trial) -> tuple[int, Mapping[str, Any]]:
        """The seed of a trial, and its parameters as far as they are known before the call."""

    def answers(self, _asked: Asked) -> Answers | None:
        """To what a call asks its trial for; None: nothing is chosen in it, and nothing pruned."""
        return None

    def view(self) -> Mapping[str, Any]:
        """What a call may read of its study."""
        return {"study_name": self.name, "user_attrs": {}}

    def hold(self) -> None:
        """From now on a thread renews the leases of what is claimed. What processes of this host
        held that are no more waits again.
        """
        if self._over.is_set():
            for each in self.ledger.workers():
                if each.startswith(f"{_where()}:") and not _lives(each):
                    self.ledger.reap(worker=each, state="returned")
            self._over.clear()
            self._renewing = threading.Thread(target=self._renew, daemon=True)
            self._renewing.start()

    def _renew(self) -> None:
        while not self._over.wait(self.ledger.heartbeat_s):
            with contextlib.suppress(*DATABASE_FAILURES):  # the next time it may be there
                for each in list(self._held.values()):
                    self.ledger.renew(each)
                self.ledger.reap()

    def release(self) -> None:
        """Give back what is held."""
        if not self._over.is_set():
            self._over.set()
            self._renewing.join()
        for ticket in self._held.values():
            self.ledger.give_back(ticket)
        self._held.clear()

    def claim(self, thread: int = 0) -> Asked | None:
        """The next trial for a thread of this process; None while there is none to give."""
        me = Holder.this_process()
        ticket = self.ledger.claim(f"{_where()}:{me.pid}:{me.born}:{thread}")
        if ticket is None:
            return None
        assert ticket.trial_id is not None, "it is a trial"
        self._held[ticket.work_id] = ticket
        trial = Trial(self.optuna, ticket.trial_id)
        seed, params = self.given(trial)
        return Asked(ticket.trial_number, seed, params, trial, ticket, time.monotonic())

    def order(self, asked: Asked, *, asks: bool) -> Order:
        """What a call is told."""
        return Order(
            params=asked.params,
            number=asked.number,
            seed=asked.seed,
            directions=self.directions,
            study=self.view(),
            asks=asks,
        )

    def finish(self, asked: Asked, done: Done) -> bool:
        """Record what a call came to; False where its lease was lost."""
        complete, stopped = done.state == COMPLETE, "error" if done.state == FAIL else "pruned"
        recorded = Recorded(
            stopped_by="converged" if complete else stopped,
            converged=complete,
            wall_clock_s=done.seconds,
            total_s=done.seconds,
            seed=asked.seed,
            clock=CLOCK,
            failure=done.why or None,
        )
        whole: Any = (*done.values, done.seconds)[:2] if complete else None
        result = TrialResult(TrialState[done.state], whole, recorded)
        persistently(lambda: self._keep(asked, done), "a curve")
        counts = persistently(lambda: self.ledger.finish(asked.ticket, result), "a result")
        self._held.pop(asked.ticket.work_id, None)
        return counts

    def _keep(self, asked: Asked, done: Done) -> None:
        for key, value in done.attributes.items():
            asked.trial.set_user_attr(key, value)
        curve = {at[0]: EpochRow(at[0], None, at[1], 0.0, at[2]) for at in done.curve}
        self.epochs.write(asked.number, asked.ticket.work_id, list(curve.values()))


def seeds_of(what: str, count: int) -> list[int]:
    """So many seeds that `what` alone determines, and that nothing else gets."""
    digests = (hashlib.sha256(f"{what} {n}".encode()).digest() for n in range(count))
    return [int.from_bytes(each[:4], "big") >> 1 for each in digests]


# Who calls.


class Crew:
    """Threads with a caller each, which keep their processes while the context lasts."""

    def __init__(self, study: CalledStudy, source: Source, gpus: Sequence[str] = ()) -> None:
        """The GPUs are dealt out to the processes; none: each sees what this one sees."""
        self.study, self._source, self._gpus = study, source, gpus
        self._stop, self._callers = threading.Event(), dict[int, Caller]()

    def __enter__(self) -> Self:
        self.study.hold()
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        self.study.release()

    def _end(self) -> None:
        self._stop.set()
        for each in list(self._callers.values()):
            each.end()

    def work_off(self, threads: int, until: float = math.inf) -> None:
        """In so many threads: claim, call, finish, until nothing is left, or the moment `until`.
        What is held when this ends early is given back with the context.

        Raises:
            FunctionError: the first call that anybody made failed.
            Whatever else the first thread that failed raised, or the interruption: the calls have
                been cut off by then.
        """
        with ThreadPoolExecutor(threads) as pool:
            try:
                for each in as_completed(
                    [pool.submit(self._work, n, until) for n in range(threads)]
                ):
                    each.result()
            except BaseException:
                self._end()
                raise

    def _work(self, thread: int, until: float) -> None:
        gpu = self._gpus[thread % len(self._gpus)] if self._gpus else None
        caller = self._callers.setdefault(thread, Caller(self._source, gpu))
        while not self._stop.is_set() and time.monotonic() < until:
            asked = self.study.claim(thread)
            if asked is None and not self.study.ledger.counts().left:
                return
            if asked is None:  # others are at what is left
                self._stop.wait(_LOOK_S)
                continue
            if self._stop.is_set():
                return
            answers = self.study.answers(asked)
            done = caller.call(self.study.order(asked, asks=answers is not None), answers)
            if done.seconds is None and self._stop.is_set():
                return
            if done.state == FAIL and not self.study.ledger.counts().finished:
                raise FunctionError(done)  # nothing else would come of the others
            self.study.finish(asked, done)


# Who is at work: whoever shares a process's kernel can tell whether it still lives.


def _where() -> str:
    space = Path("/proc/self/ns/pid")
    return f"function@{physical_host()}:{space.stat().st_ino if space.exists() else 0}"


def _lives(worker: str) -> bool:
    host, _, pid, born, _ = worker.split(":")
    return Holder(int(pid), host, born).process() is not None
