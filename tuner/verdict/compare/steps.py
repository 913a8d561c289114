"""What each step of a rewrite cost: the time to convergence is seconds an epoch times epochs, and a
step changes either by a factor.

A step leads from one configuration to the next: a study's default, or what its confirmation tests
(`NAME@best`). Only runs on fresh seeds that were not chosen by what they came to are read. The
factors of the steps multiply to that of the whole.
"""

from __future__ import annotations

import dataclasses
import math
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
from tuner.storage.queue.plans import is_confirmation
from tuner.storage.queue.runs import VerificationRun
from tuner.study.snapshot import StudySnapshot
from tuner.verdict.compare.fairness import differences, refuse_different_data
from tuner.verdict.compare.studies import read_studies
from tuner.verdict.confirmation import confirmation_of
from tuner.verdict.stats.contrasts import LEAST, Change, Mean, contrast, mean_of
from tuner.verdict.verified import as_configurations

BEST = "@best"
CAPTURED, EAGER, PROGRAM = "captured", "eager", "program"
LOOPS = (CAPTURED, EAGER, PROGRAM)
"""How a training's steps are run; the headline is of the first of these that has the whole."""
FIGURES = ("s_per_epoch", "epochs", "total_time_s", "test_mql")


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What a run on a fresh seed came to."""

    backend: str | None
    epochs: float
    pace: float | None
    """Seconds an epoch; None where something disturbed the timing."""
    mql: float | None
    cut: bool
    """A limit ended it before it converged."""

    @property
    def loop(self) -> str:
        if self.backend is None:
            return PROGRAM
        return EAGER if self.backend == Backend.EAGER else CAPTURED


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A configuration between two steps, with its runs that have figures."""

    name: str
    params: Mapping[str, Value] | None
    """None where nothing says yet what it is."""
    runs: tuple[Run, ...]
    missed: Mapping[str, int]
    to_do: str
    """The command that gives it runs."""

    def of(self, loop: str) -> tuple[Run, ...]:
        return tuple(run for run in self.runs if run.loop == loop)

    def means(self, loop: str) -> dict[str, Mean | None]:
        """Of the logarithms, and of the MQL itself. The total is the product of the two others,
        also where a disturbed timing leaves fewer seconds than epochs.
        """
        runs = self.of(loop)
        cut = any(run.cut for run in runs)
        clean = [(math.log(run.epochs), math.log(run.pace)) for run in runs if run.pace]
        epochs = mean_of([math.log(run.epochs) for run in runs], cut=cut)
        pace = mean_of([seconds for _, seconds in clean])
        total = None
        if epochs is not None and pace is not None:
            # How far each run moves the sum: the variance of the sum is that of these.
            share = len(runs) / len(clean)
            moves = [math.log(run.epochs) - epochs.value for run in runs]
            for place, run in enumerate(runs):
                if run.pace:
                    moves[place] += share * (math.log(run.pace) - pace.value)
            spread = math.fsum(move**2 for move in moves) / (len(runs) * (len(runs) - 1))
            total = Mean(epochs.value + pace.value, spread, pace.freedom, cut)
        mql = mean_of([run.mql for run in runs if run.mql is not None])
        return dict(zip(FIGURES, (pace, epochs, total, mql), strict=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A step, what two changes do together beyond each alone, or the whole, on one loop."""

    kind: str
    """`step`, `swapped` (a step of the other order), `interaction` or `whole`."""
    before: str
    after: str
    loop: str
    backends: tuple[str, ...]
    runs: tuple[int, ...]
    s_per_epoch: Change | None
    epochs: Change | None
    total_time_s: Change | None
    test_mql: Change | None
    """A difference of means; the others are factors, of geometric means."""

    @property
    def label(self) -> str:
        called = f"{self.before} -> {self.after}"
        prefix = {"whole": "the whole: ", "swapped": "other order: "}.get(self.kind, "")
        return "interaction" if self.kind == "interaction" else prefix + called


@dataclass(frozen=True, slots=True, kw_only=True)
class StepsReport:
    """Everything that `tuner compare --steps` says."""

    task: str
    answer: str
    rows: tuple[Row, ...]
    carried_by: dict[str, str | None]
    """By figure, on the first loop: the step that changes it most; None where none is clear."""
    notes: tuple[str, ...]
    fairness: tuple[str, ...]
    missing: tuple[str, ...]

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


def steps_report(
    named: Sequence[str], *, task: str, storage: str, swap: str | None = None
) -> StepsReport:
    """The factors of the steps that lead from each of `named` to the next.

    A name is what `tuner compare` takes, several with commas where the same configuration has
    studies on several backends, and `@best` behind it for what its confirmation tests. `swap` names
    what has the second of two changes alone.

    Raises:
        UsageError: a name that means nothing, places that do not compare, or too few of them.
        StorageError: the database cannot be read.
    """
    if len(named) < 2:  # noqa: PLR2004 - a step has two ends
        raise UsageError("--steps takes two names at least, in the order of the steps")
    if swap is not None and len(named) != 3:  # noqa: PLR2004 - A, A with B, and with both
        raise UsageError(
            "--swap goes with three names: before, with one change, with both; it names what has "
            "the other change alone"
        )
    asked = [*named, *([] if swap is None else [swap])]
    studies: list[tuple[StudySnapshot, ...]] = []
    for name in asked:
        parts = [part.strip() for part in name.removesuffix(BEST).split(",")]
        studies.append(tuple(read_studies(parts, task=task, storage=storage)))
    everything = {study.name: study for each in studies for study in each}
    _refuse_apart(tuple(everything.values()))
    names = _names(asked, studies)
    places = [
        _place(name, found, best=name.endswith(BEST))
        for name, found in zip(names, studies, strict=True)
    ]
    rows, missing = _rows(places, swapped=swap is not None)
    loop = next((row.loop for row in rows if row.kind == "whole"), rows[0].loop if rows else "")
    steps = [row for row in rows if row.kind == "step" and row.loop == loop]
    return StepsReport(
        task=studies[0][0].definition.task_name,
        answer=_answer(rows, steps),
        rows=tuple(rows),
        carried_by={name: getattr(carried_by(steps, name), "after", None) for name in FIGURES},
        notes=tuple(_notes(places)),
        fairness=tuple(differences(tuple(everything.values()))),
        missing=tuple(missing),
    )


def _refuse_apart(studies: Sequence[StudySnapshot]) -> None:
    refuse_different_data(studies)
    models = sorted({study.device_model for study in studies if study.device_model})
    if len(models) > 1:
        raise UsageError(
            f"these studies ran on {' and '.join(models)}: their seconds do not compare; name "
            "studies of one device"
        )


def _names(asked: Sequence[str], studies: Sequence[Sequence[StudySnapshot]]) -> list[str]:
    """The variant of each; its first study's name where variants repeat."""
    ends = [BEST if name.endswith(BEST) else "" for name in asked]
    for called in ("variant", "name"):
        names = [getattr(each[0], called) + end for each, end in zip(studies, ends, strict=True)]
        if len(set(names)) == len(names):
            return names
    twice = Counter(names).most_common(1)[0][0]
    raise UsageError(f"{twice!r} is named twice; name each place between two steps once")


# -- what ran --------------------------------------------------------------------------------------


def _place(name: str, studies: Sequence[StudySnapshot], *, best: bool) -> Place:
    found: dict[str, _Found] = {
        each.name: (_best_of if best else _default_of)(each) for each in studies
    }
    known = [each.params for each in found.values() if each.params is not None]
    variants = {each.variant for each in studies}
    if len(variants) > 1 or len({configuration(params) for params in known}) > 1:
        raise UsageError(
            f"{' and '.join(found)} have different configurations, and are no one step; name one: "
            f"study:{studies[0].name}{BEST if best else ''}"
        )
    runs: list[Run] = []
    missed = Counter[str]()
    for study in studies:
        for run in found[study.name].runs:
            read = _read(run, study)
            if isinstance(read, Run):
                runs.append(read)
            else:
                missed[read] += 1
    first = studies[0]
    words = ["tuner", *found[first.name].to_do, "--variant", first.variant, "--study", first.name]
    return Place(
        name=name,
        params=known[0] if known else None,
        runs=tuple(runs),
        missed=missed,
        to_do=command_line(words),
    )


@dataclass(frozen=True, slots=True)
class _Found:
    """Of one study: which configuration, its runs, and the command that makes more."""

    params: Mapping[str, Value] | None
    runs: tuple[VerificationRun, ...]
    to_do: tuple[str, ...]


def _default_of(study: StudySnapshot) -> _Found:
    """All its runs on fresh seeds, also of confirmations: nothing has chosen it."""
    default = study.results.default
    if default is None:
        return _Found(None, (), ("launch", "--trials", "1"))
    wanted = configuration(default.params)
    runs = [run for run in study.runs if configuration(run.params) == wanted]
    there = as_configurations(study.name, runs, device_model=study.device_model)
    to_do = ("verify", "--choose", "front", "--top", "1", "--seeds", "10")
    return _Found(default.params, tuple(run for each in there for run in each.runs), to_do)


def _best_of(study: StudySnapshot) -> _Found:
    """The runs of its confirmation alone: by others it may have been chosen."""
    there = confirmation_of(study)
    to_do = ("verify", "--confirm")
    if there is not None and there.default_stands:
        return dataclasses.replace(_default_of(study), to_do=to_do)
    best = None if there is None else there.recommended
    return _Found(None, (), to_do) if best is None else _Found(best.params, best.runs, to_do)


def _read(run: VerificationRun, study: StudySnapshot) -> Run | str:
    """Its figures, or how it ended where it has none."""
    recorded = run.result.recorded if run.result else Recorded()
    values = run.result.values if run.result else None
    seconds = recorded.wall_clock_s
    if values is None or not recorded.epochs or recorded.epochs < 1:
        return str(recorded.stopped_by or "no epochs recorded")
    pace = recorded.s_per_epoch or (seconds and seconds / recorded.epochs)
    mql = values[1] if recorded.test_mql is None else recorded.test_mql
    # A kept last block has MQLs of its own, and a figure that was no number has none.
    other = study.definition.keeps_last_block and is_confirmation(run.plan)
    return Run(
        backend=recorded.backend,
        epochs=recorded.epochs,
        pace=pace if pace and pace > 0 and not recorded.contaminated else None,
        mql=None if other or "test_mql" in recorded.nulls else mql,
        cut=not recorded.converged,
    )


# -- what it comes to ------------------------------------------------------------------------------


def _rows(places: Sequence[Place], *, swapped: bool) -> tuple[list[Row], list[str]]:
    """Of each loop on which two places have run; and what to run for the others."""
    rows: list[Row] = []
    missing: list[str] = []
    ready = {loop: [p for p in places if len(p.of(loop)) >= LEAST] for loop in LOOPS}
    loops = [loop for loop in LOOPS if len(ready[loop]) > 1]
    chain = places[:-1] if swapped else places
    for loop in loops or [max(LOOPS, key=lambda loop: len(ready[loop]))]:
        lacking = [place for place in places if place not in ready[loop]]
        missing += [_lacks(place, loop, alone=len(loops) < 2) for place in lacking]  # noqa: PLR2004
        if loop not in loops:
            continue
        claims = len(chain) - 1
        made = [_row("step", loop, claims, before, after) for before, after in pairwise(chain)]
        if swapped:
            base, one, both, other = places
            made.append(_row("swapped", loop, claims, base, other))
            made.append(_row("swapped", loop, claims, other, both))
            made.append(_row("interaction", loop, 1, one, both, minus=(base, other)))
        made.append(_row("whole", loop, 1, chain[0], chain[-1]))
        rows += [row for row in made if row is not None]
    return rows, missing


def _lacks(place: Place, loop: str, *, alone: bool) -> str:
    if alone:
        return (
            f"{place.name}: {len(place.runs)} of {LEAST} runs on fresh seeds; {place.to_do} does it"
        )
    return (
        f"{place.name}: {len(place.of(loop))} of {LEAST} runs on fresh seeds by the {loop} loop; "
        "launch and verify a study of it with that --backend, and name both: NAME,study:OTHER"
    )


def _row(
    kind: str,
    loop: str,
    claims: int,
    before: Place,
    after: Place,
    *,
    minus: tuple[Place, Place] | None = None,
) -> Row | None:
    """From one place to another; of an interaction less the step between `minus`."""
    signs = [(1, after), (-1, before)]
    if minus is not None:
        signs += [(-1, minus[1]), (1, minus[0])]
    means = [(sign, place.means(loop)) for sign, place in signs]
    changes = {
        name: contrast(
            [(sign, each[name]) for sign, each in means], factor=name != "test_mql", claims=claims
        )
        for name in FIGURES
    }
    if not any(changes.values()):
        return None
    runs = [place.of(loop) for _, place in signs]
    backends = dict.fromkeys(run.backend for each in reversed(runs) for run in each if run.backend)
    return Row(
        kind=kind,
        before=before.name,
        after=after.name,
        loop=loop,
        backends=tuple(backends),
        runs=tuple(len(each) for each in reversed(runs)),
        **changes,
    )


# -- in words --------------------------------------------------------------------------------------

WHAT = {"s_per_epoch": "seconds an epoch", "epochs": "epochs", "total_time_s": "total time"}


def factor_in_words(change: Change, what: str) -> str:
    """`1.90 times the epochs (1.70 to 2.10)`, `12 % fewer epochs (10 to 14 %)`."""
    low, middle, high = change.low, change.estimate, change.high
    if change.bound == "unknown":
        return f"an unknown factor on the {what}"
    if change.bound:
        return f"{change.bound} {low if change.bound == 'at least' else high:.2f} times the {what}"
    if middle >= 1 or high >= 1:
        return f"{middle:.2f} times the {what} ({low:.2f} to {high:.2f})"
    less = [100 * (1 - end) for end in (middle, high, low)]
    word = "less" if what == WHAT["total_time_s"] else "fewer"
    return f"{less[0]:.0f} % {word} {what} ({less[1]:.0f} to {less[2]:.0f} %)"


def _answer(rows: Sequence[Row], steps: Sequence[Row]) -> str:
    """Which step carries the whole, what else is clear, and what the whole comes to."""
    if not rows:
        return "Nothing can be said yet: too few runs on fresh seeds."
    wholes = [row for row in rows if row.kind == "whole"]
    said = _said_of_steps(steps)
    for row in rows:
        if row.kind == "interaction" and row.total_time_s is not None:
            total = factor_in_words(row.total_time_s, WHAT["total_time_s"])
            said.append(f"both changes together, beside what each costs alone: {total}")
    for row in wholes:
        if row.total_time_s is not None:
            by = f" on the {row.loop} loop" if len(wholes) > 1 else ""
            said.append(f"the whole{by}: {factor_in_words(row.total_time_s, WHAT['total_time_s'])}")
    if not wholes:
        said.append("the whole is not known yet")
    return f"{'; '.join(said)}."


def _said_of_steps(steps: Sequence[Row]) -> list[str]:
    said: list[str] = []
    told: tuple[str, str] | None = None
    carrier = carried_by(steps, "total_time_s")
    if carrier is None:
        said.append("No step changes the total time clearly")
    else:
        name = max(("s_per_epoch", "epochs"), key=lambda name: abs(_change(carrier, name)))
        change, told = getattr(carrier, name), (carrier.after, name)
        verb = "carries the cost" if change.estimate > 1 else "saves most"
        said.append(f"{carrier.after} {verb}: {factor_in_words(change, WHAT[name])}")
    for row in steps:
        for name in ("s_per_epoch", "epochs"):
            change = getattr(row, name)
            if change is not None and change.clear and (row.after, name) != told:
                said.append(f"{row.after}: {factor_in_words(change, WHAT[name])}")
    worst = carried_by(steps, "test_mql")
    if worst is not None and worst.test_mql is not None:
        said.append(f"{worst.after} carries the MQL: {difference_in_words(worst.test_mql)}")
    return said


def carried_by(steps: Sequence[Row], figure: str) -> Row | None:
    """The step with the largest clear change of a figure in the direction of all steps together;
    where none goes there, in the other one. None where none is clear.
    """
    together = math.fsum(_change(row, figure) for row in steps)
    clear = [row for row in steps if (change := getattr(row, figure)) and change.clear]
    along = [row for row in clear if _change(row, figure) * together > 0]
    return max(along or clear, key=lambda row: abs(_change(row, figure)), default=None)


def _change(row: Row, figure: str) -> float:
    """Of a factor its logarithm; 0 where it is not known."""
    change: Change | None = getattr(row, figure)
    if change is None:
        return 0.0
    return change.estimate if figure == "test_mql" else math.log(change.estimate)


def difference_in_words(change: Change) -> str:
    return f"{change.estimate:+.4f} ({change.low:+.4f} to {change.high:+.4f})"


def _notes(places: Sequence[Place]) -> list[str]:
    """What runs are left out of which figures, and what else a step changes."""
    notes = []
    for place in places:
        of = f"of {len(place.runs) + sum(place.missed.values())} runs"
        if cut := sum(run.cut for run in place.runs):
            notes.append(
                f"{place.name}: a limit cut off {cut} {of}; factors of epochs and time with it are "
                "bounds"
            )
        if disturbed := sum(run.pace is None for run in place.runs):
            notes.append(
                f"{place.name}: {disturbed} {of} have a contaminated timing, which is left out of "
                "seconds an epoch"
            )
        for how, count in place.missed.items():
            notes.append(f"{place.name}: {count} {of} missed ({how}), and are in no figure")
    for before, after in pairwise(places):
        if BEST in before.name + after.name or None in (before.params, after.params):
            continue
        old, new = before.params or {}, after.params or {}
        other = [name for name in old if name in new and old[name] != new[name]]
        if other:
            notes.append(
                f"{after.name} begins with another {', '.join(other)} than {before.name}: that "
                "step holds both changes"
            )
    return notes
