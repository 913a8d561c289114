"""What a README and the report say of a comparison in words: the answer, by what is claimed; time at equal quality; luck."""

from __future__ import annotations

import math
import statistics
import textwrap
from collections.abc import Sequence

from tuner.study.snapshot import StudySnapshot
from tuner.verdict.compare.between import Standing
from tuner.verdict.explain import optimism
from tuner.verdict.picks import picks_of
from tuner.verdict.verified import verified_in


def conclusion(between: Sequence[Standing]) -> str:
    """The answer in a word or two: by what is claimed in the first of these standings, and by
    nothing else.
    """
    if not between:
        return "**Not everything that it takes is verified yet.**"
    standing = between[0]
    if standing.claimed and standing.found is not None:
        if standing.found.high < 1:
            return "**Yes.**"
        return "**No: slower.**" if standing.found.reached[0] else "**No: not reached.**"
    return "**No claim follows yet.**" if standing.why_not else "**Undecided.**"


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
        "([decision 10](../../docs/decisions/0010-what-may-be-claimed.md)); this has not been run here yet."
    )


def spread_of_a_seed(studies: Sequence[StudySnapshot]) -> str:
    """By how much the seed alone moves the test MQL of the default configurations."""
    runs = [
        list(found.sample().mql.values())
        for study in studies
        if (found := verified_in(study).get(picks_of(study).get("default", -1))) is not None
    ]
    squares = [statistics.variance(mqls) for mqls in runs if len(mqls) > 1]
    if not squares:
        return ""
    sd = math.sqrt(statistics.fmean(squares))
    return (
        f"The seed alone spreads the test MQL of a default with a standard deviation of {sd:.4f}."
    )


def prose(text: str) -> list[str]:
    return textwrap.wrap(text, 120, break_long_words=False, break_on_hyphens=False)
