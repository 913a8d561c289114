"""A ladder: what each change to a training's settings brings, alone and on top of those before it,
in time, memory and quality.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any

from tuner.bench.contender import Entry, Job, Measurement, reason_of
from tuner.bench.entrants import Ours
from tuner.bench.report import Cell, Circumstances, Column, Results, Timed, as_number, timed
from tuner.config import Backend, Precision, RunConfig, StopReason, TrainingSettings
from tuner.data.windows import DeviceData
from tuner.errors import UsageError
from tuner.estimate.driven import give_back, trained_with, with_batch
from tuner.models.registry import build_model
from tuner.spec.study_file import StudyFile
from tuner.training import evaluate, fit
from tuner.training.engines.choose import choose_backend
from tuner.training.fit import check_settings
from tuner.trial.job import lost_context
from tuner.verdict.stats.intervals import mean_interval

# The rungs of a ladder: settings as they were, then one change after the other, and each change
# for itself.


FIRST = "as it was"
CUMULATED = "cumulated"
TITLES = ((CUMULATED, "Each change on top of those before it"), ("alone", "Each change alone"))
"""Of the tables, by the kind of their rungs."""
LARGER = 4
"""The batch of the ladder beside the variant's own, where none is named."""
BETWEEN_VALIDATIONS = 2

Apply = Callable[[RunConfig], RunConfig]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """Settings on the ladder: what is new with them, and why that is not possible here, or ""."""

    change: str
    kind: str
    """`cumulated`: with all changes before it that are possible here; `alone`: the only change."""
    config: RunConfig
    why_not: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ladder:
    """The rungs in their order, and whom to measure for them: rungs with the same settings have the
    same contender.
    """

    variant: str
    rungs: tuple[Rung, ...]
    contenders: tuple[Ours, ...]

    def contender_of(self, rung: Rung) -> int | None:
        """The number of its contender; None of a rung that is not possible here."""
        if rung.why_not:
            return None
        configs = [contender.config for contender in self.contenders]
        return configs.index(rung.config)


def make_ladder(
    job: Job,
    data: DeviceData,
    file: StudyFile,
    *,
    precision: Precision = Precision.BF16,
    batch_size: int | None = None,
) -> Ladder:
    """The ladder of a variant: its defaults in plain operations and fp32, then mixed precision, a
    larger batch, a captured step, a compiled one, the fused kernels, fewer validations.

    Args:
        job: the job and the device.
        data: the job's windows on the device.
        file: the variant's; its defaults are the first rung, rates included, which no rung changes.
        precision: of the rung with another one than fp32.
        batch_size: of the rung with another batch; None for four times the default.

    Raises:
        UsageError: a variant whose first rung is no training.
    """
    base = _as_it_was(file, job)
    larger = batch_size or LARGER * base.hyperparameters.batch_size
    if problem := why_not(base, job, data):
        raise UsageError(f"the ladder's first rung, {file.name} as it was: {problem}")
    rungs = [Rung(change=FIRST, kind=CUMULATED, config=base)]
    alone: list[Rung] = []
    so_far = base
    for name, change in _changes(precision, larger):
        both = change(so_far), change(base)
        problems = [why_not(config, job, data) for config in both]
        rungs.append(Rung(change=f"+ {name}", kind=CUMULATED, config=both[0], why_not=problems[0]))
        alone.append(Rung(change=name, kind="alone", config=both[1], why_not=problems[1]))
        so_far = so_far if problems[0] else both[0]
    all_rungs = (*rungs, *alone)
    return Ladder(
        variant=file.name, rungs=all_rungs, contenders=_contenders(file.name, all_rungs, job, data)
    )


def why_not(config: RunConfig, job: Job, data: DeviceData) -> str:
    """Why such a training is not possible on the device, or not in this way; empty where it is."""
    try:
        check_settings(config, data.shapes)
        model = build_model(config.architecture, data.shapes, config.hyperparameters)
        model = model.to(job.device)
        backend, reason = choose_backend(config, data.shapes, model, job.device, data.streamed)
    except UsageError as error:
        return str(error)
    return f"would run as {backend.value}: {reason}" if reason else ""


def _as_it_was(file: StudyFile, job: Job) -> RunConfig:
    training = file.training.but(
        backend=Backend.EAGER,
        precision=Precision.FP32,
        accumulate=1,
        checkpoint_activations=False,
        compile_mode=TrainingSettings().compile_mode,
        validate_every=1,
    )
    return RunConfig(
        architecture=file.architecture(),
        hyperparameters=file.default_hyperparameters(),
        training=training,
        seed=job.seed,
    )


