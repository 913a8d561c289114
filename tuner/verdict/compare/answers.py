"""Answers to the questions of a comparison: who is meant, what the tests found, and the sentence
that says it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.files.plain import in_json
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.compare.studies import DEFAULT, labels
from tuner.verdict.stats.intervals import (
    BETWEEN,
    MQL,
    SECONDS,
    Comparison,
    Effect,
    Question,
    finite,
    questions,
    sample_name,
)
from tuner.verdict.stats.pairs import POWER, judge
from tuner.verdict.verified import Verified

# Answers in words: one plain sentence for each question.


MOST_DIGITS = 9


def sentence(answer: Comparison, a: str, b: str) -> str:
    """E.g. `retuned rmsnorm converges in 0.61 [0.55, 0.68] of the time of default rmsnorm; MQL
    +0.002 …`. What differs in quality is said to, before its time is.
    """
    if answer.mql.claimed and not answer.mql.within_margin and answer.mql.estimate is not None:
        better = "better" if answer.mql.estimate.estimate < 0 else "worse"
        time = time_phrase(answer.seconds, b)
        return (
            f"{a} forecasts {better} than {b}: {mql_phrase(answer.mql)}; at that quality it {time}"
        )
    return f"{a} {time_phrase(answer.seconds, b)}; {mql_phrase(answer.mql)}"


def time_phrase(effect: Effect, b: str) -> str:
    if effect.estimate is None:
        return f"against {b}: no verdict on time ({effect.why_not})"
    return f"converges in {_size(effect, 2, '')} of the time of {b}{_qualified(effect)}"


def mql_phrase(effect: Effect) -> str:
    if effect.estimate is None:
        return f"no verdict on MQL ({effect.why_not})"
    return f"MQL {_size(effect, 3, '+')}{_qualified(effect)}"


def resolution(answers: Iterable[Comparison]) -> str:
    """What runs like these can show at all,
    of the pair that shows least; empty where one can show nothing.
    """
    effects = [
        effect for answer in answers for effect in answer.effects if effect.estimate is not None
    ]
    ratios = [e.detectable for e in effects if e.objective == SECONDS and e.detectable is not None]
    differences = [e.detectable for e in effects if e.objective == MQL and e.detectable is not None]
    if not ratios or not differences or len(ratios) + len(differences) < len(effects):
        return ""
    return (
        f"In {POWER:.0%} of cases, runs as many and as noisy as these find a true difference of "
        f"{max(ratios):.2f} x in "
        f"time, or of {max(differences):.3f} in MQL; smaller ones are missed more often"
    )


def levels(answers: Iterable[Comparison]) -> str:
    """Of which confidence the intervals are; empty where there is none."""
    effects = [effect for answer in answers for effect in answer.effects if not effect.why_not]
    shown = sorted({100 * (1 - effect.level) for effect in effects if effect.level is not None})
    if not shown:
        return ""
    of = " to ".join(dict.fromkeys(f"{each:.4g} %" for each in (shown[0], shown[-1])))
    return (
        "Each interval is what the deciding test does not exclude, at the level that Holm's "
        f"correction gave it ({of} "
        "confidence): a difference is claimed where it leaves out no difference, and nowhere else"
    )


def _size(effect: Effect, digits: int, sign: str) -> str:
    """The estimate with the interval of its test;
    alone where there is no verdict, for which no interval speaks.

    As many digits as it takes to print that no difference is left out, where it is.
    """
    found = effect.estimate
    assert found is not None, "only what was tested has a size"
    if effect.why_not:
        return f"{found.estimate:{sign}.{digits}f}"
    while effect.claimed and digits < MOST_DIGITS and _reaches_nothing(effect, digits):
        digits += 1
    return f"{found:{sign}.{digits}f}"


def _reaches_nothing(effect: Effect, digits: int) -> bool:
    found = effect.estimate
    return found is not None and effect.nothing in (
        round(found.low, digits),
        round(found.high, digits),
    )


def _qualified(effect: Effect) -> str:
    if effect.why_not:
        return f", no verdict ({effect.why_not})"
    if effect.claimed:
        return ", yet surely close" if effect.within_margin else ""
    close = " and surely close" if effect.within_margin else ""
    return f", not distinguishable{close}"


KNEES = (
    "two points of single searches, mostly of different quality, say nothing of their variants: "
    "these are compared by whole searches at one quality"
)
"""Why the points of two fronts get no verdict."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A question's answer, who is meant, and its sentence."""

    comparison: Comparison
    a: str
    b: str
    sentence: str

    def as_dict(self) -> dict[str, Any]:
        return {
            **in_json(self, "a", "b", "sentence", family="comparison.question.family"),
            "wall_clock_s": _effect(self.comparison.seconds),
            "test_mql": _effect(self.comparison.mql),
        }


