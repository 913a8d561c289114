"""`tuner profile`: where a training's time goes, what would help, and by how much."""

from __future__ import annotations

from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tuner.cli.command import argument, option, takes
from tuner.cli.device import OneDeviceOptions, alone_on, chosen_device, refuse_tf32
from tuner.cli.options import Json, data_folder
from tuner.cli.output import note, print_json, printed_to_stderr
from tuner.cli.replace import Force, check_files, is_profile_page, is_trace
from tuner.config import Backend, Precision, RunConfig, names_own_code
from tuner.errors import TunerError, UsageError, exit_code_of
from tuner.files.durable import put
from tuner.files.plain import excerpt

if TYPE_CHECKING:
    from tuner.config import Value
    from tuner.devices import CpuCores, Gpu
    from tuner.profile.profile_records import Profile, Tell
    from tuner.spec.study_file import StudyFile


# A profile that is shown as it is measured, and kept where it is stopped.


@dataclass(slots=True)
class Shown:
    """What is measured so far, and which of its tables the terminal has."""

    to_terminal: bool
    profile: Profile | None = None
    printed: set[str] = field(default_factory=set)
    exit_code: int = 0

    def tell(self, now: Profile) -> None:
        """Of more that was measured."""
        from tuner.display.terminal import make_console
        from tuner.profile.profile_page import print_measured

        self.profile = now
        if self.to_terminal:
            print_measured(now, make_console(), self.printed)

    @contextmanager
    def until_stopped(self) -> Iterator[None]:
        """What Ctrl-C or SIGTERM stops is left, and what there is by then is kept.

        Raises:
            KeyboardInterrupt: that was before there was anything.
        """
        try:
            yield
        except KeyboardInterrupt as stop:
            if self.profile is None:
                raise
            self.exit_code = exit_code_of(stop)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileOptions(OneDeviceOptions):
    """The options of `tuner profile`."""

    arguments: list[str] | None = argument(
        "[-- ARGUMENT...]", "Of the script, after --.", default=None
    )
    variant: str | None = option("NAME|FILE|CLASS", "Variant, study file or class to train.")
    python: Path | None = option("FILE.py", "A training script of your own, in its place.")
    task: str | None = option("NAME|FILE", "etth, demo, or a task file (.toml) [etth].")
    steps: int = option("N", "Training steps to time.", default=200, min=10)
    set: list[str] | None = option("NAME=VALUE", "A hyperparameter, in place of the default.")
    backend: Backend | None = option(
        None, "How the mathematics is executed (the study file's, or auto)."
    )
    precision: Precision | None = option(
        None, "Arithmetic of the products (the study file's, or fp32)."
    )
    advice: bool = option(
        None, "Try what may help, and say what it gave.", default=True, named="--advice/--no-advice"
    )
    html: Path | None = option("FILE.html", "Write a page with the timeline.")
    trace: Path | None = option("FILE.json", "Write a trace for chrome://tracing.")
    force: Force = False
    json: Json = False


@takes(ProfileOptions)
def profile(options: ProfileOptions) -> int:
    """Measure where the time of a training goes, and try what would help.

    Stage times that add up, memory against batch size, kernels, and the bottleneck in one sentence.
    """
    _check(options)
    shown, partial = Shown(to_terminal=not options.json), _partial(options)
    measure = _of_variant if options.python is None else _of_script
    try:
        # What somebody else's code prints is not part of the document.
        with printed_to_stderr(wanted=options.json), shown.until_stopped():
            measure(options, shown.tell)
        assert shown.profile is not None, "it was measured"
        _report(options, shown.profile, shown.printed)
    finally:
        if partial is not None:
            partial.unlink(missing_ok=True)
    return shown.exit_code


def _check(options: ProfileOptions) -> None:
    if (options.variant is None) == (options.python is None):
        raise UsageError("say what to profile: either --variant NAME, or --python FILE.py")
    if options.arguments and options.python is None:
        raise UsageError("arguments after -- are for a script: give --python FILE.py too")
    if options.python is not None:
        settings = (options.set, options.backend, options.precision, options.task)
        if any(each is not None for each in settings):
            raise UsageError(
                "--task, --set, --backend and --precision are for a variant; a script has its own "
                "arguments"
            )
        if not options.python.is_file():
            raise UsageError(f"--python: there is no file {excerpt(str(options.python))}")
    html, trace = options.html, options.trace
    ours = {"--html": (html, is_profile_page), "--trace": (trace, is_trace)}
    check_files(ours, force=options.force)
    if trace is not None:
        trace.parent.mkdir(parents=True, exist_ok=True)


def _partial(options: ProfileOptions) -> Path | None:
    """Where the profiler writes its trace: it says nothing of what it cannot write."""
    trace = options.trace
    return None if trace is None else trace.with_name(f".{trace.name}.partial").absolute()


