"""Whether the verdict between variants would stand under another stopping rule.

A rule that waits long makes every training longer, and not by the same share: whoever converges in
few epochs pays most for the wait. So the same trainings are timed twice, as recorded and as a rule
would have ended them (`tuner.verdict.replayed_runs`), and each search's time at the registered
level is what the model of those trainings expects, both times.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.study.snapshot import StudySnapshot
from tuner.verdict.compare.between import Standing
from tuner.verdict.compare.registered import TEST, Groups, RegisteredLevel
from tuner.verdict.compare.rule_sentences import direction, rule_sentence, unknown_sentence
from tuner.verdict.known_runs import Run, candidates_of, default_of
from tuner.verdict.recommendation import recommend_at
from tuner.verdict.replayed_runs import BothWays, both_ways
from tuner.verdict.runs_model import LEAST_CONFIGURATIONS, RunsModel
from tuner.verdict.stats.intervals import finite
from tuner.verdict.stats.searches import NOT_REACHED, Between, compare_with_reference
from tuner.verdict.stopping_rule import StoppingRule, is_recorded

CLOCK = "wall_clock_s"
"""The time that ends with the last epoch, which a replay gives."""
SHARE = 0.005
"""Of the default's validation loss: half of the margin within which two losses are as good, unless
a study has another. Waiting for less is waiting for what does not count."""
TIMES = 10
"""The study's own `min_delta`, where that is as large already."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherRule:
    """A stopping rule beside the one that the studies have."""

    rule: StoppingRule
    own: StoppingRule
    words: str
    """E.g. `With a patience of 5 in place of 10`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnderRule:
    """What becomes of the verdict between two variants under another rule."""

    a: str
    b: str
    """What the two are called."""
    other: OtherRule
    level: float
    """The registered test MQL."""
    trainings: int
    kept: int
    """How many of the trainings with recorded epochs are known under the rule."""
    recorded: Between | None
    replayed: Between | None
    """Of the same trainings; None where too few are known."""
    stands: bool | None
    """None where it cannot be told."""
    why_not: str
    """Why it cannot; empty where it can."""
    sentence: str

    def as_dict(self) -> dict[str, Any]:
        return {
            "a": self.a,
            "b": self.b,
            "patience": self.other.rule.patience,
            "min_delta": self.other.rule.min_delta,
            "own_patience": self.other.own.patience,
            "own_min_delta": self.other.own.min_delta,
            "test_mql_at_most": self.level,
            "recorded_trainings": self.trainings,
            "replayed_trainings": self.kept,
            "as_recorded": _plain(self.recorded),
            "replayed": _plain(self.replayed),
            "stands": self.stands,
            "unknown_because": self.why_not or None,
            "sentence": self.sentence,
        }


def can_be_replayed(studies: Sequence[StudySnapshot], between: Sequence[Standing]) -> bool:
    """Whether there is a verdict between variants and epochs to replay it from."""
    return bool(between) and all(map(is_recorded, studies))


def under_other_rules(
    groups: Groups,
    levels: Sequence[RegisteredLevel],
    between: Sequence[Standing],
    names: Mapping[str, str],
) -> tuple[UnderRule, ...]:
    """Each verdict between variants under half the patience, and under a larger `min_delta`.

    Empty where there is no verdict. `names` are what the groups are called.
    """
    reference, *others = groups
    level = next((each for each in levels if each.group == reference), None)
    if level is None or not between:
        return ()
    fitted = _Fitted()
    found = []
    for other in other_rules(groups[reference], names[reference]):
        replays = {
            name: [both_ways(each, other.rule) for each in members]
            for name, members in groups.items()
        }
        reasons = {
            name: _unusable(groups[reference], members, replays[name])
            for name, members in groups.items()
        }
        usable = [name for name, why in reasons.items() if not why]
        as_recorded = {name: [each.recorded for each in replays[name]] for name in usable}
        as_replayed = {name: [each.replayed for each in replays[name]] for name in usable}
        recorded = _compared(groups, level, fitted, as_recorded)
        replayed = _compared(groups, level, fitted, as_replayed)
        found += [
            _under(
                standing,
                other,
                [*replays[name], *replays[reference]],
                recorded.get(name),
                replayed.get(name),
                reasons[name] or reasons[reference],
            )
            for name, standing in zip(others, between, strict=True)
        ]
    return tuple(found)


def other_rules(reference: Sequence[StudySnapshot], name: str) -> list[OtherRule]:
    """What the reference's own stopping rule is set beside, as far as it can be sharper."""
    own = _own(reference[0])
    found = []
    if (patience := max(1, own.patience // 2)) < own.patience:
        rule = StoppingRule(patience=patience, min_delta=own.min_delta)
        words = f"With a patience of {patience} in place of {own.patience}"
        found.append(OtherRule(rule=rule, own=own, words=words))
    defaults = [each.results.default for each in reference]
    losses = [each.recorded.val_loss for each in defaults if each and each.recorded.val_loss]
    min_delta = float(f"{SHARE * statistics.median(losses):.2g}") if losses else 0.0
    why = f"{100 * SHARE:g} % of the validation loss of the default of {name}"
    if min_delta <= own.min_delta:
        min_delta, why = TIMES * own.min_delta, f"{TIMES} times as much"
    if min_delta > own.min_delta:
        rule = StoppingRule(patience=own.patience, min_delta=min_delta)
        words = f"With a min_delta of {min_delta:g} ({why}) in place of {own.min_delta:g}"
        found.append(OtherRule(rule=rule, own=own, words=words))
    return found


class _Fitted:
    """Models of runs, fitted once of each: two rules may leave the same trainings, and a rule may
    change none.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[tuple[Run, ...], int | None], RunsModel] = {}

    def of(self, runs: tuple[Run, ...], default: int | None) -> RunsModel:
        key = (runs, default)
        if key not in self._found:
            self._found[key] = RunsModel(runs, default)
        return self._found[key]


def _own(study: StudySnapshot) -> StoppingRule:
    training = study.definition.training
    return StoppingRule(patience=training.patience, min_delta=training.min_delta)


def _unusable(
    reference: Sequence[StudySnapshot],
    members: Sequence[StudySnapshot],
    replays: Sequence[BothWays],
) -> str:
    """Why the times of a group's searches are not known under a rule; empty where they are."""
    for study, both in zip(members, replays, strict=True):
        if _own(study) != _own(reference[0]) or study.definition.program is not None:
            return f"{study.name} and {reference[0].name} have stopping rules of their own"
        if study.definition.mql_split != TEST:
            but_last = study.definition.keeps_last_block
            what = "the last block of the test split" if but_last else "the test MQL"
            return f"{study.name} was not searched on {what}"
        if study.definition.objectives[0] != CLOCK:
            return f"the time of {study.name} is {study.definition.objectives[0]}, not {CLOCK}"
        if not both.trainings:
            return f"no epochs of {study.name} are recorded"
        if both.configurations < LEAST_CONFIGURATIONS:
            return (
                f"{both.configurations} configurations of {study.name} are known under it, "
                f"{LEAST_CONFIGURATIONS} are the least"
            )
    return ""


def _compared(
    groups: Groups,
    level: RegisteredLevel,
    fitted: _Fitted,
    runs: Mapping[str, Sequence[tuple[Run, ...]]],
) -> dict[str, Between]:
    """Each group in `runs` against the reference, by the times of their searches."""
    if level.group not in runs:
        return {}
    times = {
        name: [
            _time(study, own, level, fitted) for study, own in zip(groups[name], each, strict=True)
        ]
        for name, each in runs.items()
    }
    return {each.a: each for each in compare_with_reference(level.group, times)}


def _time(
    study: StudySnapshot, runs: tuple[Run, ...], level: RegisteredLevel, fitted: _Fitted
) -> float:
    """What a search takes to the level, as the model of these runs expects."""
    model = fitted.of(runs, default_of(study))
    found = recommend_at(model, level.mql, error=level.error, candidates=candidates_of(study))
    return NOT_REACHED if found.chosen is None else found.chosen.seconds


def _under(
    standing: Standing,
    other: OtherRule,
    both: Sequence[BothWays],
    recorded: Between | None,
    replayed: Between | None,
    why: str,
) -> UnderRule:
    stands: bool | None = None
    if recorded is not None and replayed is not None:
        why = _unlike(standing, recorded)
        if not why:
            same = direction(recorded) == direction(replayed)
            stands = same and recorded.claimed == replayed.claimed
    trainings, kept = sum(each.trainings for each in both), sum(each.kept for each in both)
    head = f"{other.words}, replayed from {kept} of {trainings} recorded trainings"
    if recorded is None or replayed is None:
        sentence = unknown_sentence(other.words, standing, why)
    else:
        sentence = rule_sentence(head, standing, recorded, replayed, why)
    return UnderRule(
        a=standing.a,
        b=standing.b,
        other=other,
        level=standing.level.mql,
        trainings=trainings,
        kept=kept,
        recorded=recorded,
        replayed=replayed,
        stands=stands,
        why_not=why,
        sentence=sentence,
    )


def _unlike(standing: Standing, recorded: Between) -> str:
    """Why these trainings say nothing of the verdict; empty where, as recorded, they show the same.

    The verdict is of confirmed times, and of all runs: it may differ from what a part of them says.
    """
    verdict = standing.found
    if verdict is None:
        return ""
    if direction(verdict) != direction(recorded) or (standing.claimed and not recorded.claimed):
        return "as recorded, these trainings alone do not show what the verdict says"
    return ""


def _plain(found: Between | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {
        "ratio": finite(found.ratio),
        "low": finite(found.low),
        "high": finite(found.high),
        "p": found.p,
        "level": found.level,
        "searches": list(found.searches),
        "reached": list(found.reached),
        "claimed": found.claimed,
    }
