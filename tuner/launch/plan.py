"""What a launch will do, checked whole before anything is written: studies, data, devices."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.config import OF_TRAINING, Backend, MqlSplit, Precision, TrainingSettings
from tuner.data.prepare import BLOCKS, PreparedData, blocks_of, prepare
from tuner.data.task import Task, load_task
from tuner.devices.backend_rules import why_not_on, why_not_together
from tuner.devices.group import devices_of_all, grouped, refuse_placed
from tuner.errors import TunerError, UsageError
from tuner.files.child import in_words, ran
from tuner.files.plain import excerpt
from tuner.launch.request import LaunchRequest, names_of
from tuner.launch.where import Where, choose_where
from tuner.models.names import builtin_names
from tuner.models.readings import check_mixer_arguments, of_usual_size
from tuner.models.registry import network_arguments
from tuner.settings import flags
from tuner.spec.definition import StudyDefinition, without_folder
from tuner.spec.membership import name_of_search
from tuner.spec.objectives import TimeObjective
from tuner.spec.policy import StudySettings
from tuner.spec.program import Program
from tuner.spec.study_file import StudyFile, builtin_variants, load_study_file

# Whether a network of the user's can be trained, before anything is written.


SAID_AFTER_S = 60.0
"""From then on somebody may wonder what a launch waits for."""
STILL_AT_WORK = "the check of the network of %s is still at work after %.0f s; Ctrl-C ends it"

_log = logging.getLogger(__name__)


def check_network(variant: str, task: str, data_dir: Path | None) -> tuple[str, ...]:
    """Train the network of the user's own study file for a step, in a child that ends with this
    process: the supervisor never imports torch.

    Without this, a class that cannot work or a setting that nobody takes would fail every trial of
    the study.

    Returns:
        What is to be said of one that works.

    Raises:
        UsageError, TunerError: as `tuner variants --check` says it; a class that ends its process.
    """
    words = ["variants", "--check", variant, "--task", task, "--json"]
    words += [f"--supervised-by={os.getpid()}"]
    if data_dir is not None:
        words += ["--data-dir", str(data_dir)]
    waited = threading.Timer(SAID_AFTER_S, _log.warning, (STILL_AT_WORK, variant, SAID_AFTER_S))
    waited.daemon = True
    waited.start()
    try:
        done = ran([sys.executable, "-m", "tuner", *words])
    finally:
        waited.cancel()
    if done.code < 0:
        raise TunerError(f"{variant}: the check of its network {in_words(done.code)}")
    if done.code:
        message = done.last_words() or f"the check of its network {in_words(done.code)}"
        kind = UsageError if done.code == UsageError.exit_code else TunerError
        named = message.startswith(str(Path(variant)))  # as the one that names a line does
        raise kind(message if named else f"{variant}: {message}")
    try:
        return tuple(str(notice) for notice in json.loads(done.printed)["notices"])
    except ValueError:
        raise TunerError(
            f"{variant}: the check of its network ended without an answer: a class must not end "
            "its process"
        ) from None


STUDY_NAME_LIMIT = 200
OF_A_BATCH = "batchnorm"
"""The built-in network with statistics over its batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aim:
    """What was named, read, and where it will run."""

    files: Mapping[str, StudyFile]
    """By how each variant was named."""
    task: Task
    where: Where
    together: int = 1
    """Devices that a trial takes, as far as files and the launch say so: a study that is there may
    say another number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchPlan:
    """What the searches of each name are to be."""

    definitions: Mapping[str, StudyDefinition]
    of_networks: Sequence[str] = ()
    """What is to be said of classes of the user's own."""
    of_data: Sequence[str] = ()
    """What is to be said of the data: what was made up in it."""


def make_aim(request: LaunchRequest, *, environment: Mapping[str, str]) -> Aim:
    """Check what takes no time to check, in the order in which mistakes are cheapest to find.

    Raises:
        UsageError: a wrong variant, task file, study file, device or engine.
        TunerError: an engine that cannot be reached.
    """
    _check_target(request.settings)
    files = study_files(request.variants)
    if request.study is not None:
        if len(files) > 1:
            raise UsageError(
                f"--study {request.study} names one study, --variant names {len(files)}; launch "
                "them one by one"
            )
        check_study_name(request.study)
    task = load_task(request.task)
    where = choose_where(request.devices, environment=environment)
    numbers = {}
    for file in files.values():
        _check_training(file, request.settings, on_gpus=where.on_gpus)
        numbers[file.name] = trained_with(file, request.settings).gpus_per_trial
    together = devices_of_all(numbers)
    if where.engine is not None:
        refuse_placed(where.engine.label, together)
    else:
        grouped(where.devices, together)
    return Aim(files=files, task=task, where=where, together=together)


