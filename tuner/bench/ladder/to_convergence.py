"""Trainings of the rungs to their ends, as trials train: what a rung does to the quality, and to
the time until it is reached.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from tuner.bench.contender import Entry, Job
from tuner.bench.ours import Ours
from tuner.bench.rounds import reason_of
from tuner.config import Backend, Precision, RunConfig, StopReason, TrainingSettings
from tuner.data.windows import DeviceData
from tuner.errors import UsageError
from tuner.models.registry import build_model
from tuner.spec.study_file import StudyFile
from tuner.training import evaluate, fit
from tuner.training.engines.choose import choose_backend
from tuner.training.fit import check_settings
from tuner.trial.survival import lost_context

# The rungs of a ladder: settings as they were, then one change after the other, and each change
# for itself.


FIRST = "as it was"
LARGER = 4
"""The batch of the ladder beside the variant's own, where none is named."""
BETWEEN_VALIDATIONS = 2

Apply = Callable[[RunConfig], RunConfig]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """Settings on the ladder: what is new with them, and why that is not possible here, or ""."""

    change: str
    cumulated: bool
    """With all changes before it that are possible here; else it is the only change."""
    config: RunConfig
    why_not: str = ""

    @property
    def kind(self) -> str:
        return "cumulated" if self.cumulated else "alone"


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
        UsageError: a batch below 1, or a variant whose first rung is no training.
    """
    base = _as_it_was(file, job)
    if batch_size is not None and batch_size < 1:
        raise UsageError(f"--ladder-batch must be at least 1, not {batch_size}")
    larger = batch_size or LARGER * base.hyperparameters.batch_size
    if problem := why_not(base, job, data):
        raise UsageError(f"the ladder's first rung, {file.name} as it was: {problem}")
    rungs = [Rung(change=FIRST, cumulated=True, config=base)]
    alone: list[Rung] = []
    so_far = base
    for name, change in _changes(precision, larger):
        both = change(so_far), change(base)
        problems = [why_not(config, job, data) for config in both]
        rungs.append(Rung(change=f"+ {name}", cumulated=True, config=both[0], why_not=problems[0]))
        alone.append(Rung(change=name, cumulated=False, config=both[1], why_not=problems[1]))
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
        backend, reason = choose_backend(config, data.shapes, model.to(job.device), job.device)
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

    def larger(config: RunConfig) -> RunConfig:
        sizes = dataclasses.replace(config.hyperparameters, batch_size=batch_size)
        return dataclasses.replace(config, hyperparameters=sizes)

    return [
        (precision.value, _training(precision=precision)),
        (f"batch {batch_size}", larger),
        ("captured step", _training(backend=Backend.GRAPH)),
        ("compiled step", _training(backend=Backend.COMPILE)),
        ("fused kernels", _training(backend=Backend.TRITON)),
        (
            f"validation every {BETWEEN_VALIDATIONS} epochs",
            _training(validate_every=BETWEEN_VALIDATIONS),
        ),
    ]


def _training(**changes: object) -> Apply:
    def apply(config: RunConfig) -> RunConfig:
        return dataclasses.replace(
            config,
            training=config.training.but(**changes),
        )

    return apply


def _contenders(
    variant: str, rungs: Sequence[Rung], job: Job, data: DeviceData
) -> tuple[Ours, ...]:
    """One for each of the different settings that are possible."""
    found: list[Ours] = []
    for rung in rungs:
        if rung.why_not or any(each.config == rung.config for each in found):
            continue
        sizes = rung.config.hyperparameters
        entry = Entry(
            library="tuner",
            variant=variant,
            backend=rung.config.training.backend.value,
            hidden_size=sizes.hidden_size,
            batch_size=sizes.batch_size,
            rung=f"({rung.change}, {rung.kind})",
        )
        found.append(Ours(job, entry, rung.config, data))
    return tuple(found)


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
    captured: bool = False
    """In the place of an eager training: `wall_clock_s` is the captured one's."""


@dataclass(slots=True)
class Trainings:
    """Those of each contender, by its number, and why some are missing."""

    of: dict[int, list[Trained]] = field(default_factory=dict)
    failures: dict[int, str] = field(default_factory=dict)
    missing: str = ""
    """Why not all were made; empty where they were."""
    made: list[tuple[RunConfig, Trained]] = field(default_factory=list)
    """Every one that was really made: two rungs may train the same."""

    def again(self, config: RunConfig) -> Trained | None:
        """The training of just this configuration; None where there is none yet."""
        return next((trained for other, trained in self.made if other == config), None)

    def keep(self, number: int, trained: Trained, captured: bool) -> None:
        """Of a contender."""
        self.of.setdefault(number, []).append(dataclasses.replace(trained, captured=captured))


