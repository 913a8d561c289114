"""Why a configuration is the one, in a plain sentence that every written form carries."""

from __future__ import annotations

from tuner.spec.margin import in_percent
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.front_by_values import Values
from tuner.verdict.runs import runs_of
from tuner.verdict.same_quality import Answer, in_words, percent

_POINTS = {"mql": "the lowest MQL", "time": "the least time", "knee": "the knee"}
_FRONTS = {
    Values.SINGLE: "the front of single runs, each with the luck of its seed",
    Values.EXPECTED: "the front of what all runs of the study together expect",
    Values.VERIFIED: "the front of medians over fresh seeds, of what was verified alone",
}


def because_of_front(pick: str, values: Values, *, noted: bool) -> str:
    """Of a point of a front."""
    front = "the front that the last verification expected" if noted else _FRONTS[values]
    return f"Chosen: {_POINTS[pick]} of {front}."


def instead_of_expected(study: StudySnapshot, least: int) -> str:
    """Why nothing can be expected of a study, without a full stop."""
    there = len({run.trial for run in runs_of(study)})
    return (
        f"expected values take {least} configurations that converged, and study {study.name!r} has "
        f"{there}"
    )


def because_of_answer(answer: Answer, own: Answer | None = None) -> str:
    """Of what is recommended, how sure that is, and beside what; of both where another study's
    default was asked for.
    """
    if own is None:
        return _sentence(answer)
    if own.default_stands:
        return f"{_sentence(answer)} For the quality of its own default, that default stands."
    chance = percent(own.chosen.chance)
    return (
        f"{_sentence(answer)} For the quality of its own default: {in_words(own.chosen)}, with a "
        f"chance of {chance}."
    )


def _sentence(answer: Answer) -> str:
    asked = _asked(answer)
    sure = f"with a chance of {percent(answer.sure_enough)} or more"
    default = "" if answer.default is None else f" The default is {in_words(answer.default)}."
    if answer.against is None and answer.default_stands:
        said = f"The default stands: {in_words(answer.chosen)}. Nothing faster has {asked} {sure}"
        if answer.nearest is None:
            return f"{said}, and nothing that may be chosen is expected to be faster at all."
        chance = percent(answer.nearest.chance)
        return f"{said}; the nearest is {in_words(answer.nearest)}, with {chance}."
    chance = percent(answer.chosen.chance)
    what = "the default, which is the fastest" if answer.default_stands else "the fastest"
    return (
        f"Recommended: {what} that has {asked} {sure}; its chance is {chance}. "
        f"{_upper(in_words(answer.chosen))}.{'' if answer.default_stands else default}"
    )


def _asked(answer: Answer) -> str:
    """`an MQL at most 1 % above the default's`."""
    margin = in_percent(answer.margin).replace("%", " %")
    if answer.against is None:
        return f"an MQL at most {margin} above the default's"
    level = answer.against
    return f"an MQL at most {margin} above {level.mql:.4f}, the default's of {level.study}"


def _upper(text: str) -> str:
    return text[:1].upper() + text[1:]