def _changes(precision: Precision, batch_size: int) -> list[tuple[str, Apply]]:
    """In the order in which the reports' tables have them."""
    every = BETWEEN_VALIDATIONS
    return [
        (precision.value, partial(trained_with, precision=precision)),
        (f"batch {batch_size}", partial(with_batch, batch_size=batch_size)),
        ("captured step", partial(trained_with, backend=Backend.GRAPH)),
        ("compiled step", partial(trained_with, backend=Backend.COMPILE)),
        ("fused kernels", partial(trained_with, backend=Backend.TRITON)),
        (f"validation every {every} epochs", partial(trained_with, validate_every=every)),
    ]


def _contenders(
    variant: str, rungs: Sequence[Rung], job: Job, data: DeviceData
) -> tuple[Ours, ...]:
    """One for each of the different settings that are possible."""
    found: list[Ours] = []
    for rung in rungs:
        if rung.why_not or any(each.config == rung.config for each in found):
            continue
        config, words = rung.config, f"({rung.change}, {rung.kind})"
        backend = config.training.backend.value
        entry = Entry.of(config, "tuner", variant, backend, rung=words)
        found.append(Ours(job, entry, rung.config, data))
    return tuple(found)


# Trainings of the rungs to their ends, as trials train: what a rung does to the quality, and to
# the time until it is reached.


FIRST_SEED = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """One training to its end; its seconds are those of the clock."""

    seed: int
    stopped_by: str
    epochs: int
    wall_clock_s: float
    val_loss: float
    test_mql: float
    """The objective of a search of this task: of its objective series, where it names one."""


@dataclass(slots=True)
class Trainings:
    """Those of each contender, by its number, and why some are missing."""

    of: dict[int, list[Trained]] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)
    missing: str = ""
    """Why not all were made; empty where they were."""


class _BudgetSpentError(Exception):
    """A training was cut, or not begun."""


def train_rungs(
    ladder: Ladder,
    data: DeviceData,
    found: Trainings,
    *,
    seeds: int,
    budget_s: float,
    announce: Callable[[str], None],
    after_each: Callable[[], object] = lambda: None,
) -> None:
    """Train with `seeds` seeds each, as long as `budget_s` lasts: the cumulated rungs first, a seed
    after the other, so that all have the same ones; then those of single changes.

    A training that would not fit into what is left of the budget, by what the contender's last one
    took, is not begun, and one that does not fit is cut and forgotten: none comes after it. One
    that fails ends its rung's trainings.

    Args:
        ladder: the rungs.
        data: the job's windows on the device.
        found: what the trainings are added to; contenders that have failed are not trained.
        seeds: the seeds 1, 2, ... of each.
        budget_s: seconds for all of it: set-up, training and evaluation.
        announce: told in one line how it is going.
        after_each: called after every training.

    Raises:
        UsageError: misuse.
    """
    until = time.perf_counter() + budget_s
    took: dict[int, float] = {}
    for number, seed in _in_turns(ladder, seeds):
        if number in found.failures:
            continue
        contender = ladder.contenders[number]
        label = f"{contender.entry.label}, seed {seed}"
        began = time.perf_counter()
        try:
            outcome, usable = _train(contender, seed, data, until, took.get(number, 0.0))
        except UsageError:
            raise
        except _BudgetSpentError:
            found.missing = f"the budget of {budget_s:g} s was spent"
            return
        except Exception as error:  # noqa: BLE001 - whatever it is, it is reported in the rung's row
            outcome, usable = reason_of(error), not lost_context(error)
        if isinstance(outcome, Trained):
            found.of.setdefault(number, []).append(outcome)
        else:
            found.failures[number] = outcome
        took[number] = time.perf_counter() - began
        announce(f"trained: {label}: {_in_words(outcome)}")
        after_each()
        if not usable:
            found.missing = f"{label} left the device's context unusable"
            return


def _in_turns(ladder: Ladder, seeds: int) -> Iterator[tuple[int, int]]:
    """The numbers of contenders, with the seeds that they are to be trained with."""
    numbers = {kind: dict[int, None]() for kind, _ in TITLES}
    for rung in ladder.rungs:
        number = ladder.contender_of(rung)
        if number is not None and number not in numbers[CUMULATED]:
            numbers[rung.kind][number] = None
    for group in numbers.values():
        for seed in range(FIRST_SEED, FIRST_SEED + seeds):
            for number in group:
                yield number, seed


