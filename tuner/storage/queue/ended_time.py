"""Seconds for which some studies had devices, of all that has ended: with a result or without."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Column, ColumnElement, Connection, select

from tuner.storage.damage import cell, damage_named
from tuner.storage.queue.device_time import attempt_seconds, device_seconds
from tuner.storage.records import TrialResult
from tuner.storage.schema import claims, verifications

_Work = tuple[int, int] | str
"""A trial, as study and number; of what is none, or is not known any more, the token."""


@dataclass(frozen=True, slots=True)
class _Took:
    """What a result says: of all of it, and of the attempt that came to it."""

    work: _Work
    whole_s: float
    attempt_s: float


class EndedTime:
    """Results are read once: they never change."""

    def __init__(self) -> None:
        self._took: dict[tuple[str, int], _Took] = {}
        self._work: dict[str, _Work] = {}

    def seconds(
        self, connection: Connection, ids: Sequence[int], spent: Mapping[str, float]
    ) -> float:
        """Of the studies of these numbers. `spent` is what attempts took that came to no result, by
        their tokens.

        A trial that went on from a checkpoint has most of its earlier attempts in its result, too:
        what is counted of it is the more of its result and of all its attempts.
        """
        earlier: dict[_Work, float] = {}
        works = self._works_of(connection, spent)
        for token, seconds in spent.items():
            earlier[works[token]] = earlier.get(works[token], 0.0) + seconds
        total = 0.0
        for took in self._finished(connection, ids):
            total += max(took.whole_s, took.attempt_s + earlier.pop(took.work, 0.0))
        return total + sum(earlier.values())

    @property
    def usual_s(self) -> float:
        """What half of those that have a result took at most; 0 before the first."""
        return statistics.median(e.whole_s for e in self._took.values()) if self._took else 0.0

    def _finished(self, connection: Connection, ids: Sequence[int]) -> list[_Took]:
        trials, runs = claims.c, verifications.c
        there = self._read(connection, "trial", trials.claim_id, trials.study_id.in_(ids))
        return there + self._read(connection, "run", runs.run_id, runs.study_id.in_(ids))

    def _read(
        self, connection: Connection, kind: str, key: Column[int], mine: ColumnElement[bool]
    ) -> list[_Took]:
        c = key.table.c
        finished = select(key).where(mine & (c.state == "finished"))
        there = set(connection.execute(finished).scalars())
        if new := sorted(each for each in there if (kind, each) not in self._took):
            query = select(key, c.study_id, c.trial_number, c.result).where(key.in_(new))
            for number, study_id, trial_number, text in connection.execute(query):
                named = damage_named(connection.engine, study_id)
                with named, cell(f"{key.table.name}.result", trial_number):
                    recorded = TrialResult.from_json(text).recorded
                self._took[kind, number] = _Took(
                    work=(study_id, trial_number) if kind == "trial" else f"run {number}",
                    whole_s=device_seconds(recorded),
                    attempt_s=attempt_seconds(recorded),
                )
        return [self._took[kind, each] for each in there]

    def _works_of(
        self, connection: Connection, tokens: Mapping[str, object]
    ) -> Mapping[str, _Work]:
        """The trials of these tokens. A run that verifies is never gone on with."""
        if new := [each for each in tokens if each not in self._work]:
            self._work |= {token: token for token in new}
            query = select(claims.c.token, claims.c.study_id, claims.c.trial_number)
            for token, study_id, number in connection.execute(query.where(claims.c.token.in_(new))):
                self._work[token] = study_id, number
        return self._work
