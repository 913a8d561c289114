"""What a confirmation says, in plain sentences that everything that shows it carries."""

from __future__ import annotations

from collections.abc import Iterable

from tuner.config import MqlSplit
from tuner.settings import in_percent
from tuner.spec.definition import StudyDefinition
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.confirmation import TEST, Confirmation, Test, confirmation_of
from tuner.verdict.stats.intervals import LEAST_RUNS

CHOSEN_ON_TEST = (
    "The search chose by the MQL of the test split, which is the one reported here: fresh seeds "
    "take away the luck of a seed, not a fit to this split"
)
"""Of a study that was searched on test MQL, which is the default."""

LAST_BLOCK_KEPT = (
    "The test MQLs of trials, verifications and ablations are of all blocks of the test split but "
    "the last; those of confirmations, and what is claimed by them, are of the last block alone"
)
"""Of a study that keeps that block."""

ABOUT_TEST_SPLIT = (CHOSEN_ON_TEST, LAST_BLOCK_KEPT)


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
        known = {each.trial_number: len(each.runs) for each in there.configurations}
        done = sum(min(there.seeds, known.get(each, 0)) for each in there.frozen.trials())
        planned = there.seeds * len(there.frozen.trials())
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
    on = f"on {there.seeds} untouched seeds"
    if there.last_block:
        on += " and on the last block of the test split, which the search had not seen"
    if test.claimed:
        said = f"{name}: trial {trial} is {asked}{_mql(test)}{_time(there, test)}, {on}"
    else:
        said = (
            f"{name}: that trial {trial} is {asked} is not shown {on}{_mql(test)}"
            f"{_missed(there, test)}; so nothing is said of its time"
        )
    said += _bolder(there) + _elsewhere(there)
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
    sure = f"{100 * (1 - found.level):g} % confidence"
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
    if test.missed[0] <= test.missed[1]:
        return ""
    if there.default_cut_off:
        return f"; {test.missed[0]} of its runs did not converge, as what is recommended has to"
    return f"; {test.missed[0]} of its runs did not converge, and {test.missed[1]} of the default's"
