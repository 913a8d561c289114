"""What each step of a rewrite cost: the time to convergence is seconds an epoch times epochs, and a
step changes either by a factor.

A step leads from one configuration to the next: a study's default, or what its confirmation tests
(`NAME@best`). Only runs on fresh seeds that were not chosen by what they came to are read. The
factors of the steps multiply to that of the whole.
"""

from __future__ import annotations

import dataclasses
import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from tuner.config import Backend, Value
from tuner.display.text import command_line
from tuner.errors import UsageError
from tuner.record import Recorded
from tuner.search.history import configuration
from tuner.storage.queue.verifications import VerificationRun, is_confirmation
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.compare.fairness import differences, refuse_different_data
from tuner.verdict.compare.studies import read_studies
from tuner.verdict.confirmation import confirmation_of
from tuner.verdict.stats.intervals import CONFIDENCE, t_beyond
from tuner.verdict.verified import as_configurations

# Sums and differences of means over independent runs, with Welch's interval.


LEAST = 3
"""Runs of a mean: of two, one degree of freedom says next to nothing."""
_LARGEST_LOG = 700.0
"""Of a quotient that a float can hold."""


@dataclass(frozen=True, slots=True)
class Mean:
    """Of so many runs. `cut`: a limit ended some of them, so that the true mean is greater."""

    value: float
    variance: float
    """Of the mean itself."""
    freedom: int
    cut: bool


def mean_of(values: Sequence[float], cut: bool = False) -> Mean | None:
    """None for fewer than `LEAST` values."""
    n = len(values)
    if n < LEAST:
        return None
    return Mean(statistics.fmean(values), statistics.variance(values) / n, n - 1, cut)


@dataclass(frozen=True, slots=True)
class Change:
    """A factor, or a difference, with its 95 % interval.

    `clear`: it is there, also where `claims` such are looked at together (Bonferroni). `bound` is
    `at least`, `at most` or `unknown` where a limit cut runs off, else empty: then only the low
    end, the high end, or neither of them holds.
    """

    estimate: float
    low: float
    high: float
    clear: bool
    bound: str

    def __format__(self, form: str) -> str:
        """As an interval is formatted, `1.90 [1.70, 2.10]`, or as a bound, `at least 1.70`."""
        ends = {"at least": self.low, "at most": self.high}
        if self.bound in ends:
            return f"{self.bound} {ends[self.bound]:{form}}"
        return self.bound or f"{self.estimate:{form}} [{self.low:{form}}, {self.high:{form}}]"


def contrast(
    parts: Sequence[tuple[int, Mean | None]], *, factor: bool, claims: int = 1
) -> Change | None:
    """The sum of the means, each times its sign; None where one is not known. With `factor` they
    are means of logarithms, and the change is a factor.

        >>> contrast([(1, mean_of(after)), (-1, mean_of(before))], factor=True)
    """
    known = [(sign, mean) for sign, mean in parts if mean is not None]
    if len(known) < len(parts):
        return None
    middle = math.fsum(sign * mean.value for sign, mean in known)
    variance = math.fsum(mean.variance for _, mean in known)
    # Without any spread there is nothing to be sure of.
    welch = math.fsum(mean.variance**2 / mean.freedom for _, mean in known)
    freedom, share = variance**2 / welch if welch else 1.0, (1 - CONFIDENCE) / 2
    half, wide = (t_beyond(each, freedom) * variance**0.5 for each in (share, share / claims))
    bounds = {"at least" if sign > 0 else "at most" for sign, mean in known if mean.cut}
    bound = "unknown" if len(bounds) > 1 else "".join(bounds)
    above, below = middle - wide > 0, middle + wide < 0
    clear = {"": above or below, "at least": above, "at most": below}.get(bound, False)
    ends = [middle, middle - half, middle + half]
    if factor:
        ends = [math.exp(max(min(end, _LARGEST_LOG), -_LARGEST_LOG)) for end in ends]
    return Change(ends[0], ends[1], ends[2], clear, bound)


BEST, SWAP = "@best", "@swap"
LOOPS = ("captured", "eager", "own")
"""How the steps of a training run; the answer is of the first of these that has the whole."""
PACE, EPOCHS, TOTAL, MQL = FIGURES = ("s_per_epoch", "epochs", "total_time_s", "test_mql")
WHAT = {PACE: "seconds an epoch", EPOCHS: "epochs", TOTAL: "total time"}
"""The factors. The MQL has a difference."""


