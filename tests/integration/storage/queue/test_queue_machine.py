"""What the queue promises, held by a machine that does whatever may be done with it, in any order:
to trials and to runs on fresh seeds alike, on every database.

`TUNER_TEST_QUEUE_STEPS=10000` has it go that many steps on each.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import optuna
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from optuna.trial import TrialState
from sqlalchemy import literal, update

from tests.support.small_study import definition
from tuner.record import Recorded
from tuner.storage import schema
from tuner.storage.check import faults
from tuner.storage.database import Database, open_database
from tuner.storage.queue.claims import Ledger
from tuner.storage.queue.leased_queue import MAX_ATTEMPTS, Queue
from tuner.storage.queue.verifications import PlannedRun
from tuner.storage.records import Claim, TrialResult
from tuner.storage.url import parse_url
from tuner.study.open import OpenStudy, create_or_resume, open_study

pytestmark = pytest.mark.slow

TRIALS, RUNS = "trials", "runs"
KINDS = st.sampled_from([TRIALS, RUNS])
STEPS = int(os.environ.get("TUNER_TEST_QUEUE_STEPS", "120"))
A_MACHINE = 60
"""Steps of one machine, on a study of its own."""


@dataclass
class Known:
    """One piece of work, as it should be."""

    state: str = "waiting"
    losses: int = 0
    result: TrialResult | None = None
    late: list[TrialResult] = field(default_factory=list)


@dataclass
class Attempt:
    """One worker's go at a piece of work."""

    worker: str
    ticket: Claim
    piece: Known
    state: str = "running"
    late: TrialResult | None = None


