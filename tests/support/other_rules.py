"""Searches whose trainings last as they are told to, and verdicts on them under other stopping
rules."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Sequence

from tuner.spec.membership import Membership
from tuner.storage.queue.epochs import EpochRow
from tuner.study.results import TrialRecord
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.compare.between import Standing, standings
from tuner.verdict.compare.other_rules import UnderRule, under_other_rules
from tuner.verdict.compare.registered import Groups, RegisteredLevel, SearchTime, groups_of
from tuner.verdict.compare.studies import names_of_groups

BEST = 8
"""The epoch whose weights every training keeps; it ends ten later."""
EASY = 50.0
"""A test MQL that everything reaches, so the fastest configuration answers."""
Spent = Callable[[int], float]
"""The share of a training's seconds that is over at the end of an epoch."""


def evenly(epoch: int) -> float:
    """As it mostly is: 18 epochs of one length."""
    return epoch / (BEST + 10)


def half_after(epoch: int) -> float:
    """Five epochs after the best one, half of the time is over."""
    return 0.5 * epoch / (BEST + 5) if epoch <= BEST + 5 else 0.5 + 0.1 * (epoch - BEST - 5)


def all_after(epoch: int) -> float:
    """Five epochs after the best one, all of it."""
    return min(1.0, epoch / (BEST + 5))


def search(
    study: StudySnapshot, spent: Spent, *, seconds: float = 1.0, number: int = 1, late: int = 0
) -> StudySnapshot:
    """A search whose trainings take `seconds` times what they do, spread over their epochs as
    `spent` says; the first `late` of them improve once more after six epochs of waiting.
    """
    records = [_timed(record, seconds) for record in study.results.records]
    losses = [0.3 - 0.01 * min(epoch, BEST) for epoch in range(1, BEST + 11)]
    numbers = [each.number for each in records if each.converged]

    def curves(asked: Collection[int]) -> dict[int, tuple[EpochRow, ...]]:
        found = {}
        for record in records:
            if record.number in asked and record.values is not None:
                own = list(losses)
                if record.number in numbers[:late]:
                    own[BEST + 5] -= 0.01
                rows = (
                    EpochRow(e, 0.3, own[e - 1], 1e-3, record.values[0] * spent(e))
                    for e in range(1, BEST + 11)
                )
                found[record.number] = tuple(rows)
        return found

    name = study.name if number == 1 else f"{study.name}-{number}"
    return dataclasses.replace(
        study,
        name=name,
        membership=Membership(group=study.name, search=number),
        results=dataclasses.replace(study.results, records=tuple(records)),
        curves=curves,
        read_runs=lambda: (),
    )


def _timed(record: TrialRecord, seconds: float) -> TrialRecord:
    if record.values is None:
        return record
    return dataclasses.replace(record, values=(seconds * record.values[0], record.values[1]))


def judged(
    studies: Sequence[StudySnapshot], times: dict[str, list[float]] | None = None
) -> tuple[UnderRule, ...]:
    """The lines for a verdict of confirmed `times`; of none where the verdict has none."""
    groups: Groups = groups_of(studies)
    level = level_of(groups, times)
    names = names_of_groups(studies)
    between: tuple[Standing, ...] = standings(groups, [level], names)
    return under_other_rules(groups, [level], between, names)


def level_of(groups: Groups, times: dict[str, list[float]] | None = None) -> RegisteredLevel:
    """The level of the first group, with these confirmed times."""
    return RegisteredLevel(
        group=next(iter(groups)),
        mql=EASY,
        default_mql=EASY / 1.01,
        margin=0.01,
        runs=30,
        confirmed=True,
        searches={
            group: tuple(
                SearchTime(
                    study=each.name,
                    seconds=times[group][index] if times else None,
                    how="recommended" if times else "unknown",
                    confirmed=True,
                )
                for index, each in enumerate(members)
            )
            for group, members in groups.items()
        },
    )


def ratios(found: UnderRule) -> tuple[float, float]:
    assert found.recorded is not None
    assert found.replayed is not None
    assert found.recorded.ratio is not None
    assert found.replayed.ratio is not None
    return found.recorded.ratio, found.replayed.ratio
