"""BoTorch beside ours on a simulated GPU (benchmarks/verdict/botorch_search.py)."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.verdict import botorch_search
from benchmarks.verdict.botorch_search import BATCH, Told
from benchmarks.verdict.budgets import Gpu, Place
from benchmarks.verdict.others_contenders import Contender
from benchmarks.verdict.truths import Training, truth


class BoTorch:
    def __init__(self, gpu: Gpu) -> None:
        botorch_search.quiet_and_seeded(gpu.seed)
        self._gpu, self._space = gpu, truth(gpu.name).space
        self._first = botorch_search.first_places(self._space, gpu.seed)
        self._x: list[Place] = []
        self._y: list[tuple[float, float]] = []
        self._open: list[Place] = []
        self._begun = False

    def suggest(self) -> list[Place]:
        if not self._begun:
            self._begun, batch = True, [self._gpu.default]
        elif self._first:
            batch, self._first = self._first[:BATCH], self._first[BATCH:]
        else:
            batch = botorch_search.next_places(self._space, self._told())
        self._open += batch
        return batch

    def tell(self, trainings: Sequence[Training]) -> None:
        for done in trainings:
            self._x.append(self._open.pop(0))
            self._y.append((done.seconds, done.mql))

    def recommended(self) -> Place | None:
        return botorch_search.recommended(self._told())

    def _told(self) -> Told:
        return Told(tuple(self._x), tuple(self._y), tuple(self._open))


def contender(key: str, gpu: Gpu) -> Contender:
    assert key == "botorch", "there is one of it"
    return BoTorch(gpu)
