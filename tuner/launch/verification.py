"""The runs that verify some studies, as work for a supervisor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.storage import Verifications
from tuner.study import OpenStudy
from tuner.study.verification import verifications_of


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
            name=",".join(each.name for each in opened), ledger=verifications_of(opened), roster=Rosters(opened)
        )
