"""What a confirmation says: whether what was recommended is as good as the default, on seeds that
nothing had seen.

What it tests was frozen in its plan before its first run, with the margin and the order. So its
runs choose nothing, and stand apart from those of other verifications. Several configurations of a
search are tested one after the other, the surest first, and the first that is not claimed ends it:
so each has the whole level, and all together err no more often than one (Maurer, Hothorn and
Lehmacher, "Multiple comparisons in drug clinical trials and preclinical assays: a-priori ordered
hypotheses", 1995). It looks after a third of its seeds and after two, and what is decided runs no
more; each look has its share of the level (Glimm, Maurer and Bretz, "Hierarchical testing of
multiple endpoints in group-sequential trials", 2010).
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tuner.files.plain import in_json
from tuner.record import Recorded
from tuner.spec.margin import LEVEL, NO_LOSS, Question, levels_of
from tuner.storage.queue.verifications import (
    StoredFrozen,
    StoredPlan,
    VerificationRun,
    is_confirmation,
)
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.stats.intervals import LEAST_RUNS, Interval, finite
from tuner.verdict.stats.noninferiority import NoWorse, misses_more, no_worse, p_apart, paired_ratio
from tuner.verdict.verified import Verified, as_configurations, verified_in

# What was recommended against its default on other data: on the series and the split that decide
# nothing.


TEST, VALIDATION = "test", "validation"


@dataclass(frozen=True, slots=True, kw_only=True)
class Elsewhere:
    """The MQL on one series of one split as a multiple of the default's."""

    series: str
    split: str
    ratio: Interval
    """The geometric mean over shared seeds, with its 95 % interval."""

    def as_dict(self) -> dict[str, Any]:
        return {"series": self.series, "split": self.split, "mql_ratio": self.ratio.as_estimate()}


def elsewhere(a: Verified, b: Verified) -> tuple[Elsewhere, ...]:
    """`a` against `b` on each series of each split but the one whose test MQL decides.

    Empty where no series are recorded; a series of which too few seeds are shared is left out.
    """
    found = []
    for split in (TEST, VALIDATION):
        for series in sorted({name for run in _recorded(a) for name in _scores(run, split)}):
            if split == TEST and _decides(a, series):
                continue
            ratio = paired_ratio(_by_seed(a, series, split), _by_seed(b, series, split))
            if ratio is not None:
                found.append(Elsewhere(series=series, split=split, ratio=ratio))
    return tuple(found)


def _recorded(found: Verified) -> list[Recorded]:
    return [run.result.recorded for run in found.counted if run.result is not None]


def _scores(recorded: Recorded, split: str) -> Mapping[str, float | None]:
    return recorded.series_test_mql if split == TEST else recorded.series_val_mql


def _decides(found: Verified, series: str) -> bool:
    """Whether the test MQL is that of this series, in every run."""
    return all(run.series_test_mql.get(series) == run.test_mql for run in _recorded(found))


def _by_seed(found: Verified, series: str, split: str) -> dict[int, float]:
    """What has a logarithm."""
    scores: dict[int, float] = {}
    for run in found.counted:
        if run.result is None:
            continue
        score = _scores(run.result.recorded, split).get(series)
        if score is not None and score > 0:
            scores[run.seed] = score
    return scores


# When a confirmation looks, and what it finds then.


@dataclass(frozen=True, slots=True)
class Looks:
    """After how many blocks a confirmation looks, and the level that each look has.

    >>> from tuner.verdict.confirmation import Looks
    >>> from tuner.storage.queue.verifications import StoredPlan
    >>> Looks.of(StoredPlan(looks=(30, 60, 90)), 90).blocks
    (30, 60, 90)
    """

    blocks: tuple[int, ...]
    several: bool = True
    """There are several questions, which share the level; not in plans from before looks."""

    @classmethod
    def of(cls, plan: StoredPlan, seeds: int) -> Looks:
        return cls(plan.looks) if plan.looks else cls((seeds,), several=False)

    def reached(self, runs: int, question: Question) -> list[tuple[int, float]]:
        """The looks that so many runs have come to, the first at least, and their levels."""
        levels = levels_of(self.blocks, question) if self.several else (LEVEL,)
        both = list(zip(self.blocks, levels, strict=True))
        return both[: max(1, sum(blocks <= runs for blocks in self.blocks))]

    def is_hopeless(self, p: float, blocks: int) -> bool:
        """Whether what has come to this p by now is not worth more runs: so far it is beyond what
        is asked.
        """
        return blocks < self.blocks[-1] and p > HALF