def answer_all(
    studies: Sequence[StudySnapshot],
    chosen: Mapping[str, Mapping[str, int]],
    ready: Mapping[str, Verified],
    pick: str,
) -> tuple[tuple[Answer, ...], list[str]]:
    """Answers to all questions whose configurations are `ready`,
    and a reason where there can be none.
    """
    groups = {study.name: study.membership.group for study in studies}
    asked = [q for q in questions(chosen, groups, pick=pick) if q.a in ready and q.b in ready]
    named = _names(studies, chosen, pick)
    comparisons, refusals = _judge(studies, ready, asked)
    answers = []
    for each in comparisons:
        a, b = named[each.question.a], named[each.question.b]
        if each.question.family == BETWEEN:
            found = [(name, ready[q]) for name, q in ((a, each.question.a), (b, each.question.b))]
            answers.append(
                Answer(
                    comparison=_not_claimed(each),
                    a=a,
                    b=b,
                    sentence=_figures_of(found, pick, [e.why_not for e in each.effects]),
                )
            )
        else:
            answers.append(Answer(comparison=each, a=a, b=b, sentence=sentence(each, a, b)))
    return tuple(answers), refusals


def _not_claimed(answer: Comparison) -> Comparison:
    """The figures of two points of single searches, of which nothing follows for the variants."""
    seconds, mql = (
        dataclasses.replace(each, claimed=False, within_margin=False, why_not=each.why_not or KNEES)
        for each in answer.effects
    )
    return dataclasses.replace(answer, seconds=seconds, mql=mql)


def _figures_of(found: Sequence[tuple[str, Verified]], pick: str, reasons: Sequence[str]) -> str:
    """Each point's own figures: points of different quality are not compared."""
    figures = [
        f"{name} has {each.seconds.estimate:.3f} s and MQL {each.mql.estimate:.4f}"
        if each.seconds is not None and each.mql is not None
        else f"{name} has too few runs that converged"
        for name, each in found
    ]
    said = f"{', '.join(figures)}: the pick {pick} of one search each, no claim between variants"
    return "; ".join([said, *dict.fromkeys(filter(None, reasons))])


def _judge(
    studies: Sequence[StudySnapshot], ready: Mapping[str, Verified], asked: Sequence[Question]
) -> tuple[tuple[Comparison, ...], list[str]]:
    """Answers to all questions together, and a reason where there can be none."""
    if not asked:
        return (), []
    involved = {name: ready[name] for q in asked for name in (q.a, q.b)}
    if any(run.plan.get("looks") for each in involved.values() for run in each.runs):
        why = (
            "a verification that could stop early has no verdict; test what is recommended: tuner "
            "verify --confirm"
        )
        return (), [why]
    margin = min(study.policy.counted_margin for study in studies)
    samples = [each.sample() for each in involved.values()]
    judged = judge(samples, asked, margin=margin)
    return tuple(_on_one_clock(each, studies) for each in judged), []


def _on_one_clock(answer: Comparison, studies: Sequence[StudySnapshot]) -> Comparison:
    """The answer without its time where the two were measured
    on different devices, or by different clocks.
    """
    a, b = (_owner(name, studies) for name in (answer.question.a, answer.question.b))
    if (
        a.device_model == b.device_model
        and a.definition.objectives[0] == b.definition.objectives[0]
    ):
        return answer
    why = f"measured on {a.device_model} and on {b.device_model}"
    if a.device_model == b.device_model:
        why = f"one is {a.definition.objectives[0]}, the other {b.definition.objectives[0]}"
    none = Effect(
        objective=answer.seconds.objective, estimate=None, pairs=answer.seconds.pairs, why_not=why
    )
    return dataclasses.replace(answer, seconds=none)


def _owner(name: str, studies: Sequence[StudySnapshot]) -> StudySnapshot:
    return next(study for study in studies if name.rpartition(" trial ")[0] == study.name)


def _names(
    studies: Sequence[StudySnapshot], chosen: Mapping[str, Mapping[str, int]], pick: str
) -> dict[str, str]:
    """What sentences call a sample: `retuned rmsnorm`,
    `default rmsnorm`; the study's name where variants repeat.

    A default that is itself the front's pick is called by what it is.
    """
    names: dict[str, str] = {}
    for study, what in zip(studies, labels(studies), strict=True):
        for role, word in ((pick, "retuned"), (DEFAULT, DEFAULT)):
            if role in chosen[study.name]:
                names[sample_name(study.name, chosen[study.name][role])] = f"{word} {what}"
    return names


def _effect(effect: Effect) -> dict[str, Any]:
    found = effect.estimate
    what = "ratio" if effect.objective == "wall_clock_s" else "difference"
    return {
        what: {name: finite(value) for name, value in found.as_estimate().items()}
        if found
        else None,
        **in_json(effect, "level", "pairs", "p", "p_adjusted", "detectable"),
        **in_json(effect, tests="others", distinguishable="claimed", surely_close="within_margin"),
        "no_verdict_because": effect.why_not or None,
    }