def make_plan(request: LaunchRequest, aim: Aim) -> LaunchPlan:
    """Check the rest of what a launch was asked for, which takes seconds.

    Raises:
        UsageError: a wrong study name, a network that cannot work, or a test split too short for
            `--mql-split origins`.
        DataError: data that is missing or unfit.
    """
    task = aim.task
    prepared = prepare(task, data_dir=request.data_dir)
    definitions = {}
    of_networks: list[str] = []
    for variant, file in aim.files.items():
        if file.program is not None:
            refuse_unlike_program(file.program, request.settings)
            of_networks.append(f"{file.name} runs {file.program.in_words()}")
        elif variant not in builtin_variants() or file.model not in builtin_names():
            of_networks += _of_network(variant, file, request)
        name = request.study or f"{task.name}-{file.name}"
        if request.settings.mql_split is MqlSplit.ORIGINS:
            refuse_few_windows(prepared)
        longest = name_of_search(name, request.searches or 1)
        if request.study:
            check_study_name(longest)
        else:
            check_study_name(longest, flag="--task and --variant", otherwise="--study")
        definitions[name] = definition_of(file, task, prepared.data_hash, request.settings)
    filled = prepared.filled_notice()
    return LaunchPlan(
        definitions=definitions, of_networks=of_networks, of_data=[filled] if filled else []
    )


def refuse_few_windows(prepared: PreparedData) -> None:
    """Whether the test split of each series can be cut.

    Raises:
        UsageError: it has too few windows.
    """
    split, horizon = prepared.test, prepared.task.horizon
    blocks = blocks_of(split.starts, split.series_index, horizon)
    for number, name in enumerate(prepared.series):
        mine = split.series_index == number
        if set(range(1, BLOCKS + 1)) <= set(blocks[mine].tolist()):
            continue
        raise UsageError(
            f"--mql-split origins: series {name!r} has {mine.sum()} test windows, too few to cut "
            f"into {BLOCKS} blocks of time; give more rows, or choose --mql-split val"
        )


def _of_network(variant: str, file: StudyFile, request: LaunchRequest) -> Sequence[str]:
    """What is to be said of a network that works. A mixer of a usual size, which only the settings
    of the user's file can make fail, is not tried: that takes a process with torch, some seconds.

    Raises:
        UsageError, TunerError: it cannot be trained.
    """
    if file.model in builtin_names() and file.training.loss is None:
        settings = file.model_settings
        arguments = {**settings, **network_arguments(file.default_hyperparameters())}
        try:
            check_mixer_arguments(file.model, settings, arguments)
        except UsageError as error:
            raise UsageError(f"{variant}: {error}") from None
        if of_usual_size(arguments):
            return []
    return check_network(variant, request.task, request.data_dir)


def definition_of(
    file: StudyFile, task: Task, data_hash: str, settings: StudySettings
) -> StudyDefinition:
    """With the defaults of a new study where nothing else was said."""
    return StudyDefinition.of(
        file,
        task=task.definition(),
        data_hash=data_hash,
        training=trained_with(file, settings),
        time_objective=settings.time_objective.value,
        mql_split=(settings.mql_split or task.usual_split).value,
        target_val_loss=settings.target_val_loss,
        seeds_per_trial=settings.seeds,
    )


def refuse_unlike_program(program: Program, settings: StudySettings) -> None:
    """Raises UsageError for a program that cannot be started here, or a setting that means nothing
    to one.
    """
    program.check()
    usual, of_program = StudySettings(), ("max_epochs", "gpus_per_trial")
    named = [
        flag.name
        for name, flag in flags(StudySettings).items()
        if name in TrainingSettings.model_fields
        and name not in of_program
        and getattr(settings, name) != getattr(usual, name)
    ]
    if settings.mql_split is MqlSplit.ORIGINS:
        named.append("--mql-split origins")
    if named:
        raise UsageError(
            f"{named[0]} is for networks that tuner trains; the study's program does as it does: "
            "leave it out"
        )


