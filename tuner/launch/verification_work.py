"""Verification runs as what a launch's workers are started for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.storage.queue.verifications import Verifications
from tuner.study.open import OpenStudy
from tuner.verdict.queue import verifications_of


@dataclass(frozen=True, slots=True)
class Rosters:
    """The rosters of several studies, which one worker joins all."""

    opened: Sequence[OpenStudy]

    def leave(self, worker: str) -> None:
        for each in self.opened:
            each.roster.leave(worker)


@dataclass(frozen=True, slots=True)
class VerificationWork:
    """One queue for all the studies: their runs are interleaved."""

    name: str
    ledger: Verifications
    roster: Rosters

    @staticmethod
    def of(opened: Sequence[OpenStudy]) -> VerificationWork:
        return VerificationWork(
            name=",".join(each.name for each in opened),
            ledger=verifications_of(opened),
            roster=Rosters(opened),
        )