@dataclass(frozen=True, slots=True)
class Place:
    """A configuration between two steps, with what its runs recorded; no epochs is a miss."""

    name: str
    params: Mapping[str, Value]
    """Empty where it has no runs."""
    runs: Sequence[Recorded]
    to_do: str
    """The command that gives it runs."""

    def of(self, loop: str) -> list[Recorded]:
        """Its runs with figures on that loop; on any where it is empty."""
        return [run for run in self.runs if run.epochs and loop in ("", _loop(run))]

    def means(self, loop: str) -> dict[str, Mean | None]:
        """Of the logarithms, and of the MQL itself. The total is the product of the two others,
        also where a disturbed timing leaves fewer seconds than epochs.
        """
        runs = self.of(loop)
        cut = any(not run.converged for run in runs)
        epochs = [math.log(run.epochs or 1) for run in runs]
        paces = [_pace(run) for run in runs]
        known = [seconds for seconds in paces if seconds is not None]
        pace, total = mean_of(known), None
        if pace is not None:
            # How far each run moves the sum: it varies as these do.
            share = len(runs) / len(known)
            off = [0.0 if each is None else share * (each - pace.value) for each in paces]
            total = mean_of([sum(pair) + pace.value for pair in zip(epochs, off, strict=True)], cut)
        mql = mean_of([run.test_mql for run in runs if run.test_mql is not None])
        return {PACE: pace, EPOCHS: mean_of(epochs, cut), TOTAL: total, MQL: mql}


@dataclass(frozen=True, slots=True)
class Row:
    """A step, what two changes do together beyond each alone, or the whole, on one loop."""

    kind: str
    """`step`, `other order`, `interaction` or `whole`."""
    before: str
    after: str
    loop: str
    backends: tuple[str, ...]
    runs: tuple[int, ...]
    changes: Mapping[str, Change]
    """Of the figures that are known: factors of geometric means; of the MQL a difference."""

    @property
    def label(self) -> str:
        return f"{self.kind}: {self.before} -> {self.after}"

    def moved(self, figure: str) -> float:
        """By how much: of a factor its logarithm; 0 where it is not known."""
        if figure not in self.changes:
            return 0.0
        estimate = self.changes[figure].estimate
        return estimate if figure == MQL else math.log(estimate)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsReport:
    """Everything that `tuner compare --steps` says."""

    task: str
    answer: str
    rows: tuple[Row, ...]
    carried_by: Mapping[str, str | None]
    """By figure: the step that changes it most; None where none is clear."""
    notes: tuple[str, ...]
    fairness: tuple[str, ...]
    missing: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        """The JSON document."""
        return dataclasses.asdict(self)


def steps_report(named: Sequence[str], *, task: str, storage: str) -> StepsReport:
    """The factors of the steps that lead from each of `named` to the next.

    A name is what `tuner compare` takes, several with commas where the same configuration has
    studies on several backends, and `@best` behind it for what its confirmation tests. After three
    names a fourth with `@swap` has the second of two changes alone.

    Raises:
        UsageError: a name that means nothing, places that do not compare, or too few of them.
        StorageError: the database cannot be read.
    """
    swapped = named[-1].endswith(SWAP)
    if len(named) < 2 or (swapped and len(named) != 4):  # noqa: PLR2004
        raise UsageError(f"--steps takes two names at least; three, where a fourth has {SWAP}")
    asked = [name.removesuffix(SWAP) for name in named]
    parts = [name.removesuffix(BEST).split(",") for name in asked]
    studies = [read_studies(each, task=task, storage=storage) for each in parts]
    everything = list({study.name: study for each in studies for study in each}.values())
    refuse_different_data(everything)
    names = _names(asked, studies)
    models = sorted({study.device_model for study in everything if study.device_model})
    if len(models) > 1 or len(set(names)) < len(names):
        why = f"{' and '.join(models)} do not compare" if len(models) > 1 else "one is named twice"
        raise UsageError(f"steps are between different studies on one device model: {why}")
    places = [_place(*each) for each in zip(names, studies, strict=True)]
    chain = places[:-1] if swapped else places
    loops = [loop for loop in LOOPS if sum(len(p.of(loop)) >= LEAST for p in places) > 1]
    rows = [row for loop in loops for row in _rows(loop, chain, places[len(chain) :])]
    missing = [_lacks(p, loop) for loop in loops or [""] for p in places if len(p.of(loop)) < LEAST]
    first = next((row.loop for row in rows if row.kind == "whole"), "".join(loops[:1]))
    steps = [row for row in rows if row.kind == "step" and row.loop == first]
    return StepsReport(
        task=everything[0].definition.task_name,
        answer=_answer(rows, steps),
        rows=tuple(rows),
        carried_by={name: getattr(carried_by(steps, name), "after", None) for name in FIGURES},
        notes=tuple(_notes(places)),
        fairness=tuple(differences(everything)),
        missing=tuple(missing),
    )


