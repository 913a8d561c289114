"""Commands whose options are the fields of a record: parsed, they are at once one value."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

import typer
from annotated_types import Ge, Gt, Le

from tuner.errors import UsageError, unknown_name
from tuner.settings import Flag, Settings, flags, types_taken

Options = TypeVar("Options")

SET = "set"
TYPED = "typed"
"""Where a field of options keeps how it is typed."""


def option(
    metavar: str | None = None, said: str = "", *, default: Any = None, named: str = "", **more: Any
) -> Any:
    """A field of options, or a parameter, that a flag sets: `--max-time` of `max_time`, unless it
    is `named` otherwise.

    Args:
        metavar: what stands for its value.
        said: the help.
        default: ... where one must be given.
        named: its flags, with a blank between them.
        more: what `typer.Option` takes beside.
    """
    return _field(typer.Option, default, named.split(), metavar=metavar, help=said, **more)


def switch(said: str, *, named: str = "") -> Any:
    """One that its flag sets to true."""
    return option(None, said, default=False, named=named)


def argument(metavar: str | None, said: str, *, default: Any = ..., **more: Any) -> Any:
    """One that has no flag."""
    more |= {"metavar": metavar, "help": said, "show_default": False}
    return _field(typer.Argument, default, [], **more)


def _field(kind: Callable[..., Any], default: Any, flags: list[str], **more: Any) -> Any:
    real = dataclasses.MISSING if default is ... else default
    return dataclasses.field(default=real, metadata={TYPED: (kind, flags, more)})


@dataclass(frozen=True, slots=True)
class Only:
    """The fields of a model that a command has options for, where it has not those of all."""

    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class But:
    """The fields of a model that a command has no options for, though they have flags."""

    fields: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Group:
    """A field of the options that is a model: an option for each field of it that has a flag."""

    model: type[Settings]
    flags: Mapping[str, Flag]
    """By the field's name."""

    def parameters(self) -> list[inspect.Parameter]:
        options: dict[str, Any] = {}
        for name, flag in self.flags.items():
            if not flag.is_key:
                options[_parameter(flag)] = _option(self.model, name, flag)
        if keys := self._keys():
            said = f"{', '.join(keys)}, as a study file says it; repeatable."
            options[SET] = Annotated[
                list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help=said)
            ]
        kind = inspect.Parameter.KEYWORD_ONLY
        return [
            inspect.Parameter(name, kind, default=None, annotation=hint)
            for name, hint in options.items()
        ]

    def _keys(self) -> list[str]:
        return [name for name, flag in self.flags.items() if flag.is_key]

    def taken_from(self, given: dict[str, Any]) -> Settings:
        """The model as it was said; what it needs is taken out of what was `given`.

        Raises:
            UsageError: a value that its flag does not take.
        """
        said = {}
        keys = self._keys()
        for text in (given.pop(SET) or ()) if keys else ():
            key, _, value = text.partition("=")
            if key not in keys:
                raise unknown_name("setting of --set", key, keys)
            said[key] = _in_toml(value)
            try:
                self.model(**{key: said[key]})
            except UsageError as error:
                raise UsageError(f"--set {text}: {str(error).partition(': ')[2]}") from None
        for name, flag in self.flags.items():
            typed = None if flag.is_key else given.pop(_parameter(flag))
            if typed is not None:
                said[name] = flag.read(typed)
        return self.model(**said)


