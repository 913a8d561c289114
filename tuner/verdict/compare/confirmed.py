"""The confirmations of the compared studies, each with its sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tuner.study.snapshot import StudySnapshot
from tuner.verdict.compare.studies import labels
from tuner.verdict.confirmation import Confirmation, confirmation_of
from tuner.verdict.confirmed_words import confirmed_sentence


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmed:
    """What a study's last confirmation found."""

    confirmation: Confirmation
    sentence: str

    def as_dict(self) -> dict[str, Any]:
        return self.confirmation.as_dict() | {"sentence": self.sentence}


def confirmed_of(studies: Sequence[StudySnapshot]) -> tuple[Confirmed, ...]:
    """Of each study that has one, in their order."""
    found = []
    for study, name in zip(studies, labels(studies), strict=True):
        there = confirmation_of(study)
        if there is not None:
            found.append(
                Confirmed(confirmation=there, sentence=confirmed_sentence(there, name=name))
            )
    return tuple(found)


def that_ended(confirmed: Sequence[Confirmed]) -> dict[str, Confirmation]:
    """Of which all runs have finished, by their studies."""
    return {
        each.confirmation.study: each.confirmation
        for each in confirmed
        if each.confirmation.complete
    }