# -- what ran --------------------------------------------------------------------------------------


def _names(asked: Sequence[str], studies: Sequence[Sequence[StudySnapshot]]) -> list[str]:
    """The variant of each; its first study's name where variants repeat."""
    pairs = [
        (each[0], BEST * name.endswith(BEST)) for each, name in zip(studies, asked, strict=True)
    ]
    names = [study.variant + end for study, end in pairs]
    return names if len(set(names)) == len(names) else [study.name + end for study, end in pairs]


def _place(name: str, studies: Sequence[StudySnapshot]) -> Place:
    first, found = studies[0], [_runs_of(study, best=name.endswith(BEST)) for study in studies]
    pairs = [(study, run) for study, (mine, _) in zip(studies, found, strict=True) for run in mine]
    if len({(study.variant, configuration(run.params)) for study, run in pairs}) > 1:
        raise UsageError(f"{name}: its studies have different configurations; name one of them")
    recorded = [_figures(run, study) for study, run in pairs]
    words = ["tuner", *found[0][1], "--variant", first.variant, "--study", first.name]
    return Place(name, pairs[0][1].params if pairs else {}, recorded, command_line(words))


def _runs_of(study: StudySnapshot, *, best: bool) -> tuple[Sequence[VerificationRun], list[str]]:
    """On fresh seeds, and the command that makes more.

    Nothing has chosen a default, so all its runs count, also those of confirmations. What is
    recommended was chosen by others: only its confirmation tells.
    """
    there = confirmation_of(study) if best else None
    if best and (there is None or not there.default_stands):
        return there.recommended.runs if there and there.recommended else (), [
            "verify",
            "--confirm",
        ]
    default = study.results.default
    if default is None:
        return (), ["launch", "--trials", "1"]
    wanted = configuration(default.params)
    mine = [run for run in study.runs if configuration(run.params) == wanted]
    verified = as_configurations(study.name, mine, device_model=study.device_model)
    to_do = ["verify", "--choose", "front", "--top", "1", "--seeds", "10"]
    return [run for each in verified for run in each.runs], to_do


def _figures(run: VerificationRun, study: StudySnapshot) -> Recorded:
    """What it recorded; without epochs where it missed. A kept last block has MQLs of its own."""
    recorded = run.result.recorded if run.result else Recorded()
    if run.result is None or run.result.values is None:
        return dataclasses.replace(recorded, epochs=None)
    other = study.definition.keeps_last_block and is_confirmation(run.plan)
    return dataclasses.replace(recorded, test_mql=None) if other else recorded


def _loop(run: Recorded) -> str:
    return "own" if not run.backend else "eager" if run.backend == Backend.EAGER else "captured"


def _pace(run: Recorded) -> float | None:
    """The logarithm of its seconds an epoch; None where something disturbed the timing."""
    seconds = run.s_per_epoch or (run.wall_clock_s or 0.0) / (run.epochs or 1)
    return math.log(seconds) if seconds > 0 and not run.contaminated else None


# -- what it comes to ------------------------------------------------------------------------------