def _train(
    contender: Ours, seed: int, data: DeviceData, until: float, likely_s: float
) -> tuple[Trained | str, bool]:
    """A training, or why it is none; and whether the device can be used after it.

    Raises:
        _BudgetSpentError: it is not over in time, or was not likely to be.
    """

    def out_of_budget() -> StopReason | None:
        return StopReason.INTERRUPTED if time.perf_counter() > until else None

    if time.perf_counter() + likely_s > until:
        raise _BudgetSpentError
    give_back()  # so that its memory is its own
    result = fit(replace(contender.config, seed=seed), data, should_stop=out_of_budget)
    if result.stopped_by is StopReason.INTERRUPTED:
        raise _BudgetSpentError
    if result.model is None or not result.stopped_by.completed:
        said = result.message or "no forecast came of it"
        return f"{result.stopped_by.value}: {said}", not result.context_lost
    series = contender.job.prepared.task.objective_series
    test_mql, _ = evaluate(result.model, data).of_series(series)
    trained = Trained(
        seed=seed,
        stopped_by=result.stopped_by.value,
        epochs=result.epochs,
        wall_clock_s=result.wall_clock_s,
        val_loss=result.best_val_loss,
        test_mql=test_mql,
    )
    return trained, True


def _in_words(trained: Trained | str) -> str:
    if isinstance(trained, str):
        return trained
    return (
        f"{trained.wall_clock_s:.3f} s, {trained.epochs} epochs, validation loss "
        f"{trained.val_loss:.5g}, test MQL {trained.test_mql:.5g}"
    )


# From measurements and trainings to the rows of a ladder: each beside the first rung.


LEAST_SEEDS = 2
"""Fewer give no interval."""

Figures = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class LadderRow(Timed):
    """One rung.

    `speedup_*` is the first rung's figure divided by this one's in the same round: median, least
    and greatest over the rounds. Of trainings the figures are means over `seeds`, with the 95 %
    interval of Student's t; `*_change` is the mean difference from the first rung on the same
    seeds.
    """

    kind: str
    change: str
    variant: str
    backend: str
    precision: str
    hidden_size: int | None
    batch_size: int
    validate_every: int
    speedup_epoch_min: float | None = None
    speedup_epoch_max: float | None = None
    seeds: int = 0
    converged: int = 0
    """Of the trainings; the others a limit cut."""
    epochs: float | None = None
    wall_clock_s: float | None = None
    wall_clock_s_low: float | None = None
    wall_clock_s_high: float | None = None
    val_loss: float | None = None
    val_loss_low: float | None = None
    val_loss_high: float | None = None
    test_mql: float | None = None
    test_mql_low: float | None = None
    test_mql_high: float | None = None
    test_mql_change: float | None = None
    test_mql_change_low: float | None = None
    test_mql_change_high: float | None = None
    not_trained: str = ""
    """Why it has fewer trainings than were asked for."""


def ladder_rows(
    ladder: Ladder,
    measurements: Sequence[Measurement],
    trainings: Trainings | None = None,
    *,
    seeds: int = 0,
) -> list[LadderRow]:
    """One row a rung, in their order; `seeds` is how many trainings of each were asked for."""
    first = ladder.contender_of(ladder.rungs[0])
    assert first is not None, "a ladder has a first rung"
    made = trainings or Trainings()
    rows = []
    for rung in ladder.rungs:
        number = ladder.contender_of(rung)
        if number is None:
            rows.append(_row(rung, ladder.variant, failure=rung.why_not))
            continue
        times, own = timed(measurements[number]), made.of.get(number, [])
        found = asdict(times) | _speedups(measurements[number], measurements[first])
        found |= _trained(own, made.of.get(first, []))
        if len(own) < seeds:
            found["not_trained"] = made.failures.get(number) or made.missing
        rows.append(_row(rung, ladder.variant, **found))
    return rows


def _row(rung: Rung, variant: str, **found: Any) -> LadderRow:
    sizes, training = rung.config.hyperparameters, rung.config.training
    return LadderRow(
        kind=rung.kind,
        change=rung.change,
        variant=variant,
        backend=training.backend.value,
        precision=training.precision.value,
        hidden_size=sizes.hidden_size,
        batch_size=sizes.batch_size,
        validate_every=training.validate_every,
        **found,
    )


def _speedups(own: Measurement, first: Measurement) -> Figures:
    """How often its times go into the first rung's."""
    epochs = _ratios(own, first, lambda epoch: epoch.seconds)
    if not epochs:
        return {}
    return {
        "speedup_epoch": statistics.median(epochs),
        "speedup_epoch_min": min(epochs),
        "speedup_epoch_max": max(epochs),
        "speedup_step": statistics.median(_ratios(own, first, lambda epoch: epoch.step_s)),
    }


def _ratios(own: Measurement, first: Measurement, of: Callable[[Any], float]) -> list[float]:
    """The first rung's median of a round by this one's of the same round."""
    return [
        statistics.median(map(of, before.epochs)) / statistics.median(map(of, after.epochs))
        for before, after in zip(first.rounds, own.rounds, strict=False)
    ]


