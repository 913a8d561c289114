"""What the README says of a comparison in words: the answer, by what is claimed; time at equal quality; a front's luck."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from tuner.compare import Report, Subject
from tuner.compare.answers import Answer
from tuner.compare.quality import Fastest
from tuner.compare.sentences import in_brackets
from tuner.compare.understanding import understand
from tuner.study.verification import BETWEEN


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
        return "**No: it is faster, and forecasts worse.**" if worse else "**Yes: it is faster, and forecasts better.**"
    return "**Yes.**" if mql.within_margin else "**It is faster; whether it forecasts as well cannot be told.**"


def luck(subjects: Sequence[Subject]) -> str:
    """By how much the searches promised too much of what was verified."""
    found = {subject.variant: understand(subject).ranking for subject in subjects}
    off = {variant: ranking.optimism for variant, ranking in found.items() if ranking and ranking.optimism is not None}
    if not off or max(off.values()) >= 0:
        return ""
    each = ", ".join(f"{variant} {-by:.3f}" for variant, by in off.items())
    return (
        f"A front holds the lucky seeds: what was verified of it had looked better in the search, in test MQL by {each} on "
        "average. So retuned configurations were taken for as good as the default one that are not; with `--choose expected` "
        "`tuner verify` chooses by what all trials say together "
        "([decision 15](docs/decisions/0015-the-expected-front.md)), and has not been run here yet."
    )


def levels(report: Report) -> list[str]:
    """Time at equal quality, for the pair of the question."""
    if not report.levels:
        return []
    variant = report.subjects[1].variant
    rows = []
    for level in report.levels:
        first, second = level.fastest
        ratio = in_brackets(second.ratio, ".2f") if second and second.ratio else ""
        rows.append(f"| {level.mql:.12g} | {_seconds(first)} | {_seconds(second)} | {ratio} |")
    first = report.subjects[0].variant
    return [
        "",
        *prose(
            "The two picks do not forecast alike, so the same with quality held still: the fastest verified configuration of "
            "each with at most this median test MQL. Intervals resample seeds and choose anew each time."
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