def _rows(loop: str, chain: Sequence[Place], other: Sequence[Place]) -> list[Row]:
    """The steps, those by way of `other`, and the whole, as far as they have runs."""
    first, last = chain[0], chain[-1]
    asked: list[tuple[str, tuple[Place, ...]]] = [("step", pair) for pair in pairwise(chain)]
    for each in other:
        asked += [("other order", (first, each)), ("other order", (each, last))]
        asked.append(("interaction", (first, each, chain[1], last)))
    rows = []
    for kind, places in [*asked, ("whole", (first, last))]:
        signs = (1, -1, -1, 1) if kind == "interaction" else (-1, 1)
        means = [(sign, place.means(loop)) for sign, place in zip(signs, places, strict=True)]
        claims = len(chain) - 1 if kind == "step" else 1
        changes = {}
        for figure in FIGURES:
            parts = [(sign, each[figure]) for sign, each in means]
            if (change := contrast(parts, factor=figure != MQL, claims=claims)) is not None:
                changes[figure] = change
        runs = [place.of(loop) for place in places]
        backends = tuple(dict.fromkeys(run.backend or loop for each in runs for run in each))
        counts, ends = tuple(map(len, runs)), (places[0].name, places[-1].name)
        if changes:
            rows.append(Row(kind, *ends, loop, backends, counts, changes))
    return rows


def _lacks(place: Place, loop: str) -> str:
    on = f"{len(place.of(loop))} of {LEAST} runs on fresh seeds on {loop or 'any'} loop"
    return f"{place.name}: {on}; for more: {place.to_do}"


def carried_by(steps: Sequence[Row], figure: str) -> Row | None:
    """The step with the largest clear change of a figure in the direction of all steps together;
    where none goes there, in the other one. None where none is clear.
    """
    together = math.fsum(row.moved(figure) for row in steps)
    clear = [row for row in steps if figure in row.changes and row.changes[figure].clear]
    along = [row for row in clear if row.moved(figure) * together > 0]
    return max(along or clear, key=lambda row: abs(row.moved(figure)), default=None)


# -- in words --------------------------------------------------------------------------------------


def factor_in_words(change: Change, figure: str) -> str:
    """`1.90 [1.70, 2.10] times the epochs`, `12 [10, 14] % fewer epochs`."""
    if change.bound or change.high >= 1:
        return f"{change:.2f} times the {WHAT[figure]}"
    less, least, most = (100 * (1 - end) for end in (change.estimate, change.high, change.low))
    word = "less" if figure == TOTAL else "fewer"
    return f"{less:.0f} [{least:.0f}, {most:.0f}] % {word} {WHAT[figure]}"


def _answer(rows: Sequence[Row], steps: Sequence[Row]) -> str:
    """Which step carries the whole, what else is clear, and what the whole comes to."""
    if not rows:
        return "Nothing can be said yet: too few runs on fresh seeds."
    carrier, worst = carried_by(steps, TOTAL), carried_by(steps, MQL)
    said = ["No step is shown to change the total time"]
    first = None
    if carrier is not None:
        first = max((PACE, EPOCHS), key=lambda figure: abs(carrier.moved(figure)))
        verb = "carries the cost" if carrier.moved(first) > 0 else "saves most"
        said = [f"{carrier.after} {verb}: {factor_in_words(carrier.changes[first], first)}"]
    for row in steps:
        for figure in (PACE, EPOCHS):
            change = row.changes.get(figure)
            if change is not None and change.clear and (row, figure) != (carrier, first):
                said.append(f"{row.after}: {factor_in_words(change, figure)}")
    if worst is not None:
        said.append(f"{worst.after} carries the MQL: {worst.changes[MQL]:+.4f}")
    beside = {"interaction": "both changes together, beside each alone", "whole": "the whole"}
    for row in rows:
        if row.kind in beside and TOTAL in row.changes:
            by = f" on the {row.loop} loop" if row.loop != rows[0].loop else ""
            said.append(f"{beside[row.kind]}{by}: {factor_in_words(row.changes[TOTAL], TOTAL)}")
    return f"{'; '.join(said)}."


def _notes(places: Sequence[Place]) -> list[str]:
    """What runs are left out of which figures, and what else a step changes."""
    notes = []
    for place in places:
        there, of = place.of(""), f"of {len(place.runs)} runs"
        missed = Counter(f"missed ({run.stopped_by})" for run in place.runs if not run.epochs)
        missed["cut off by a limit: factors are bounds"] = sum(not run.converged for run in there)
        missed["contaminated: without seconds"] = sum(bool(run.contaminated) for run in there)
        notes += [f"{place.name}: {count} {of} {how}" for how, count in missed.items() if count]
    for before, after in pairwise(places):
        other = [name for name, it in before.params.items() if after.params.get(name, it) != it]
        if other and not (before.name + after.name).count(BEST):
            notes.append(f"{after.name} has another {', '.join(other)} by default, too")
    return notes
