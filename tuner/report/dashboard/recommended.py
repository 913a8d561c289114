"""What each study recommends, for a page that is asked for every few seconds."""

from __future__ import annotations

import time
from collections.abc import Hashable
from dataclasses import dataclass, field

from tuner.study.snapshot import StudySnapshot
from tuner.verdict.same_quality import recommended_trial

SHARE = 50
"""What took so long to find is kept for so many times as long at least: it takes seconds, and a
trial more seldom changes it."""


@dataclass(frozen=True, slots=True)
class _Found:
    trial: int | None
    of: Hashable
    until: float


@dataclass(slots=True)
class Recommended:
    """The trial that a study recommends, kept while the study is as it was, and for a while."""

    _found: dict[str, _Found] = field(default_factory=dict)

    def __call__(self, key: str, study: StudySnapshot) -> int | None:
        """None while there is none. `key` is the study's: what no other has."""
        complete = len(study.results.complete)
        ran_again = sum(run.result is not None for run in study.runs)
        now_of = (complete, ran_again, study.policy, study.results.reference)
        known, began = self._found.get(key), time.monotonic()
        if known is not None and (known.of == now_of or began < known.until):
            return known.trial
        trial = recommended_trial(study)
        took = time.monotonic() - began
        self._found[key] = _Found(trial, now_of, began + SHARE * took)
        return trial