def _check_target(settings: StudySettings) -> None:
    """The registered validation loss is what the time to a target needs, and nothing else takes."""
    to_target = settings.time_objective is TimeObjective.TO_TARGET
    if (settings.target_val_loss is not None) != to_target:
        raise UsageError(
            f"--target-val-loss and --time-objective {TimeObjective.TO_TARGET.value} belong "
            "together; give both or none"
        )


def trained_with(file: StudyFile, settings: StudySettings) -> TrainingSettings:
    """The settings of training of a study file, but for those that were said.

    Raises:
        UsageError: one that the file searches over.
    """
    for name in OF_TRAINING:
        if settings.says(name) and name in file.space.ranges:
            raise UsageError(
                f"{settings.in_flags()[name]}: {file.name} searches over {name}; leave the flag "
                f"out, or [space.{name}] of its study file"
            )
    return settings.trained(file.training)


def _check_training(file: StudyFile, settings: StudySettings, *, on_gpus: bool) -> None:
    """Raises UsageError for settings of training that do not go together, or not on the device."""
    training = trained_with(file, settings)
    problem = why_not_together(training)
    if problem is not None:
        raise UsageError(problem)
    if training.gpus_per_trial > 1 and file.model == OF_A_BATCH:
        raise UsageError(
            f"gpus_per_trial {training.gpus_per_trial}: {file.name} normalises over its batch, of "
            "which each device would see a part only; choose gpus_per_trial 1, or another variant"
        )
    if on_gpus:
        return
    if training.precision is Precision.TF32:
        raise UsageError(
            "--precision tf32 is an arithmetic of CUDA GPUs; on the CPU choose fp32 or bf16"
        )
    if training.backend in (Backend.GRAPH, Backend.TRITON):
        raise UsageError(
            f"--backend {training.backend.value} needs a CUDA GPU; "
            "on the CPU choose compile, auto or eager"
        )
    if (problem := why_not_on(training, "cpu")) is not None:
        raise UsageError(problem)


def study_files(variants: str | Sequence[str]) -> dict[str, StudyFile]:
    """The study file of each variant named, by how it was named.

    Raises:
        UsageError: none is named, or one twice, or one that is not there.
    """
    names = names_of(variants)
    if not any(names):
        raise UsageError("--variant: the list is empty; expected e.g. rmsnorm or rmsnorm,original")
    if not all(names):
        raise UsageError(
            f"--variant: {variants!r} holds an empty name; expected e.g. rmsnorm,original"
        )
    files: dict[str, StudyFile] = {}
    for name in names:
        file = load_study_file(name)
        if any(file.name == other.name for other in files.values()):
            raise UsageError(f"--variant: {file.name!r} is named twice; name each variant once")
        files[name] = file
    return files


def called_as_built_in(definition: StudyDefinition) -> str:
    """What to say of another network under the name of a built-in variant; or nothing."""
    name, model = definition.variant, definition.architecture.model
    if name not in builtin_variants() or model == load_study_file(name).model:
        return ""
    return (
        f"{excerpt(without_folder(model))} is called as the built-in variant {name}: "
        f"'--variant {name}' means this study's, too; give the study file another name"
    )


def check_study_name(name: str, *, flag: str = "--study", otherwise: str = "") -> None:
    """Raises UsageError when a study cannot be called `name`, which `flag` says; `otherwise` is the
    flag that names it where that does not.
    """
    remedy = f"; name it yourself: {otherwise} NAME" if otherwise else ""
    fits = 0 < len(name) <= STUDY_NAME_LIMIT and name.isprintable() and name == name.strip()
    if name.startswith(("study:", "group:")):  # what names a study or a group where either may be
        raise UsageError(
            f"{flag}: {name!r} begins as the name of a group does; name it otherwise"
            + (f", with {otherwise} NAME" if otherwise else "")
        )
    if not fits or "," in name:  # workers take a list of names
        raise UsageError(
            f"{flag}: {name!r} cannot name a study; expected 1 to {STUDY_NAME_LIMIT} printable "
            f"characters, no comma, no blanks around them{remedy}"
        )