def takes(options: type[Options]) -> Callable[[Callable[[Options], int]], Callable[..., int]]:
    """Make a command of a function of `options`: a dataclass whose fields are annotated as typer
    wants parameters, or are `Settings`, which come as what was said of them: `Annotated[Limits,
    But(("max_time_s",))]` but for one.
    """
    hints = get_type_hints(options, include_extras=True)
    groups: dict[str, _Group] = {}
    parameters: list[inspect.Parameter] = []
    fields = {each.name: each for each in dataclasses.fields(options)}  # type: ignore[arg-type]
    own = options.__annotations__  # what a command alone has is said before what several have
    signature = inspect.signature(options).parameters.values()
    for each in sorted(signature, key=lambda each: each.name not in own):
        group = _group_of(hints[each.name])
        if group is None:
            hint = _hint(each.name, hints[each.name], fields[each.name])
            parameters.append(each.replace(annotation=hint))
        else:
            groups[each.name] = group
            parameters += group.parameters()

    def command_of(function: Callable[[Options], int]) -> Callable[..., int]:
        @functools.wraps(function)
        def command(**given: Any) -> int:
            said = {name: group.taken_from(given) for name, group in groups.items()}
            return function(options(**given, **said))

        return _with_parameters(parameters, command)

    return command_of


def command(function: Callable[..., int]) -> Callable[..., int]:
    """Make a command of a function whose parameters are annotated as typer wants them, or have an
    `option`, a `switch` or an `argument` as their default.
    """
    hints = get_type_hints(function, include_extras=True)
    parameters = []
    for each in inspect.signature(function).parameters.values():
        default, hint = each.default, hints[each.name]
        if isinstance(default, dataclasses.Field):
            hint = _hint(each.name, hint, default)
            default = each.empty if default.default is dataclasses.MISSING else default.default
        kind = inspect.Parameter.KEYWORD_ONLY
        parameters.append(each.replace(default=default, annotation=hint, kind=kind))
    defaults = {each.name: each.default for each in parameters if each.default is not each.empty}

    @functools.wraps(function)
    def called(**given: Any) -> int:
        return function(**defaults | given)

    return _with_parameters(parameters, called)


def _with_parameters(
    parameters: list[inspect.Parameter], function: Callable[..., int]
) -> Callable[..., int]:
    function.__annotations__ = {each.name: each.annotation for each in parameters}
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return function


def _hint(name: str, hint: Any, field: dataclasses.Field[Any]) -> Any:
    """What typer wants to see of a field."""
    if TYPED not in field.metadata:
        return hint
    kind, flags, more = field.metadata[TYPED]
    if kind is typer.Option and not flags:
        flags = [f"--{name.replace('_', '-')}"]
    return Annotated[hint, kind(*flags, **more)]


def _group_of(hint: Any) -> _Group | None:
    model, *told = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    if not (isinstance(model, type) and issubclass(model, Settings)):
        return None
    names = [name for name, flag in flags(model).items() if flag.name]
    for each in told:
        names = [name for name in names if (name in each.fields) is isinstance(each, Only)]
    return _Group(model, {name: flags(model)[name] for name in names})


def _in_toml(text: str) -> Any:
    """As a study file has it; what is no value there is a text that lacks its quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def _parameter(flag: Flag) -> str:
    return flag.name.removeprefix("--").replace("-", "_")


def _option(model: type[Settings], name: str, flag: Flag) -> Any:
    """What typer wants: text where the flag has a unit, else what the field is."""
    kind: Any = str
    declared, bounds = flag.name, dict[str, Any]()
    if flag.unit is None:
        kind = next(each for each in types_taken(model)[name] if each is not type(None))
        if kind is bool:
            declared = f"{flag.name}/--no-{flag.name.removeprefix('--')}"
        elif not issubclass(kind, Enum):
            bounds = _bounds(model.model_fields[name].metadata)
    option = typer.Option(declared, metavar=flag.metavar, help=flag.help, **bounds)
    return Annotated[kind | None, option]


def _bounds(metadata: list[Any]) -> dict[str, Any]:
    """The least and the largest whole number that a field takes."""
    found: dict[str, Any] = {}
    for each in metadata:
        if isinstance(each, Ge):
            found["min"] = int(each.ge)  # type: ignore[call-overload]
        elif isinstance(each, Gt):
            found["min"] = int(each.gt) + 1  # type: ignore[call-overload]
        elif isinstance(each, Le):
            found["max"] = int(each.le)  # type: ignore[call-overload]
    return found
