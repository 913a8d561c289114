"""`tuner variants`: which architectures there are, what each changes, and why."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import signal
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tuner.cli.command import command, option
from tuner.cli.init import windows_of
from tuner.cli.options import DataDir, Json, TaskName, data_folder
from tuner.cli.output import note, print_json, printed_to_stderr, say
from tuner.config import (
    LIBRARY,
    OF_THE_TASK,
    OF_TRAINING,
    Hyperparameters,
    ModelShapes,
    Value,
    library_class,
    shapes_seen,
)
from tuner.errors import TunerError, UsageError
from tuner.files.environment import nothing_collected
from tuner.files.plain import excerpt, in_json
from tuner.models.names import LAYERS, TIME_LLM, builtin_names

if TYPE_CHECKING:
    from tuner.data.prepare import PreparedData
    from tuner.spec.study_file import StudyFile
    from tuner.training.initial_outputs import Beginnings, Pair
    from tuner.training.one_step import OneStep


# Does a network know each choice that its study file declares, and each hyperparameter that is
# there only sometimes? And can it be trained with each batch size?


OF_NO_NETWORK = ("learning_rate", "weight_decay", "batch_size", *OF_THE_TASK, *OF_TRAINING)

AT_MOST = 32
"""Networks that are built, each at the defaults but for one value."""


def choices_that_fail(file: StudyFile, shapes: ModelShapes) -> list[str]:
    """What is to be said of each choice, and of each hyperparameter with a condition, with which
    the network cannot be built.
    """
    from tuner.models.fault import FAULTS, on_one_line
    from tuner.training.one_step import build_within_memory

    said = []
    for named, params in itertools.islice(_configurations(file), AT_MOST):
        hyperparameters = Hyperparameters.of(params, loss=file.training.loss)
        try:
            seen = shapes_seen(shapes, hyperparameters)
            build_within_memory(file.architecture(), hyperparameters, seen)
        except FAULTS as error:
            why = str(error) if isinstance(error, TunerError) else on_one_line(error)
            said.append(f"{named} fails: {excerpt(why, at_most=300)}")
    return said


def batch_sizes_that_fail(file: StudyFile, prepared: PreparedData) -> list[str]:
    """What is to be said of batch sizes other than the default that leave one window for the last
    batch, where a step on that fails. If the default does, its own check has said so.
    """
    from tuner.training.batching import sizes_with_a_lone_window
    from tuner.training.one_step import train_one_step

    hyperparameters, searched = file.default_hyperparameters(), file.space.batch_size
    if searched is None:
        return []
    found = sizes_with_a_lone_window(len(prepared.train.starts))
    sizes = [size for size in found if not searched.outside(size)]
    if not sizes or hyperparameters.batch_size in sizes:
        return []
    tried = dataclasses.replace(hyperparameters, batch_size=sizes[-1])
    try:
        train_one_step(file.architecture(), tried, file.training, prepared, inspected=False)
    except UsageError as error:
        listing = excerpt(", ".join(map(str, sizes)))
        fail = "fails" if len(sizes) == 1 else "fail"
        return [f"batch_size = {listing} {fail}: {excerpt(str(error), at_most=300)}"]
    return []


def _configurations(file: StudyFile) -> Iterator[tuple[str, dict[str, Value]]]:
    """What is tried, in words, and the configuration that has it: each choice that is not the
    default's, and the most layers, then whatever none of these, nor the defaults, have.
    """
    defaults = file.defaults.values()
    tried = set(defaults)
    for name, r in file.space.ranges.items():
        most = (int(r.bounds()[1]),) if name == LAYERS and r.whole and not r.named else ()
        for choice in r.named or most if name not in OF_NO_NETWORK else ():
            params = file.space.nearest({**defaults, name: choice}, defaults)
            if params.get(name) == choice and choice != defaults.get(name):
                tried |= set(params)
                yield f"{name} = {choice!r}", params
    for name, r in file.space.ranges.items():
        if name in tried or name in OF_NO_NETWORK or r.when is None:
            continue
        there = {other: values[0] for other, values in r.condition.items()}
        params = file.space.nearest({**defaults, **there}, defaults)
        if name in params:
            tried |= set(params)
            where = " and ".join(f"{other} is {value!r}" for other, value in there.items())
            yield f"{name} = {params[name]!r}, where {where},", params


# `tuner variants --check neuralforecast`: which of that library's models work on a task, and what
# each does with it.


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What was seen of one class; of one that does not work, why."""

    name: str
    why_not: str | None = None
    multivariate: bool | None = None
    past: bool | None = None
    future: bool | None = None
    static: bool | None = None
    parameters: int | None = None
    step_s: float | None = None
    remarks: tuple[str, ...] = ()