def _trained(own: Sequence[Trained], first: Sequence[Trained]) -> Figures:
    if not own:
        return {}
    found: Figures = {
        "seeds": len(own),
        "converged": sum(each.stopped_by == StopReason.CONVERGED for each in own),
        "epochs": statistics.fmean(each.epochs for each in own),
    }
    for name in ("wall_clock_s", "val_loss", "test_mql"):
        found |= _mean(name, [getattr(each, name) for each in own])
    before = {each.seed: each.test_mql for each in first}
    changes = [each.test_mql - before[each.seed] for each in own if each.seed in before]
    if changes and own is not first:
        found |= _mean("test_mql_change", changes)
    return found


def _mean(name: str, values: Sequence[float]) -> Figures:
    found: Figures = {name: statistics.fmean(values)}
    if len(values) >= LEAST_SEEDS and (there := mean_interval(values)) is not None:
        found |= {f"{name}_low": there.low, f"{name}_high": there.high}
    return found


SPEEDUP_IS = (
    "x: the first rung's time divided by this one's in the same round, with the least and the "
    "greatest over the rounds."
)
FIRST_LADDER_COLUMNS = tuple(LadderRow.__annotations__)[:3]
"""Of results.csv: by these a table of a ladder is known."""


def ladder_results(rows: Sequence[LadderRow], circumstances: Circumstances) -> Results:
    """What a ladder came to."""
    return Results(
        name="ladder",
        circumstances=circumstances,
        settings=f"variant {rows[0].variant}",
        tables=[(title, [row for row in rows if row.kind == kind]) for kind, title in TITLES],
        columns=(*TIMES, *QUALITY) if any(row.seeds for row in rows) else TIMES,
        notes=_notes(rows),
    )


def _notes(rows: Sequence[LadderRow]) -> list[str]:
    notes = [SPEEDUP_IS]
    if any(row.seeds for row in rows):
        notes.append(
            "Trained to convergence with the first rung's learning rate: means over seeds with "
            "95 % intervals; change: from the first rung, on the same seeds."
        )
    notes += [f"{_who(row)}: {row.failure}." for row in rows if row.failure]
    by_reason: dict[str, list[str]] = {}
    for row in rows:
        if row.not_trained:
            by_reason.setdefault(row.not_trained, []).append(_who(row))
    notes += [f"Fewer trainings, as {why}: {', '.join(who)}." for why, who in by_reason.items()]
    return notes


def _who(row: LadderRow) -> str:
    return f"{row.change} ({row.kind})"


def _interval(name: str, form: str) -> Cell:
    def cell(row: LadderRow) -> str:
        value, low, high = (getattr(row, f"{name}{end}") for end in ("", "_low", "_high"))
        if value is None:
            return ""
        middle = format(value, form)
        return middle if low is None else f"{middle} [{low:{form}}, {high:{form}}]"

    return cell


def _change(row: LadderRow) -> str:
    return row.change + (" (not here)" if row.failure and not row.rounds else "")


def _speedup(row: LadderRow) -> str:
    if row.speedup_epoch is None:
        return ""
    return f"{row.speedup_epoch:.2f} ({row.speedup_epoch_min:.2f} to {row.speedup_epoch_max:.2f})"


def _converged(row: LadderRow) -> str:
    return f"{row.converged} of {row.seeds}" if row.seeds else ""


TIMES = (
    Column("change", _change),
    Column("ms/step", as_number("ms_per_step", ".3f")),
    Column("x step", as_number("speedup_step", ".2f"), on_screen=False),
    Column("s/epoch", as_number("s_per_epoch", ".4f")),
    Column("x", _speedup),
    Column("samples/s", as_number("samples_per_s", ".0f"), on_screen=False),
    Column("GPU %", as_number("gpu_utilisation", ".0f")),
    Column("peak MiB", as_number("peak_memory_bytes", ".0f", scale=2.0**-20)),
    Column("kernels", as_number("kernels_per_step", "d"), on_screen=False),
    Column("set-up warm s", as_number("setup_warm_s", ".2f"), on_screen=False),
)
"""The columns that every ladder has."""

QUALITY = (
    Column("converged", _converged, on_screen=False),
    Column("epochs", as_number("epochs", ".1f")),
    Column("to convergence s", _interval("wall_clock_s", ".2f")),
    Column("val loss", _interval("val_loss", ".4f"), on_screen=False),
    Column("test MQL", _interval("test_mql", ".4f")),
    Column("MQL change", _interval("test_mql_change", "+.4f")),
)
"""The same where there were trainings."""
