"""The rungs of a ladder: settings as they were, then one change after the other, and each change
for itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tuner.bench.contender import Entry, Job
from tuner.bench.ours import Ours
from tuner.config import Backend, Precision, RunConfig, TrainingSettings
from tuner.data.windows import DeviceData
from tuner.errors import UsageError
from tuner.models.registry import build_model
from tuner.spec.study_file import StudyFile
from tuner.training.checks import check_settings
from tuner.training.engines.choose import choose_backend

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