def check_library(task: str, data_dir: Path | None, *, json: bool) -> int:
    """Train each class for one step at its defaults, and print what each can do.

    Raises:
        UsageError: a wrong task, or neuralforecast is not installed.
        DataError: data that is missing or unfit.
    """
    from tuner.data.prepare import prepare
    from tuner.data.task import load_task
    from tuner.models.of_neuralforecast.library_source import model_names

    prepared = prepare(load_task(task), data_dir=data_dir)
    names = sorted(model_names(), key=str.lower)
    rows = []
    for number, name in enumerate(names, start=1):
        note(f"{number} of {len(names)}: {name}")
        rows.append(_checked(name, prepared))
        gc.collect()  # one may have held gigabytes
    if json:
        print_json(_library_document(rows, prepared))
    else:
        _print(rows, prepared)
    return 0


def _checked(name: str, prepared: PreparedData) -> Checked:
    with nothing_collected():
        from tuner.models.of_neuralforecast.build import GIVEN, find_class, remarks_on
        from tuner.models.registry import network_arguments
        from tuner.training.one_step import train_one_step
    from tuner.spec.study_file import load_study_file

    try:
        file = load_study_file(f"{LIBRARY}:{name}")
        hyperparameters = file.default_hyperparameters()
        step = train_one_step(
            file.architecture(),
            hyperparameters,
            file.training,
            prepared,
            inspected=False,  # which takes several times as long
        )
        model = find_class(name)
        remarks = remarks_on(name, prepared.shapes, network_arguments(hyperparameters))
    except TunerError as error:
        said = str(error).removeprefix(f"{LIBRARY}:{name}")
        why_not = said.lstrip(": ").partition(GIVEN)[0]  # nobody gave it anything
        return Checked(name=name, why_not=why_not)
    return Checked(
        name=name,
        multivariate=model.MULTIVARIATE,
        past=model.EXOGENOUS_HIST,
        future=model.EXOGENOUS_FUTR,
        static=model.EXOGENOUS_STAT,
        parameters=step.parameters.trained,
        step_s=step.seconds,
        remarks=remarks,
    )


def _library_document(rows: Sequence[Checked], prepared: PreparedData) -> dict[str, Any]:
    from tuner.training.one_step import MOST_WINDOWS

    return {
        **in_json(prepared, "data_hash", task="task.name"),
        "windows": MOST_WINDOWS,
        "shapes": prepared.shapes.sizes(),
        "models": [dataclasses.asdict(row) for row in rows],
    }


def _print(rows: Sequence[Checked], prepared: PreparedData) -> None:
    from rich.table import Table

    from tuner.display.terminal import make_console

    table = Table(
        "model",
        "targets",
        "covariates",
        "parameters",
        "CPU time of a step",
        "remarks",
        title=f"Models of {LIBRARY} on task {prepared.task.name}",
    )
    for row in rows:
        table.add_row(row.name, *cells(row))
    make_console().print(table)
    works = sum(row.why_not is None for row in rows)
    say(f"{works} of {len(rows)} work; each forecasts all {prepared.shapes.n_quantiles} quantiles")


def cells(row: Checked) -> tuple[str, str, str, str, str]:
    """Everything about a class but its name, as a table shows it."""
    if row.why_not is not None:
        return "", "", "", "", f"does not work: {row.why_not}"
    taken = [kind for kind in ("past", "future", "static") if getattr(row, kind)]
    return (
        "together" if row.multivariate else "each alone",
        ", ".join(taken) or "none",
        f"{row.parameters:,}",
        f"{row.step_s:.3f} s",
        "; ".join(row.remarks),
    )