class QueueMachine(RuleBasedStateMachine):
    """A study with its trials and runs, beside what is known of them."""

    database: Database

    def __init__(self) -> None:
        super().__init__()
        self.name = f"study-{uuid.uuid4().hex[:8]}"
        create_or_resume(self.database, self.name, definition(), trials=2)
        self.budget = 2
        self.known: dict[str, dict[int, Known]] = {TRIALS: {0: Known()}, RUNS: {}}
        """By the number of the trial, or by the seed; the default trial waits from the start."""
        self.attempts: list[tuple[str, Attempt]] = []
        self.numbers = itertools.count(1)
        self.told = 0
        self.restart()

    # -- what is done ------------------------------------------------------------------------------

    @rule()
    def restart(self) -> None:
        """Whoever knew anything has ended."""
        self.study: OpenStudy = open_study(self.database, self.name)
        self.queues: dict[str, Queue[Any]] = {
            TRIALS: self.study.ledger,
            RUNS: self.study.verifications,
        }
        for queue in self.queues.values():
            queue.confirm_s = 0.0

    @rule(kind=KINDS, worker=st.sampled_from(["ann", "bob"]))
    def claim(self, kind: str, worker: str) -> None:
        token = uuid.uuid4().hex
        held = self.queues[kind].claim(worker, token=token)
        waiting = sorted(n for n, each in self.known[kind].items() if each.state == "waiting")
        may = (
            bool(waiting)
            if kind == RUNS
            else self.number(TRIALS, "running", "finished") < (self.budget)
        )
        assert (held is not None) == may
        if held is None:
            return
        assert self.queues[kind].claim(worker, token=token) == held, "asked again, it is the same"
        ticket = held if isinstance(held, Claim) else held.ticket
        number = ticket.trial_number if kind == TRIALS else held.seed
        if waiting:
            assert number == waiting[0], "what waits comes first, in its order"
        else:
            assert number not in self.known[kind], "no number is given twice"
        if isinstance(held, Claim):
            params = definition().defaults.as_dict()
            stored = self.study.definition.space.stored()
            assert self.study.ledger.write_parameters(held, params, stored, {})
        piece = self.known[kind].setdefault(number, Known())
        piece.state = "running"
        self.attempts.append((kind, Attempt(worker, ticket, piece)))

    @precondition(lambda self: self.attempts)
    @rule(data=st.data())
    def renew(self, data: st.DataObject) -> None:
        kind, attempt = self.drawn(data)
        assert self.queues[kind].renew(attempt.ticket) == (attempt.state == "running")

    @precondition(lambda self: self.attempts)
    @rule(data=st.data(), again=st.booleans())
    def finish(self, data: st.DataObject, again: bool) -> None:
        """Twice, as after an outage that hid the answer; and of one that has lost its lease."""
        kind, attempt = self.drawn(data)
        self.told += 1
        result = TrialResult(TrialState.COMPLETE, (float(self.told), 0.5), Recorded(converged=True))
        counts = attempt.state == "running"
        for _ in range(1 + again):
            assert self.queues[kind].finish(attempt.ticket, result) == counts
        if counts:
            attempt.state = attempt.piece.state = "finished"
            attempt.piece.result = result
        elif attempt.state != "finished" and attempt.late is None:
            attempt.late = result
            attempt.piece.late.append(result)

    @precondition(lambda self: self.attempts)
    @rule(data=st.data(), how=st.sampled_from(["renew", "finish"]))
    def forge(self, data: st.DataObject, how: str) -> None:
        """Somebody who has not the token is nobody."""
        kind, attempt = self.drawn(data)
        stranger = replace(attempt.ticket, token="0" * 32)
        if how == "renew":
            assert not self.queues[kind].renew(stranger)
        else:
            result = TrialResult(TrialState.COMPLETE, (0.0, 0.0), Recorded(converged=True))
            assert not self.queues[kind].finish(stranger, result)

    @precondition(lambda self: self.attempts)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        kind, attempt = self.drawn(data)
        self.queues[kind].give_back(attempt.ticket)
        if attempt.state == "running":
            attempt.state, attempt.piece.state = "returned", "waiting"

    @precondition(lambda self: self.attempts)
    @rule(data=st.data())
    def expire(self, data: st.DataObject) -> None:
        """A lease runs out by the database's clock, and is taken back by the second look."""
        kind, attempt = self.drawn(data)
        mine = schema.work.c.work_id == attempt.ticket.work_id
        with self.database.engine.begin() as connection:
            connection.execute(update(schema.work).where(mine).values(leased_until=1.0))
        lost = int(attempt.state == "running")
        assert self.queues[kind].reap() + self.queues[kind].reap() == lost
        if lost:
            self.lose(attempt)

    @rule(kind=KINDS)
    def reap(self, kind: str) -> None:
        """Whose lease has not run out is left alone."""
        assert self.queues[kind].reap() + self.queues[kind].reap() == 0

    @rule(
        kind=KINDS,
        worker=st.sampled_from(["ann", "bob"]),
        state=st.sampled_from(["lost", "returned"]),
    )
    def bury(self, kind: str, worker: str, state: str) -> None:
        """A supervisor saw a worker end."""
        ended = [
            each
            for of, each in self.attempts
            if of == kind and each.state == "running" and each.worker == worker
        ]
        assert self.queues[kind].reap(worker=worker, state=state) == len(ended)
        for each in ended:
            if state == "lost":
                self.lose(each)
            else:
                each.state, each.piece.state = "returned", "waiting"

    @rule(trials=st.integers(1, 6))
    def set_budget(self, trials: int) -> None:
        self.study.ledger.set_budget(trials)
        self.budget = trials

    @rule()
    def enqueue(self) -> None:
        """By another program, through Optuna itself."""
        study = optuna.load_study(study_name=self.name, storage=self.database.optuna)
        study.enqueue_trial(definition().defaults.as_dict())
        self.known[TRIALS][max(self.known[TRIALS], default=-1) + 1] = Known()

    @rule(seeds=st.integers(1, 2))
    def plan(self, seeds: int) -> None:
        """Some that are new, and one that is there."""
        new = [next(self.numbers) for _ in range(seeds)]
        runs = [
            PlannedRun(
                study_id=self.study.study_id,
                trial_number=0,
                params=definition().defaults.as_dict(),
                seed=seed,
                block=seed,
                place=seed,
                session="s",
                plan={},
            )
            for seed in (*new, *list(self.known[RUNS])[:1])
        ]
        assert self.study.verifications.add(runs) == seeds
        for seed in new:
            self.known[RUNS][seed] = Known()

    # -- what holds --------------------------------------------------------------------------------

    @invariant()
    def everything_counts_once(self) -> None:
        for kind, queue in self.queues.items():
            counts = queue.counts()
            assert counts.running == self.number(kind, "running")
            assert counts.finished == self.number(kind, "finished")
        assert self.study.ledger.counts().budget == self.budget

    def teardown(self) -> None:
        """What is stored is what is known, in our table, in Optuna's, and for who checks."""
        runs = {run.seed: run for run in self.study.verifications.runs()}
        assert runs.keys() == self.known[RUNS].keys()
        for seed, run in runs.items():
            known = self.known[RUNS][seed]
            assert (run.state, run.losses) == (known.state, known.losses)
            assert sorted(map(str, run.late)) == sorted(map(str, known.late))
            assert known.result is None or run.result == known.result
        self.study.ledger.settle()
        told = {
            trial.number: trial
            for trial in self.database.optuna.get_all_trials(self.study.study_id)
        }
        own = {trial.number: trial for trial in self.study.optuna.get_trials(deepcopy=False)}
        assert told.keys() == own.keys() == self.known[TRIALS].keys()
        for number, known in self.known[TRIALS].items():
            states = {"finished": ("COMPLETE", "FAIL")}.get(known.state, (known.state.upper(),))
            assert told[number].state.name in states
            assert own[number].state == told[number].state
            if known.result is not None:
                assert (
                    tuple(told[number].values) == known.result.values == tuple(own[number].values)
                )
        wrong = {
            what: which
            for what, (level, which) in faults(self.database.engine).items()
            if level == "error" and any(each.startswith(self.name) for each in which)
        }
        assert wrong == {}

    # -- what is known -----------------------------------------------------------------------------

    def number(self, kind: str, *states: str) -> int:
        return sum(each.state in states for each in self.known[kind].values())

    def drawn(self, data: st.DataObject) -> tuple[str, Attempt]:
        return self.attempts[data.draw(st.integers(0, len(self.attempts) - 1))]

    def lose(self, attempt: Attempt) -> None:
        attempt.state = "lost"
        attempt.piece.losses += 1
        attempt.piece.state = "finished" if attempt.piece.losses >= MAX_ATTEMPTS else "waiting"