def _of_variant(options: ProfileOptions, tell: Tell) -> None:
    from tuner.spec.study_file import load_study_file

    assert options.variant is not None, "it was checked"
    file = load_study_file(options.variant)
    config = _config(options, file)
    device = chosen_device(gpu=options.gpu, cpu=options.cpu)
    loss = config.training.loss
    for named in (config.architecture.model, "" if loss is None else loss.term):
        if names_own_code(named):
            note(f"this runs the code of {excerpt(named, at_most=500)}")
    _profiled(options, file.name, config, device, tell)


def _profiled(
    options: ProfileOptions, name: str, config: RunConfig, device: Gpu | CpuCores, tell: Tell
) -> None:
    """Alone on the device."""
    from tuner.bench.contender import torch_device
    from tuner.data.prepare import prepare
    from tuner.data.task import load_task
    from tuner.data.windows import to_device
    from tuner.profile.variant_profile import profile_variant

    refuse_tf32(config.training.precision, device)
    prepared = prepare(load_task(options.task or "etth"), data_dir=data_folder(options.data_dir))
    with alone_on(device):
        prepared = prepared.within(config.training.data_memory)
        data = to_device(prepared, torch_device(device)).seeing(config.hyperparameters.input_size)
        profile_variant(
            name,
            config,
            data,
            device,
            steps=options.steps,
            advice=options.advice,
            trace=_partial(options),
            announce=note,
            tell=tell,
        )


def _of_script(options: ProfileOptions, tell: Tell) -> None:
    """Other people's code: in a process of its own, which ends after so many steps."""
    from tuner.profile.script_profile import Script, profile_script

    assert options.python is not None, "it was checked"
    device = chosen_device(gpu=options.gpu, cpu=options.cpu)
    note(f"this runs {excerpt(str(options.python), at_most=500)}, several times where advice is")
    script = Script(
        path=options.python,
        arguments=tuple(options.arguments or ()),
        steps=options.steps,
        trace=_partial(options),
    )
    with alone_on(device):
        profile_script(script, device, advice=options.advice, announce=note, tell=tell)


def _config(options: ProfileOptions, file: StudyFile) -> RunConfig:
    """The variant's defaults, with what was said.

    Raises:
        UsageError: a value that the variant does not take.
    """
    from tuner.config import Hyperparameters
    from tuner.errors import unknown_name

    values: dict[str, Value] = dict(file.default_hyperparameters().as_dict())
    seen: set[str] = set()
    for text in options.set or ():
        name, sign, said = text.partition("=")
        if not sign:
            raise UsageError(f"--set: {excerpt(text)} is no NAME=VALUE, e.g. hidden_size=128")
        if name in seen:
            raise UsageError(f"{excerpt(name)} is given twice; say it once")
        seen.add(name)
        if name not in values:
            raise unknown_name("hyperparameter", name, list(values))
        values[name] = _value(name, said, values[name])
    training = file.training
    if options.backend is not None:
        training = training.but(backend=options.backend)
    if options.precision is not None:
        training = training.but(precision=options.precision)
    return RunConfig(
        architecture=file.architecture(),
        hyperparameters=Hyperparameters.of(values, loss=training.loss),
        training=training,
    )


def _value(name: str, said: str, default: Value) -> Value:
    """Of the kind that the default has."""
    kind = type(default)
    try:
        if kind is bool:
            return {"true": True, "false": False}[said.lower()]
        return kind(said)
    except (ValueError, KeyError):
        expected = {int: "a whole number", float: "a number", bool: "true or false"}.get(kind, "")
        raise UsageError(f"--set {name}: {excerpt(said)} is not {expected}") from None


def _report(options: ProfileOptions, found: Profile, printed: Container[str]) -> None:
    from tuner.display.terminal import make_console
    from tuner.profile.profile_page import as_document, as_page, print_profile
    from tuner.profile.profile_records import OPERATIONS
    from tuner.report.comparison_files import put_text

    if options.json:
        print_json(as_document(found))
    else:
        print_profile(found, make_console(), printed)
    if options.html is not None:
        put_text(options.html, as_page(found))
        note(f"wrote {options.html}")
    partial = _partial(options)
    if options.trace is not None and partial is not None:
        if OPERATIONS in found.left:  # what the profiler has written is not whole
            note(f"{options.trace} was not written: the profile was stopped before")
            return
        if not partial.exists():
            raise TunerError(f"--trace: {options.trace} was not written: the profiler gave none")
        try:
            put(options.trace, partial.read_bytes())
            partial.unlink()
        except OSError as error:
            said = f"--trace: {options.trace} cannot be written: {error.strerror}"
            raise TunerError(f"{said}; it is kept as {partial}") from None
        note(f"wrote {options.trace}")