@command
def variants(
    check: str | None = option(
        "NAME|FILE",
        "Prepare --task's data, train this variant one step: does it work? "
        "neuralforecast: each of that library's models, which takes minutes.",
    ),
    against: str | None = option(
        "NAME|FILE",
        "With --check: what the variant is a rewrite of. Do its layers start as there? "
        "The mixers are held against original.",
    ),
    task: TaskName = "demo",
    data_dir: DataDir = None,
    json: Json = False,
    supervised_by: int | None = option(hidden=True),
) -> int:
    """List the variants that come with tuner."""
    from tuner.spec.study_file import builtin_variants, load_study_file

    if supervised_by is not None:
        from tuner.files.child import end_with

        end_with(supervised_by, signal.SIGKILL)
    if against is not None and check in (None, LIBRARY):
        raise UsageError("--against is for --check of one variant; name it")
    if check == LIBRARY:
        return check_library(task, data_folder(data_dir), json=json)
    if check is not None:
        return _check(check, against, task, data_dir, json=json)
    files = [load_study_file(name) for name in builtin_variants()]
    if json:
        rows = [
            in_json(file, "name", "title", "core_change", "source")
            | {
                "why": file.why.strip(),
                "defaults": file.defaults.values(),
                "space": file.space.model_dump(mode="json", exclude_none=True),
            }
            for file in files
        ]
        print_json({"variants": rows})
        return 0
    from rich.table import Table

    from tuner.display.terminal import make_console

    table = Table("variant", "core change", "why", "source", title="Variants", show_lines=True)
    for file in files:
        table.add_row(file.name, file.core_change, " ".join(file.why.split()), file.source)
    make_console().print(table)
    return 0


def _check(
    variant: str, against: str | None, task: str, data_dir: Path | None, *, json: bool
) -> int:
    """What a launch would meet: the study file, the task,
    its data, and one step of the network's training.
    """
    from tuner.data.prepare import prepare
    from tuner.data.task import load_task
    from tuner.spec.study_file import load_study_file

    file = load_study_file(variant)
    reference = _reference(file, against)
    if file.program is not None:
        return _check_program(file, task, json=json)
    file.named_files()
    loaded = load_task(task)
    if problem := file.space.input_size_problem(loaded.definition()):
        raise UsageError(f"{variant}: {problem}")
    prepared = prepare(loaded, data_dir=data_folder(data_dir))
    # What a class of the user's own prints is not part of the document.
    with printed_to_stderr(wanted=json):
        with nothing_collected():
            from tuner.models.own import methods_not_used
            from tuner.models.registry import pooling_of, unused_parts
            from tuner.training.one_step import train_one_step

        architecture = file.architecture()
        unused = methods_not_used(architecture)
        try:
            seen = train_one_step(
                architecture, file.default_hyperparameters(), file.training, prepared
            )
        except UsageError as error:
            beside = f"{variant}: " if variant.endswith(".toml") else ""
            raise UsageError(f"{beside}{error}") from error
        findings = seen.findings
        if library_class(file.model) is not None:  # nobody here will change that class
            findings = replace(findings, dead_parameters=(), ignored_inputs=())
        if file.model == TIME_LLM:  # which says so itself
            findings = replace(findings, ignored_inputs=(), waits=type(findings.waits)())
        said = [*unused_parts(architecture, prepared.shapes), *findings.notices(file.model)]
        said += seen.term.notices() if seen.term else ()
        if pooled := pooling_of(architecture, prepared.shapes, file.default_hyperparameters()):
            said.append(pooled)
        said += choices_that_fail(file, prepared.shapes)
        said += batch_sizes_that_fail(file, prepared)
        start = None if reference is None else Start.of(file, reference, prepared)
    if json:
        print_json(
            _document(file, prepared, seen)
            | {"unused_methods": list(unused), "notices": said}
            | ({} if start is None else {"start": start.as_dict()})
        )
        return 0
    _say_checked(file, task, prepared, seen)
    if start is not None:
        start.say()
    for line in said:
        note(line)
    return 0


def _reference(file: StudyFile, against: str | None) -> StudyFile | None:
    """What the variant's layers are held against."""
    from tuner.spec.study_file import load_study_file

    baseline, *rewrites = builtin_names()
    named = baseline if against is None and file.model in rewrites else against
    found = None if named is None else load_study_file(named)
    if found is not None and (file.program or found.program):
        raise UsageError("--against holds layers against layers, and a program shows none; omit it")
    return found


LINES = 12
"""So many layers are shown; all of them are in the document."""


