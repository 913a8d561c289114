"""Why a configuration is the one, and what its confirmation says, in plain sentences that all that
shows it carries.
"""

from __future__ import annotations

from collections.abc import Iterable

from tuner.config import MqlSplit, Values
from tuner.settings import in_percent
from tuner.spec.definition import StudyDefinition
from tuner.spec.margin import NO_LOSS
from tuner.spec.pareto import Point
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.confirmation import TEST, Confirmation, Test, confirmation_of
from tuner.verdict.confirmation_plan import LEAST_CHANCE
from tuner.verdict.recommendation import in_words, limit_in_words, percent, too_few_runs
from tuner.verdict.runs_model import Estimate
from tuner.verdict.same_quality import Answer
from tuner.verdict.stats.intervals import LEAST_RUNS

# What a confirmation says.


CHOSEN_ON_TEST = (
    "The search chose by the MQL of the test split, which is the one reported here: fresh seeds "
    "take away the luck of a seed, not a fit to this split"
)
"""Of a study that was searched on test MQL, which is the default."""

LAST_BLOCK_KEPT = (
    "The test MQLs of trials and verifications are of all blocks of the test split but the last; "
    "those of confirmations, and what is claimed by them, are of the last block alone"
)
"""Of a study that keeps that block."""


def about_test_split(definitions: Iterable[StudyDefinition]) -> list[str]:
    """What to know of the test MQLs of these studies, each once."""
    found = []
    for each in definitions:
        if each.mql_split == MqlSplit.TEST:
            found.append(CHOSEN_ON_TEST)
        elif each.keeps_last_block:
            found.append(LAST_BLOCK_KEPT)
    return list(dict.fromkeys(found))


def confirmed_lines(study: StudySnapshot) -> list[str]:
    """What is to be said of a study's confirmation, a sentence each; empty where there is none."""
    there = confirmation_of(study)
    if there is None:
        return []
    return [confirmed_sentence(there, name=study.name)]


def confirmed_sentence(there: Confirmation, *, name: str) -> str:
    """Whether what is recommended is confirmed, without a full stop."""
    trial = there.trial
    if not there.complete:
        done = sum(len(each.runs) for each in there.configurations)
        planned = sum(each.planned for each in there.configurations)
        return (
            f"{name}: its confirmation is under way, {done} of {planned} runs are finished; tuner "
            "verify --confirm goes on"
        )
    if there.default_stands:
        said = f"{name}: {_the_default(there, more=True)} stands"
        return f"{said}; nothing faster was surely enough as good"
    test = there.test
    assert test is not None, "it is complete, and something is recommended"
    margin = in_percent(there.frozen.margin).replace("%", " %")
    asked = (
        f"no worse than {_the_default(there, more=True)} by more than {margin}"
        if there.frozen.margin
        else f"no worse than {_the_default(there)}"
    )
    on = f"on {test.blocks} untouched seeds"
    if there.last_block:
        on += " and on the last block of the test split, which the search had not seen"
    if test.claimed:
        said = f"{name}: trial {trial} is {asked}{_mql(test)}{_time(there, test)}, {on}"
        said += _missed(there, test)
    else:
        said = (
            f"{name}: that trial {trial} is {asked} is not shown {on}{_mql(test)}"
            f"{_missed(there, test)}; so nothing is said of its time"
        )
    said += _bolder(there) + _at_no_loss(there) + _elsewhere(there)
    if there.frozen.attempt > 1:
        said += (
            f". This is confirmation {there.frozen.attempt} of this study: each has a chance of "
            "5 % to be wrong"
        )
        if there.last_block:
            said += ", and all of them open the same block"
    return said


def _bolder(there: Confirmation) -> str:
    """What became of the steps beside the one that the sentence is about."""
    steps, claimed = there.frozen.steps(), there.claimed
    said = ""
    if claimed > 1:
        safer = " and ".join(f"trial {number}" for number in steps[: claimed - 1])
        said += f"; tested after {safer}, shown before it"
    if 0 < claimed < len(steps):
        said += f"; trial {steps[claimed]}, tested after it, is not shown to be"
    return said


def _at_no_loss(there: Confirmation) -> str:
    """The stricter answer, to be added to the sentence."""
    if not there.holds or not there.no_loss_tests:
        return ""
    least = in_percent(NO_LOSS).replace("%", " %")
    if there.at_no_loss is None:
        return f"; none is shown to be at no loss (surely less than {least} worse)"
    which = "it is" if there.at_no_loss == there.trial else f"trial {there.at_no_loss} is"
    return f"; {which} at no loss, too (surely less than {least} worse)"


def _elsewhere(there: Confirmation) -> str:
    """What other series and splits say, to be added to the sentence."""
    figures = []
    for each in there.elsewhere:
        split = "last block" if there.last_block and each.split == TEST else each.split
        figures.append(f"{each.series}, {split}: {each.ratio:.3f}")
    if not figures:
        return ""
    return (
        ". On other data, which decides nothing, its MQL as a multiple of the default's is, on "
        + "; on ".join(figures)
    )


def _mql(test: Test) -> str:
    found = test.no_worse
    if found is None:
        few = test.shared < LEAST_RUNS
        return ": too few runs converged" if few else ": their MQLs have no ratio"
    sure = f"{100 * (1 - found.level):.4g} % confidence"
    return f" (MQL {found.ratio:.4f} of the default's, below {found.bound:.4f} with {sure})"


def _the_default(there: Confirmation, *, more: bool = False) -> str:
    """With what the limit of epochs cut off of these runs; `more`: the sentence goes on."""
    cut, runs = _cut_of_counted(there)
    if not cut:
        return "the default"
    some = "" if cut == runs else f" in {cut} of the {runs} runs that count"
    return f"the default, which its limit of epochs cut off{some}{',' if more else ''}"


def _cut_of_counted(there: Confirmation) -> tuple[int, int]:
    """How many runs of the default the limit cut off, of how many that count."""
    default = there.default
    return (0, 0) if default is None else (default.cut_off, len(default.counted))


def _time(there: Confirmation, test: Test) -> str:
    found = test.ratio
    if found is None:
        return ", and too few timings were undisturbed"
    cut, runs = _cut_of_counted(there)
    until = (" until then" if cut == runs else " until it converged or was cut off") if cut else ""
    return f" and takes {found:.2f} of its time{until}"


def _missed(there: Confirmation, test: Test) -> str:
    if not test.missed[0]:
        return ""
    of_default = "" if there.default_cut_off else f", and {test.missed[1]} of the default's"
    return f"; {test.missed[0]} of its runs did not converge{of_default}"


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
