"""In words, what becomes of a verdict between variants under another stopping rule."""

from __future__ import annotations

import math

from tuner.verdict.compare.between import Standing
from tuner.verdict.stats.searches import Between


def direction(found: Between) -> int | None:
    """-1 where `a` takes less, 1 where it takes more, 0 for the same; None where nobody reaches the
    level.
    """
    if found.ratio is None:
        return None
    return (found.ratio > 1) - (found.ratio < 1)


def rule_sentence(
    head: str, standing: Standing, recorded: Between, replayed: Between, why: str
) -> str:
    """Both figures, and whether the verdict stands; `why` says why that cannot be told, where it
    cannot. Without a full stop.
    """
    a, b = standing.a, standing.b
    at = f"{head}: at a test MQL of {standing.level.mql:.4f}"
    end = f"it cannot be told whether it stands ({why})" if why else _end(a, b, recorded, replayed)
    if _usual(recorded) and _usual(replayed):
        return (
            f"{at} {a} takes {replayed.ratio:.2f} of the time of {b}, as recorded "
            f"{recorded.ratio:.2f}: {end}"
        )
    now, before = _said(a, b, replayed), _said(a, b, recorded)
    return f"{at} {now}, as recorded {'too' if now == before else before}: {end}"


def unknown_sentence(words: str, standing: Standing, why: str) -> str:
    """Where there are no figures."""
    return (
        f"{words} it cannot be told whether the verdict between {standing.a} and {standing.b} "
        f"stands ({why})"
    )


def _end(a: str, b: str, recorded: Between, replayed: Between) -> str:
    before, after = direction(recorded), direction(replayed)
    if before == after and recorded.claimed == replayed.claimed:
        return "it stands" if recorded.claimed else "it stands, with no claim either way"
    changes = []
    if before != after:
        changes.append(f"{_who(a, b, after)} then, as recorded {_who(a, b, before)}")
    if recorded.claimed and not replayed.claimed:
        changes.append("the searches do not show a difference any more")
    elif replayed.claimed and not recorded.claimed:
        changes.append("the searches show a difference that they do not as recorded")
    return f"it does not stand: {', and '.join(changes)}"


def _who(a: str, b: str, towards: int | None) -> str:
    if towards is None:
        return "no search reaches it"
    if towards == 0:
        return "both take the same time"
    return f"{a if towards < 0 else b} is faster"


def _usual(found: Between) -> bool:
    return found.ratio is not None and 0 < found.ratio < math.inf


def _said(a: str, b: str, found: Between) -> str:
    if _usual(found):
        return f"{a} takes {found.ratio:.2f} of the time of {b}"
    (one, other), (all_one, all_other) = found.reached, found.searches
    if not one and not other:
        return f"no search of {a} or {b} is expected to reach it"
    return f"{one} of {all_one} searches of {a} reach it and {other} of {all_other} of {b}"