def go(database: Database, steps: int) -> None:
    """So many steps at least, on machines that are drawn the same every time."""
    machine = type("Machine", (QueueMachine,), {"database": database})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=max(1, steps // A_MACHINE),
            stateful_step_count=A_MACHINE,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_whatever_is_done_in_whatever_order_every_piece_of_work_counts_once(
    database: Database,
) -> None:
    go(database, STEPS)


def without_token(queue: Queue[Any], ticket: Any) -> Any:
    return schema.work.c.work_id == ticket.work_id


def by_the_hosts_clock(queue: Queue[Any]) -> Any:
    now = literal(time.time() + 120.0)
    return queue._mine & queue._running & (schema.work.c.leased_until < now)


def claimed_then_counted(
    take: Callable[..., Any],
) -> Callable[..., Any]:
    def taken(self: Ledger, connection: Any, worker: str, token: str, seen: Any) -> Any:
        counts = self._counts
        self._counts = lambda *given: replace(counts(*given), running=0)  # type: ignore[method-assign]
        try:
            return take(self, connection, worker, token, seen)
        finally:
            del self._counts

    return taken


@pytest.mark.parametrize("defect", ["token", "clock", "budget"])
def test_a_planted_defect_is_found(
    tmp_path: Path, defect: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token that is not compared; leases by the host's clock, which is two minutes ahead; a
    budget that is counted after the claim.
    """
    if defect == "token":
        monkeypatch.setattr(Queue, "_held_by", without_token)
    elif defect == "clock":
        monkeypatch.setattr(Queue, "_overdue", by_the_hosts_clock)
    else:
        monkeypatch.setattr(Ledger, "_take", claimed_then_counted(Ledger._take))
    database = open_database(parse_url(f"sqlite:///{tmp_path}/hurt.db"))
    with contextlib.closing(database), pytest.raises(AssertionError):
        go(database, 600)
