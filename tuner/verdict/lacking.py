"""Verified configurations that have no figures although every one of their runs is over: what is
missing, and which command adds it. Without this the runs look as if nobody had made them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.config import Choice
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.known_runs import candidates_of
from tuner.verdict.picks import choosing
from tuner.verdict.stats.intervals import LEAST_RUNS
from tuner.verdict.verified import Verified, verified_in

_ELSE = "'tuner verify' with a larger --top runs others"
"""Where runs of all of them missed."""
_NAMED = 6
"""So many configurations are named one by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lacking:
    """Configurations of a study of which too few timings count, and how they get more."""

    configurations: tuple[Verified, ...]
    choice: Choice
    """What `tuner verify` has to choose, so that it plans runs of the same trials."""
    seeds: int
    """How many it has to be told, so that enough timings may count; those there are among them."""

    @property
    def remedy(self) -> str:
        """What adds the timings, for the middle of a sentence."""
        return (
            f"the same 'tuner verify' with --choose {self.choice} --seeds {self.seeds} adds runs, "
            "whose timings count where nothing else uses the device meanwhile"
        )

    @property
    def sentence(self) -> str:
        """Both, without a full stop."""
        return (
            f"a median takes {LEAST_RUNS} timings that count, but {in_words(self.configurations)}: "
            f"{self.remedy}"
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "trials": [each.trial_number for each in self.configurations],
            "least_runs": LEAST_RUNS,
            "choose": self.choice.value,
            "seeds": self.seeds,
            "sentence": self.sentence,
        }


def lacking_of(study: StudySnapshot) -> Lacking | None:
    """The configurations whose runs on fresh seeds are over without giving a time or an MQL; None
    where there are none. Those of which every run missed are not among them: more seeds would
    hardly help.
    """
    return _lacking(study, verified_in(study).values())


def nothing_verified(study: StudySnapshot) -> str:
    """Why no configuration that may be chosen has figures of fresh seeds, and what to do; without a
    full stop.
    """
    may_be_chosen, verified = candidates_of(study), list(verified_in(study).values())
    mine = [each for each in verified if each.trial_number in may_be_chosen]
    none = f"no configuration of study {study.name!r} that may be chosen"
    if not verified:
        return f"{none} ran on fresh seeds yet; 'tuner verify' runs them"
    if not mine:
        return f"{none} ran on fresh seeds yet: of others, {in_words(verified)}; {_ELSE}"
    lacks = (
        f"{none} has times of fresh seeds yet: a median takes {LEAST_RUNS} that count, but "
        f"{in_words(mine)}"
    )
    left = sum(run.state in ("waiting", "running") for run in choosing(study.runs))
    if left:
        runs = "run is" if left == 1 else "runs are"
        return f"{lacks}; {left} {runs} still to be made, which the same 'tuner verify' does"
    found = _lacking(study, mine)
    return f"{lacks}; {found.remedy if found else _ELSE}"


def _lacking(study: StudySnapshot, among: Iterable[Verified]) -> Lacking | None:
    found = tuple(
        each
        for each in among
        if each.without_figures and each.counted and len(each.runs) == each.planned
    )
    if not found:
        return None
    return Lacking(
        configurations=found, choice=_choice(study), seeds=_seeds_to_ask_for(study, found)
    )


def in_words(configurations: Sequence[Verified]) -> str:
    """How many timings count: `trial 0 has 3 of 5 (2 contaminated), trial 9 has ...`."""
    each_one = [f"trial {each.trial_number} has {each.timings}" for each in configurations]
    left_out = len(each_one) - _NAMED
    more = [f"and so on, {left_out} more"] if left_out > 0 else []
    return ", ".join([*each_one[:_NAMED], *more])


def _choice(study: StudySnapshot) -> Choice:
    """As the last plan chose. After its rounds 'recommended' plans nothing more, so the front."""
    last = choosing(study.runs)[-1].plan.get("choice")
    return Choice.EXPECTED if last == Choice.EXPECTED else Choice.FRONT


def _seeds_to_ask_for(study: StudySnapshot, lacking: Sequence[Verified]) -> int:
    """A plan goes on with the seeds that are there, in their order, so as many as there are, and
    some more. Of a configuration that had no run on some of them, these come first.
    """
    there = list(dict.fromkeys(run.seed for run in choosing(study.runs)))
    default = study.results.default
    planned = {*study.results.on_front, *(default.numbers if default else ())}
    mine = [each for each in lacking if each.trial_number in planned] or lacking
    return max(
        _seeds_for(each, there, {r.seed for r in study.runs if r.trial_number == each.trial_number})
        for each in mine
    )


def _seeds_for(each: Verified, there: Sequence[int], had: Collection[int]) -> int:
    need = LEAST_RUNS - len(each.clean)
    new = [place for place, seed in enumerate(there) if seed not in had]
    return new[need - 1] + 1 if len(new) >= need else len(there) + need - len(new)
