"""Verification runs in blocks of seeds, so that whatever drifts on a device meets all alike."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.config import Value
from tuner.storage.queue.runs import PlannedRun


@dataclass(frozen=True, slots=True)
class Turn:
    """A configuration that is to run once on a seed."""

    study_id: int
    trial_number: int
    params: Mapping[str, Value]
    seed: int


def interleaved(
    blocks: Sequence[Sequence[Turn]],
    *,
    first: int,
    plan: dict[str, Any],
    session: str | None = None,
) -> list[PlannedRun]:
    """A session of runs: the blocks one after the other, the turns of each in a random order of its
    own, by the plan's `shuffle_seed`; places count on from `first`. A new session, unless it is
    named.
    """
    shuffler = np.random.default_rng(plan["shuffle_seed"])
    session = session or uuid.uuid4().hex
    runs: list[PlannedRun] = []
    for block, turns in enumerate(blocks):
        for index in shuffler.permutation(len(turns)):
            turn = turns[index]
            runs.append(
                PlannedRun(
                    study_id=turn.study_id,
                    trial_number=turn.trial_number,
                    params=dict(turn.params),
                    seed=turn.seed,
                    block=block,
                    place=first + len(runs),
                    session=session,
                    plan=plan,
                )
            )
    return runs