def train_rungs(
    ladder: Ladder,
    data: DeviceData,
    *,
    seeds: int,
    budget_s: float,
    announce: Callable[[str], None],
    after_each: Callable[[Trainings], None] = lambda _trainings: None,
    failed: Mapping[int, str] | None = None,
) -> Trainings:
    """Train with `seeds` seeds each, as long as `budget_s` lasts: the cumulated rungs first, a seed
    after the other, so that all have the same ones; then those of single changes.

    A training that would not fit into what is left of the budget, by what the contender's last one
    took, is not begun, and one that does not fit is cut and forgotten: none comes after it. One
    that fails ends its rung's trainings. On a GPU an eager rung is trained in a captured step,
    which comes to the same epochs and forecasts, but for rounding, in a tenth of the time.

    Args:
        ladder: the rungs.
        data: the job's windows on the device.
        seeds: the seeds 1, 2, ... of each.
        budget_s: seconds for all of it: set-up, training and evaluation.
        announce: told in one line how it is going.
        after_each: called after every training with all so far.
        failed: contenders that are not to be trained, with the reason.

    Raises:
        UsageError: misuse.
    """
    found, until = Trainings(), time.perf_counter() + budget_s
    took: dict[int, float] = {}
    broken, configs = dict(failed or {}), [in_capture(each) for each in ladder.contenders]
    for group in _groups(ladder):
        for seed in range(FIRST_SEED, FIRST_SEED + seeds):
            for number in group:
                if number in broken:
                    continue
                began = time.perf_counter()
                if began + took.get(number, 0.0) > until:
                    found.missing = f"the budget of {budget_s:g} s was spent"
                    return found
                label = f"{ladder.contenders[number].entry.label}, seed {seed}"
                config = configs[number]
                series = ladder.contenders[number].job.prepared.task.objective_series
                outcome, usable = _attempt(config, seed, data, until, found, series)
                took[number] = time.perf_counter() - began
                if outcome is None:
                    found.missing = f"the budget of {budget_s:g} s was spent"
                    return found
                if isinstance(outcome, str):
                    broken[number] = found.failures[number] = outcome
                else:
                    found.keep(number, outcome, ladder.contenders[number].config != config)
                announce(f"trained: {label}: {_in_words(outcome)}")
                after_each(found)
                if not usable:
                    found.missing = f"{label} left the device's context unusable"
                    return found
    return found


def in_capture(contender: Ours) -> RunConfig:
    """What is trained for a contender: itself, or its captured step where that computes the same.

    But for rounding, where a gradient is clipped and where the learning rate is no fp32 number. In
    benchmarks/equal_backends, ten whole trainings came to the eager epochs and MQL.
    """
    config = contender.config
    if config.training.backend is not Backend.EAGER or contender.job.device.type != "cuda":
        return config
    training = config.training.but(backend=Backend.GRAPH)
    captured = dataclasses.replace(config, training=training)
    return config if why_not(captured, contender.job, contender.data) else captured


def _groups(ladder: Ladder) -> tuple[Sequence[int], Sequence[int]]:
    """Numbers of the contenders of the cumulated rungs, and of the others."""
    cumulated: dict[int, None] = {}
    others: dict[int, None] = {}
    for rung in ladder.rungs:
        number = ladder.contender_of(rung)
        if number is not None and number not in cumulated:
            (cumulated if rung.cumulated else others)[number] = None
    return list(cumulated), list(others)


def _attempt(
    config: RunConfig,
    seed: int,
    data: DeviceData,
    until: float,
    found: Trainings,
    series: str | None,
) -> tuple[Trained | str | None, bool]:
    """A training, or why it is none, or None where it was cut at `until`; and whether the device
    can be used after it.
    """
    config = dataclasses.replace(config, seed=seed)
    if (before := found.again(config)) is not None:
        return before, True
    try:
        outcome, usable = _train(config, data, until, series)
    except UsageError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever it is, it is reported in the rung's row
        return reason_of(error), not lost_context(error)
    finally:
        _give_back()
    if isinstance(outcome, Trained):
        found.made.append((config, outcome))
    return outcome, usable


def _train(
    config: RunConfig, data: DeviceData, until: float, series: str | None
) -> tuple[Trained | str | None, bool]:
    def out_of_budget() -> StopReason | None:
        return StopReason.INTERRUPTED if time.perf_counter() > until else None

    result = fit(config, data, should_stop=out_of_budget)
    if result.stopped_by is StopReason.INTERRUPTED:
        return None, True
    if result.model is None or not result.stopped_by.completed:
        said = result.message or "no forecast came of it"
        return f"{result.stopped_by.value}: {said}", not result.context_lost
    test_mql, _ = evaluate(result.model, data).of_series(series)
    trained = Trained(
        seed=config.seed,
        stopped_by=result.stopped_by.value,
        epochs=result.epochs,
        wall_clock_s=result.wall_clock_s,
        val_loss=result.best_val_loss,
        test_mql=test_mql,
    )
    return trained, True


def _give_back() -> None:
    """What the training leaves on a GPU, so that the next one's memory is its own."""
    if not torch.cuda.is_available():
        return
    try:
        torch.cuda.empty_cache()
    except RuntimeError:
        return  # the context is lost, as the training's failure says


def _in_words(trained: Trained | str) -> str:
    if isinstance(trained, str):
        return trained
    return (
        f"{trained.wall_clock_s:.3f} s, {trained.epochs} epochs, validation loss "
        f"{trained.val_loss:.5g}, test MQL {trained.test_mql:.5g}"
    )