@dataclass(frozen=True, slots=True)
class Start:
    """How a variant's untrained network begins, beside the one that it is a rewrite of."""

    reference: str
    ours: Beginnings
    theirs: Beginnings
    pairs: tuple[Pair, ...]

    @staticmethod
    def of(file: StudyFile, reference: StudyFile, prepared: PreparedData) -> Start:
        """Both at the defaults of their studies.

        Raises:
            UsageError, TunerError: one of the networks cannot be used.
        """
        from tuner.config import RunConfig
        from tuner.training.initial_outputs import beginnings, paired

        both = []
        for each in (file, reference):
            chosen = each.default_hyperparameters()
            config = RunConfig(
                architecture=each.architecture(), hyperparameters=chosen, training=each.training
            )
            both.append(beginnings(config, prepared))
        ours, theirs = both
        return Start(reference.name, ours, theirs, paired(ours, theirs))

    def as_dict(self) -> dict[str, Any]:
        """For `--json`: every layer."""
        return {
            "against": self.reference,
            "losses": list(self.ours.losses),
            "reference_losses": list(self.theirs.losses),
            "layers": [pair.as_dict() for pair in self.pairs],
        }

    def say(self) -> None:
        """Blocks, and the first layer that differs."""
        from rich.table import Table

        from tuner.display.terminal import make_console
        from tuner.training.initial_outputs import first_that_differs, in_words

        first, second = (statistics.median(each.losses) for each in (self.ours, self.theirs))
        seeds = len(self.ours.losses)
        say(f"untrained, from {seeds} seeds: loss {first:.4g}, of {self.reference} {second:.4g};")
        say(f"  {in_words(self.pairs, self.reference)}")
        table = Table("layer", "mean", "spread", self.reference, "its mean", "its spread", "times")
        first_other = first_that_differs(self.pairs)
        shown = [each for each in self.pairs if each is first_other or not each.ours.inside]
        for pair in [*shown[: LINES - 1], *shown[LINES - 1 :][-1:]]:
            its, other = pair.ours, pair.theirs
            table.add_row(
                its.name,
                f"{its.mean:.3f}",
                f"{its.spread:.3f}",
                "" if other.name == its.name else other.name,
                f"{other.mean:.3f}",
                f"{other.spread:.3f}",
                f"{pair.factor:.2f}",
            )
        make_console().print(table)


def _document(file: StudyFile, prepared: PreparedData, seen: OneStep) -> dict[str, Any]:
    return {
        **in_json(file, "name", "model"),
        "parameters": seen.parameters.trained,
        **({"frozen_parameters": seen.parameters.frozen} if seen.parameters.frozen else {}),
        **in_json(prepared, "data_hash", "series", task="task.name"),
        "windows": windows_of(prepared),
        "step": {"windows": seen.windows, "loss": seen.loss},
        **({"loss_term": seen.term.as_dict()} if seen.term else {}),
        **seen.findings.as_dict(),
    }


def _say_checked(file: StudyFile, task: str, prepared: PreparedData, seen: OneStep) -> None:
    say(f"{file.name}: {file.model} works, {seen.parameters} at its defaults on task {task}")
    counted = ", ".join(f"{number:,} {name}" for name, number in windows_of(prepared).items())
    say(f"checked: the data ({len(prepared.series)} series; windows: {counted}),")
    say(
        f"  one training step on {seen.windows} of them: forward, loss {seen.loss:.4g}, backward, "
        "update"
    )
    if seen.term is not None:
        say(f"  the term {seen.term.name} of its loss: {seen.term.in_words()}")


def _check_program(file: StudyFile, task: str, *, json: bool) -> int:
    """What a launch would meet where a program trains: three short runs of it."""
    from tuner.data.task import load_task
    from tuner.spec.definition import StudyDefinition

    program = file.program
    assert program is not None, "it has one"
    program.check()
    on = load_task(task)
    definition = StudyDefinition.of(
        file,
        task=on.definition(),
        data_hash="0" * 64,  # nothing is stored
        training=file.training,
        mql_split=on.usual_split.value,
    )
    with nothing_collected():
        from tuner.trial.program.run_program import check_program

        found = check_program(definition)
    if json:
        print_json(
            {
                **in_json(file, "name", "model"),
                **in_json(program, "command", "clock"),
                "task": on.name,
                **dataclasses.asdict(found),
                "notices": list(found.notices),
            }
        )
        return 0
    say(f"{file.name}: {program.in_words()} works, by the clock {program.clock}")
    say(
        f"checked: three runs of {found.epochs} epochs, {found.setup_s:.3g} s to set up and "
        f"{found.s_per_epoch:.3g} s an epoch: the default on two seeds, and other hyperparameters"
    )
    for line in found.notices:
        note(line)
    return 0
