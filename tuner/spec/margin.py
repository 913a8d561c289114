"""How much higher than the default's the MQL of a configuration may be that still counts as good.

Relative, and a policy: no part of what a study is, but said before its confirmation begins.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum

from tuner.display.text import shown
from tuner.errors import UsageError
from tuner.settings import Unit, in_percent, number_of_share

MARGIN = 0.01
"""As good as the default: MQL at most 1 % higher, unless somebody says otherwise."""
TOO_MUCH = 0.10
"""Of what is so much worse than the default, runs near it say nothing."""


def checked_margin(value: float) -> float:
    """The margin, where it is one.

    Raises:
        UsageError: it is none.
    """
    if not (math.isfinite(value) and 0 <= value < TOO_MUCH):
        raise UsageError(
            f"a margin is a share of the default's MQL, 0 or more and below "
            f"{in_percent(TOO_MUCH)}, such as {in_percent(MARGIN)}; {value:g} is none"
        )
    return float(value)


def margin_of(text: str | None, flag: str) -> float | None:
    """The margin that `1%`, `1 %` or `0.01` names.

    Raises:
        UsageError: none of these, or more than a margin may be.
    """
    if text is None:
        return None
    number = number_of_share(text)
    if number is None:
        raise UsageError(f"{flag}: {shown(text)!r} is no share; expected e.g. 1% or 0.01")
    try:
        return checked_margin(number)
    except UsageError as error:
        raise UsageError(f"{flag}: {error}") from None


OF_MARGIN = Unit(margin_of, in_percent)


# How a recommendation is confirmed: on how many seeds, and how surely.


CONFIRMATION_SEEDS = 90
"""Of a confirmation at most, unless somebody says otherwise: what is recommended has to pass it.
Fewer confirm so much less that a search of the same total cost ends slower (docs/decisions/0010).
"""
NO_LOSS = 0.005
"""At no loss: MQL surely less than 0.5 % higher. The stricter of a confirmation's two answers."""
STEPS = 3
"""How many configurations of a search are tested one after the other, at most."""
LEVEL = 0.04
"""Of all tests of a search together. "No worse" is said in at most 5 % of cases where it is worse
by the margin, or more: a tail of bad seeds leaves this much to spare. Of bad seeds that are rare
and very bad it does not hold: they do not occur (benchmarks/verdict)."""


class Question(StrEnum):
    """What a confirmation asks of a configuration."""

    MARGIN = "margin"
    """Whether it is within the margin of its own default."""
    NO_LOSS = "no loss"
    ANOTHERS = "another's"
    """Whether it is within the margin of another study's default."""

    @property
    def share(self) -> float:
        """Of the level: together they have a little less than all of it."""
        return _SHARES[self]


_SHARES = {Question.MARGIN: 0.4, Question.NO_LOSS: 0.14, Question.ANOTHERS: 0.38}
LOOK_SHARES = (0.01, 0.06, 0.93)
"""Of a question's level, what each of three looks may use. Few seeds are seldom bad: an early look
that asked for less would miss that some are (benchmarks/verdict)."""
LEAST_LOOK = 30
"""Seeds, below which one does not look."""
LEAST_RUNS = 5
"""Of its own, without which nothing is recommended where a verification has run, or where a search
runs configurations again: a surface may be rougher than the model believes. A confirmation may test
what has run less often."""


def looks_of(seeds: int) -> tuple[int, ...]:
    """After how many seeds a confirmation looks whether it knows enough: a third, two, and all.

    >>> from tuner.spec.margin import looks_of
    >>> looks_of(90), looks_of(40)
    ((30, 60, 90), (40,))
    """
    thirds = tuple(math.ceil(seeds * nth / len(LOOK_SHARES)) for nth in (1, 2, 3))
    return thirds if thirds[0] >= LEAST_LOOK else (seeds,)


def levels_of(looks: Sequence[int], question: Question) -> tuple[float, ...]:
    """What each of these looks may use of the level, for one question.

    >>> from tuner.spec.margin import Question, levels_of
    >>> [round(level, 4) for level in levels_of((30, 60, 90), Question.MARGIN)]
    [0.0002, 0.001, 0.0149]
    """
    n = len(looks)
    shares = LOOK_SHARES if n == len(LOOK_SHARES) else (1 / n,) * n
    return tuple(LEVEL * question.share * share for share in shares)