HALF = 0.5


@dataclass(frozen=True, slots=True)
class Apart:
    """A configuration against another study's default, on seeds of their own."""

    p: float
    claimed: bool
    blocks: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Test:
    """A configuration against a default, on the same untouched seeds."""

    no_worse: NoWorse | None
    """None while they share too few seeds, or where their figures have no ratio."""
    ratio: Interval | None
    """Of their times."""
    runs: tuple[int, int]
    missed: tuple[int, int]
    """Runs of either that do not count. Those of a default that its limit cuts off do, where that
    was so before."""
    shared: int
    """Seeds on which both have a figure."""
    blocks: int
    """After how many it was looked."""

    @property
    def p(self) -> float:
        return 1.0 if self.no_worse is None else self.no_worse.p

    @property
    def claimed(self) -> bool:
        """It is no worse by more than the margin; not where it surely misses more often."""
        one, other = zip(self.missed, self.runs, strict=True)
        return self.no_worse is not None and self.no_worse.claimed and not misses_more(one, other)

    def as_dict(self) -> dict[str, Any]:
        found = self.no_worse
        return {
            "no_worse": self.claimed,
            "mql_ratio": found and found.ratio,
            "mql_ratio_below": found and finite(found.bound),
            **in_json(found, "p", "level", "margin", "pairs"),
            "missed": list(self.missed),
            "time_ratio": self.ratio and self.ratio.as_estimate(),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Confirmation:
    """The last confirmation of a study."""

    study: str
    session: str
    seeds: int
    """Of each configuration at most, as planned."""
    looks: Looks
    frozen: StoredFrozen
    reference: str | None
    """The group whose default's quality the offers are for."""
    default: Verified | None
    steps: tuple[Verified, ...]
    """What is tested, in this order; empty where the default stands, or nothing is recommended."""
    offers: tuple[Verified, ...]
    """The same for the quality of the reference's default."""
    last_block: bool = False
    """Its MQLs are of the last block of the test split, which nothing else opens."""
    tests: tuple[Test, ...] = ()
    """Of the steps against the study's own default, up to the first that is not claimed; empty
    where there is nothing to test, or not yet."""
    no_loss_tests: tuple[Test, ...] = ()
    """The same with the margin of what is at no loss; empty where the study's own is no larger."""

    @property
    def complete(self) -> bool:
        """Every planned run is finished, up to a look."""
        known = {each.trial_number: each for each in self.configurations}
        return all(n in known and self._is_whole(known[n]) for n in self.frozen.trials())

    def _is_whole(self, each: Verified) -> bool:
        n = len(each.runs)
        return n >= self.seeds or (n in self.looks.blocks and n == each.planned)

    @property
    def ran(self) -> int:
        """The most seeds that any of its configurations ran on."""
        return max((len(each.runs) for each in self.configurations), default=0)

    @property
    def default_stands(self) -> bool:
        return self.frozen.recommended is None and self.frozen.why_none is None

    @property
    def default_cut_off(self) -> int:
        """How many runs of the default count although the limit of epochs cut them off."""
        return 0 if self.default is None else self.default.cut_off

    @property
    def configurations(self) -> tuple[Verified, ...]:
        """Each once, the default first."""
        asked = (self.default, *self.steps, *self.offers)
        return tuple({each.trial_number: each for each in asked if each}.values())

    @property
    def claimed(self) -> int:
        """How many of the steps are shown to be as good."""
        return sum(test.claimed for test in self.tests)

    @property
    def recommended(self) -> Verified | None:
        """The last step that is shown to be as good, or else the first one."""
        return self.steps[self._answer] if self.steps else None

    @property
    def trial(self) -> int | None:
        """The number of that one, whether it ran or not."""
        steps = self.frozen.steps()
        return steps[self._answer] if steps else None

    @property
    def test(self) -> Test | None:
        """What is recommended against the study's own default; None where there is nothing to
        test, or not yet.
        """
        return self.tests[self._answer] if self.tests else None

    @property
    def holds(self) -> bool:
        """What is recommended is shown to be as good as the study's own default."""
        return self.test is not None and self.test.claimed

    @property
    def at_no_loss(self) -> int | None:
        """The number of the last step that is shown to be at no loss."""
        claimed = sum(test.claimed for test in self.no_loss_tests)
        return self.frozen.steps()[claimed - 1] if claimed else None

    @property
    def _answer(self) -> int:
        """The place of the step that answers."""
        return max(self.claimed - 1, 0)

    @property
    def elsewhere(self) -> tuple[Elsewhere, ...]:
        """The same pair on other series and splits, which decide nothing; empty while there is no
        test.
        """
        if self.recommended is None or self.default is None or not self.complete:
            return ()
        return elsewhere(self.recommended, self.default)

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        of = {each.trial_number: each for each in self.configurations}
        steps = itertools.zip_longest(self.frozen.steps(), self.tests)
        return {
            **in_json(self, "study", "seeds", "ran", "complete", "last_block", "at_no_loss"),
            **in_json(self.frozen, "attempt", "margin", "chance"),
            "default": _figures(self.default, self.frozen.default),
            "recommended": _figures(self.recommended, self.trial),
            "steps": [{"trial": n, "test": test and test.as_dict()} for n, test in steps],
            "offers": [_figures(of.get(n), n) for n in self.frozen.offers or ()],
            **in_json(self, "default_stands", "reference", "test", "elsewhere"),
            "nothing_because": self.frozen.why_none,
        }


def confirmation_of(study: StudySnapshot) -> Confirmation | None:
    """The last confirmation of a study; None where there is none."""
    of_it = [run for run in study.runs if study.name in confirmed_studies(run)]
    if not of_it:
        return None
    session = of_it[-1].session
    return confirmation_in(study, [run for run in of_it if run.session == session])


def known_runs_of(study: StudySnapshot) -> int:
    """How much there is to choose by: trials that ended, and runs of other verifications."""
    runs = [run for run in study.runs if not is_confirmation(run.plan)]
    return study.finished + sum(run.state == "finished" for run in runs)


def standing_trial(study: StudySnapshot, margin: float) -> int | None:
    """The trial that the study's last confirmation showed to be as good within this margin; None
    where it showed none, or something has run since by which one may choose anew.
    """
    there = confirmation_of(study)
    if there is None or not there.claimed or there.frozen.margin != margin:
        return None
    return there.trial if there.frozen.known == known_runs_of(study) else None


def confirmed_studies(run: VerificationRun) -> frozenset[str]:
    """The studies whose recommendations the plan of a run confirms; none of other plans."""
    return frozenset(run.plan.get("confirms", ())) if is_confirmation(run.plan) else frozenset()


def runs_to_learn_from(study: StudySnapshot) -> tuple[VerificationRun, ...]:
    """The verification runs by which something may be chosen: all but those of confirmations.

    Once a confirmation has failed, its runs say what was not known when it was planned, and count,
    too. While it stands, what it confirmed has to stay what it is. Where a study keeps its last
    block for confirmations, their runs never count: they are of windows that no choice may see.
    """
    sessions: dict[str, list[VerificationRun]] = {}
    for run in study.runs if not study.definition.keeps_last_block else ():
        if study.name in confirmed_studies(run):
            sessions.setdefault(run.session, []).append(run)
    failed = set()
    for session, mine in sessions.items():
        test = confirmation_in(study, mine).test
        if test is not None and not test.claimed:
            failed.add(session)
    return tuple(r for r in study.runs if not is_confirmation(r.plan) or r.session in failed)


def tested(a: Verified, b: Verified, *, margin: float, looks: Looks, question: Question) -> Test:
    """One configuration of a confirmation against a default of it, of whichever study: by the first
    look that claims, else by the last that it came to.
    """
    for blocks, level in looks.reached(len(a.runs), question):
        one, other = a.until(blocks).sample(), b.until(blocks).sample()
        found = Test(
            no_worse=no_worse(one.mql, other.mql, margin=margin, level=level),
            ratio=paired_ratio(one.seconds, other.seconds),
            runs=(one.runs, other.runs),
            missed=(one.misses, other.misses),
            shared=len(one.mql.keys() & other.mql.keys()),
            blocks=blocks,
        )
        if found.claimed:
            break
    return found


def tested_apart(
    a: Verified, defaults: Sequence[Verified], *, margin: float, there: Confirmation
) -> Apart:
    """The same against all runs of another study's default: those of this confirmation that were
    there at the look, and all others.
    """
    for blocks, level in there.looks.reached(len(a.runs), Question.ANOTHERS):
        mine = a.until(blocks)
        theirs = [each.until(blocks, there.session) for each in defaults]
        p = p_apart(mqls_of([mine]), mqls_of(theirs), margin=margin)
        of_default = sum(each.missed for each in theirs), sum(len(each.runs) for each in theirs)
        more = misses_more((mine.missed, len(mine.runs)), of_default)
        found = Apart(p, p < level and not more, blocks)
        if found.claimed:
            break
    return found


def mqls_of(found: Sequence[Verified]) -> list[float]:
    """Of all runs that count."""
    return [mql for each in found for mql in each.sample().mql.values()]


def default_runs(members: Sequence[StudySnapshot]) -> tuple[list[Verified], bool]:
    """Runs of the default over all searches of a group: of confirmations, else of other
    verifications; and whether it was the former.
    """
    confirmed: list[Verified] = []
    others: list[Verified] = []
    for each in members:
        if each.results.default is None:
            continue
        numbers = each.results.default.numbers
        of_confirmations = [run for run in each.runs if is_confirmation(run.plan)]
        found = as_configurations(each.name, of_confirmations, device_model=each.device_model)
        confirmed += [one for one in found if one.trial_number in numbers]
        others += [one for number, one in verified_in(each).items() if number in numbers]
    # What converges in one search is no default that is cut off in another.
    if not all(one.to_its_limit for one in confirmed):
        confirmed = [dataclasses.replace(one, to_its_limit=False) for one in confirmed]
    confirmed = each_training_once(confirmed)
    enough = len(mqls_of(confirmed)) >= LEAST_RUNS
    return (confirmed, True) if enough else (others, False)


def each_training_once(found: Sequence[Verified]) -> list[Verified]:
    """Searches share the runs of their default: a seed is one training, whoever shows it."""
    seen: set[int] = set()
    kept = []
    for each in found:
        runs = tuple(run for run in each.runs if run.seed not in seen)
        seen.update(run.seed for run in runs)
        if runs:
            kept.append(dataclasses.replace(each, runs=runs))
    return kept


def confirmation_in(study: StudySnapshot, runs: Sequence[VerificationRun]) -> Confirmation:
    """That of these runs of a study, which are one session's and confirm it."""
    plan = StoredPlan.model_validate(runs[0].plan)
    frozen, seeds = plan.confirms[study.name], int(runs[0].plan["seeds"])
    there = as_configurations(study.name, runs, device_model=study.device_model)
    found = {each.trial_number: each for each in there}

    def of(number: int | None) -> Verified | None:
        return None if number is None else found.get(number)

    def all_of(numbers: Sequence[int]) -> tuple[Verified, ...]:
        return tuple(found[number] for number in numbers if number in found)

    confirmation = Confirmation(
        study=study.name,
        session=runs[0].session,
        seeds=seeds,
        looks=Looks.of(plan, seeds),
        frozen=frozen,
        reference=plan.reference,
        default=of(frozen.default),
        steps=all_of(frozen.steps()),
        offers=all_of(frozen.offered()),
        last_block=study.definition.keeps_last_block,
    )
    if confirmation.default is None or not confirmation.complete:
        return confirmation
    two_answers = bool(plan.looks) and frozen.margin > NO_LOSS
    return dataclasses.replace(
        confirmation,
        tests=_chain(confirmation, frozen.margin, Question.MARGIN),
        no_loss_tests=_chain(confirmation, NO_LOSS, Question.NO_LOSS) if two_answers else (),
    )


def _chain(there: Confirmation, margin: float, question: Question) -> tuple[Test, ...]:
    """The steps one after the other, up to the first that is not claimed."""
    assert there.default is not None, "it is what the steps are held against"
    tests: list[Test] = []
    for step in there.steps:
        test = tested(step, there.default, margin=margin, looks=there.looks, question=question)
        tests.append(test)
        if not tests[-1].claimed:
            break
    return tuple(tests)


def _figures(found: Verified | None, trial: int | None) -> dict[str, Any] | None:
    return None if trial is None else {"trial": trial, "verified": found and found.as_dict()}
