"""Why a configuration is the one, in plain sentences that everything that shows it carries."""

from __future__ import annotations

from tuner.settings import in_percent
from tuner.spec.pareto import Point
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.confirmation_plan import LEAST_CHANCE
from tuner.verdict.known_runs import converged_configurations, runs_of
from tuner.verdict.no_answer import in_words, limit_in_words, percent, too_few_runs
from tuner.verdict.runs_model import LEAST_CONFIGURATIONS, Estimate, Values
from tuner.verdict.same_quality import Answer

_POINTS = {"mql": "the lowest MQL", "time": "the least time", "knee": "the knee"}
_FRONTS = {
    Values.SINGLE: "the front of single runs, each with the luck of its seed",
    Values.EXPECTED: "the front of what all runs of the study together expect",
    Values.VERIFIED: "the front of medians over fresh seeds, of what was verified alone",
}
_MAY_BE_TESTED = (
    " A confirmation tests what may be as good, on fresh seeds: tuner verify --confirm."
)
_MEDIANS = "the front of the search's runs: medians where a configuration has several"


def because_of_front(
    pick: str,
    values: Values,
    *,
    expected: Point | None = None,
    noted: bool = False,
    repeated: bool = False,
) -> str:
    """Of a point of a front; `expected` of it are so many seconds and such an MQL. `noted`: a
    verification chose it. `repeated`: the search ran some configuration several times.
    """
    front = _MEDIANS if repeated and values is Values.SINGLE else _FRONTS[values]
    front = "the front that the last verification expected" if noted else front
    said = f"Chosen: {_POINTS[pick]} of {front}."
    if expected is not None:
        said += f" Expected of it: {expected[0]:.3f} s, MQL {expected[1]:.4f}."
    return said


def nothing_expected(study: StudySnapshot) -> str:
    """Why nothing can be expected of a study, without a full stop."""
    there = converged_configurations(study, runs_of(study))
    return (
        f"expected values take {LEAST_CONFIGURATIONS} configurations that converged, and study "
        f"{study.name!r} has {there}"
    )


def because_of_answer(answer: Answer, own: Answer | None = None) -> str:
    """Of what is recommended, how sure that is, and beside what.

    `own` is the answer for the study's own default, where another's was asked for.
    """
    said = _stands(answer) if answer.default_stands and answer.against is None else _found(answer)
    return said if own is None else f"{said} For the quality of its own default: {_briefly(own)}."


def _found(answer: Answer) -> str:
    if answer.confirmed:
        return (
            f"Recommended: the boldest that the last confirmation showed on untouched seeds to "
            f"have an MQL {_asked(answer)}; by the runs before it the chance was "
            f"{percent(answer.chosen.chance)}.{_expected_of(answer)}"
        )
    if answer.default_stands:
        what = "the default, which is the fastest"
    elif answer.against is None:
        what = "what is expected to save most time once it is confirmed, of all"
    else:
        what = "the fastest"
    return (
        f"Recommended: {what} whose MQL is {_asked(answer)}, as far as all runs of the study can "
        f"say: the chance is {percent(answer.chosen.chance)}.{_expected_of(answer)}"
    )


def _expected_of(answer: Answer) -> str:
    said = f" Expected of it: {_figures(answer.chosen)}"
    if answer.default is not None and not answer.default_stands:
        said += f"; of its default, trial {answer.default.trial}{limit_in_words(answer.cut_at)}: "
        said += _figures(answer.default)
    return f"{said}."


def _stands(answer: Answer) -> str:
    said = (
        f"The default stands: of nothing faster is it sure enough that its MQL is "
        f"{_asked(answer)} (it takes a chance of {percent(answer.sure_enough)}). Expected of the "
        f"default{limit_in_words(answer.cut_at)}: {_figures(answer.chosen)}"
    )
    if answer.default_missed:
        said += ", where it converges: of its runs not all did"
    if answer.nearest is None:
        return f"{said}; nothing that may be chosen is expected to be faster."
    near = answer.nearest
    said += f"; the nearest is {in_words(near)}, with a chance of {percent(near.chance)}"
    said += f"{too_few_runs(near, answer.sure_enough, answer.least_runs)}."
    return f"{said}{_MAY_BE_TESTED}" if near.chance >= LEAST_CHANCE else said


def _briefly(own: Answer) -> str:
    if own.default_stands:
        return "that default itself"
    return f"{in_words(own.chosen)}, with a chance of {percent(own.chosen.chance)}"


def _asked(answer: Answer) -> str:
    """`at most 1 % above the default's`."""
    margin = in_percent(answer.margin).replace("%", " %")
    least = f"at most {margin} above" if answer.margin else "no higher than"
    if answer.against is None:
        return f"{least} the default's"
    against = answer.against
    left = limit_in_words(against.cut_at)
    return f"{least} that of the default of {against.study}{left}, {against.mql:.4f}"


def _figures(estimate: Estimate) -> str:
    return f"{estimate.seconds:.3f} s, MQL {estimate.mql:.4f}"
