"""What README and report say of a comparison in words: the answer, by what is claimed; time at equal quality; luck."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from tuner.study.snapshot import StudySnapshot
from tuner.verdict.compare.answers import Answer
from tuner.verdict.compare.equal_quality import Fastest
from tuner.verdict.compare.findings import Report
from tuner.verdict.compare.sentences import in_brackets
from tuner.verdict.explain import optimism
from tuner.verdict.questions import BETWEEN


def conclusion(report: Report) -> str:
    """The answer in a word or two: by what is claimed of the two retuned variants, and by nothing else."""
    between, _ = by_family(report.answers)
    if not between:
        return "**Not everything that it takes is verified yet.**"
    time, mql = between[0].comparison.effects
    if not time.claimed or time.estimate is None or mql.estimate is None:
        return "**No difference in time can be claimed.**"
    if time.estimate.estimate > 1:
        return "**No: it is slower.**"
    if mql.claimed:
        worse = mql.estimate.estimate > 0
        return (
            "**No: it is faster, and forecasts worse.**"
            if worse
            else "**Yes: it is faster, and forecasts better.**"
        )
    return (
        "**Yes.**"
        if mql.within_margin
        else "**It is faster; whether it forecasts as well cannot be told.**"
    )


def short_answer(report: Report, why: str) -> list[str]:
    """The answer in three lines; `why` is the link to the reasons for which it is provisional."""
    between, _ = by_family(report.answers)
    said = f" {between[0].sentence[:1].upper()}{between[0].sentence[1:]}." if between else ""
    twice = 'Asked twice, the same network "differs" from itself'
    return [
        f"1. {conclusion(report)}{said}",
        f"2. {_at_equal_quality(report)}",
        f"3. {twice} ([why this is provisional]({why})). A protocol that survives being asked twice is being built.",
    ]


def _at_equal_quality(report: Report) -> str:
    """Time at the best quality that both variants reach."""
    for level in report.levels:
        first, second = level.fastest
        if first and second and second.ratio:
            undecided = ": undecided" if second.ratio.low <= 1 <= second.ratio.high else ""
            ratio = in_brackets(second.ratio, ".2f")
            return f"At equal quality (MQL {level.mql:.12g}) {second.variant} takes {ratio} times as long{undecided}."
    return "No quality that both reach has been verified."


def luck(studies: Sequence[StudySnapshot]) -> str:
    """By how much the searches promised too much of what was verified."""
    found = {study.variant: optimism(study) for study in studies}
    off = {variant: by for variant, by in found.items() if by is not None}
    if not off or max(off.values()) >= 0:
        return ""
    each = ", ".join(f"{variant} {-by:.3f}" for variant, by in off.items())
    return (
        f"A front holds the lucky seeds. On average, the search had shown the verified configurations better than they are, in "
        f"test MQL by {each}. So the search picked configurations that looked as good as the default and are not. With "
        "`--choose expected`, `tuner verify` chooses by what all trials say together "
        "([decision 15](decisions/0015-the-expected-front.md)); this has not been run here yet."
    )


def levels(report: Report) -> list[str]:
    """Time at equal quality, for the pair of the question."""
    if not report.levels:
        return []
    variant = report.studies[1].variant
    rows = []
    for level in report.levels:
        first, second = level.fastest
        ratio = in_brackets(second.ratio, ".2f") if second and second.ratio else ""
        rows.append(f"| {level.mql:.12g} | {_seconds(first)} | {_seconds(second)} | {ratio} |")
    first = report.studies[0].variant
    return [
        "",
        *prose(
            "The two picks do not forecast equally well. This table compares them at equal quality: for each level, the fastest "
            "verified configuration of each variant whose median test MQL is at most that. Intervals resample seeds and choose "
            "anew in each resample."
        ),
        "",
        f"| test MQL at most | {first} (s) | {variant} (s) | {variant} / {first} |",
        "|---|---|---|---|",
        *rows,
    ]


def _seconds(fastest: Fastest | None) -> str:
    if fastest is None:
        return "not reached"
    return f"{in_brackets(fastest.seconds, '.3f')}, trial {fastest.trial}"


def by_family(answers: Sequence[Answer]) -> tuple[list[Answer], list[Answer]]:
    """Variants against each other; retuned ones against their own defaults."""
    between = [answer for answer in answers if answer.comparison.question.family == BETWEEN]
    return between, [answer for answer in answers if answer not in between]


def prose(text: str) -> list[str]:
    return textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False)
