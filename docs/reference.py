"""Writes what follows from the code: docs/cli.md with the tables of settings, docs/api.md, and what
`make demo` printed.

    python docs/reference.py            write them
    python docs/reference.py --check    exit with 1 when one is not what the code says

docs/demo.txt holds what `make demo` printed at its end; docs/start.md shows it between
`<!-- demo -->` and `<!-- /demo -->`.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

DOCS = Path(__file__).resolve().parent
REPOSITORY = DOCS.parent
MODULES = (
    "tuner",
    "tuner.api",
    "tuner.callbacks",
    "tuner.launch",
    "tuner.launch.retune",
    "tuner.report.figures",
)
"""What scripts and notebooks import from: each lists its names in `__all__`."""
WIDTH = 100
MADE = "<!-- Made by `python docs/reference.py`; do not edit by hand. -->"

SETTINGS_HEAD = """\
## Settings of training

The keys of a study file's `[training]` table, and the flags of `launch` and `retune`. A flag counts over the file. Each
is part of what a study is: for another value, start another study with `--study NAME`.

{study}

## Settings of a search

Each belongs to the study. A later launch keeps what earlier ones said, and may change it; workers follow with their
next trial. `none` lifts a limit.

{search}
"""

CLI_HEAD = """\
# Commands

{made}

This page holds what `--help-all` prints. `--help` leaves out rare options; `-h` is the same.

Bash and zsh complete its words: see `--install-completion`.

The database is `--storage URL`. Without it, `TUNER_STORAGE` counts, and without that `sqlite:///storage/tuner.db`.

{table}

## Scripts and exit codes

With `--json`, a command prints exactly one JSON document on stdout, also when there is nothing to show yet. When it
fails, the document is `{{"error": {{"message": …, "exit_code": …}}}}`. Everything else goes to stderr.

```console
$ tuner status --json
$ tuner variants --json
$ tuner doctor --json
```

| exit code | meaning |
|---|---|
| 0 | done |
| {failed} | data, database, disk or training failed |
| {misused} | a wrong flag, name or TOML file |
| 3, 4 | `tuner gate`: worse; undecided |
| {interrupted}, {terminated} | interrupted by Ctrl-C or SIGTERM, after a clean stop |
"""

API_HEAD = """\
# Python

{made}

Import from these modules. What is not listed here may move from one version to the next. The classes for neuralforecast
have [a section of their own](use-the-result.md#in-neuralforecast).
"""


def cli() -> str:
    """docs/cli.md: every command with its help."""
    from tuner.errors import INTERRUPTED, TERMINATED, TunerError, UsageError

    found = list(_commands())
    rows = [
        f"| {_link(name)} | {command.get_short_help_str(2 * WIDTH)} |" for name, command in found
    ]
    head = CLI_HEAD.format(
        made=MADE,
        table="\n".join(["| command | what it does |", "|---|---|", *rows]),
        failed=TunerError.exit_code,
        misused=UsageError.exit_code,
        interrupted=INTERRUPTED,
        terminated=TERMINATED,
    )
    return "\n".join([head, settings(), *(_help(name, command) for name, command in found)])


def settings() -> str:
    """The tables of what a study file, `launch` and `retune` can say, from their declarations."""
    from tuner.config import TrainingSettings
    from tuner.spec.policy import SearchPolicy, StudySettings

    file_keys = TrainingSettings.model_fields
    return SETTINGS_HEAD.format(
        study=_settings_table(StudySettings, file_keys), search=_settings_table(SearchPolicy, ())
    )


def _settings_table(model: Any, file_keys: Collection[str]) -> str:
    """A row for each field that somebody can say; one that stands in a study file has its key."""
    from tuner.settings import flags

    rows = []
    for name, field in model.model_fields.items():
        flag = flags(model).get(name)
        typed = flag.name if flag else ""
        if flag and flag.is_key:
            typed = f"--set {typed}="
        if not typed and name not in file_keys:
            continue
        key = f"`{name}`" if name in file_keys else ""
        said = field.description or (flag.help if flag else "")
        values = _values(field.annotation)
        cells = (key, f"`{typed}`" if typed else "", _usual(field, flag), f"{said}{values}")
        rows.append(f"| {' | '.join(cells)} |")
    if file_keys:
        head = ["| key | flag | default | meaning |", "|---|---|---|---|"]
    else:
        rows = [row.removeprefix("|  ") for row in rows]
        head = ["| flag | default | meaning |", "|---|---|---|"]
    return "\n".join([*head, *rows])


def _usual(field: Any, flag: Any) -> str:
    """A field's default as one types it."""
    value = field.default
    if isinstance(value, bool):
        return "yes" if value else "no"
    if flag is None or not flag.name or flag.is_key:
        return "none" if value is None else f"`{value}`"
    if value is None and flag.none is ... and not flag.usual:
        return ""
    words = flag.says(value).removeprefix(flag.name).strip()
    return words if value is None else f"`{words}`"


def _values(annotation: Any) -> str:
    """The values of a choice, to be put behind what it says."""
    choices = [each for each in (annotation, *get_args(annotation)) if inspect.isclass(each)]
    for choice in choices:
        if issubclass(choice, Enum):
            return f" One of {', '.join(f'`{each.value}`' for each in choice)}."
    return ""


def _commands() -> Iterator[tuple[str, Any]]:
    """Every command with its full name, those of a group after each other."""
    import typer

    from tuner.cli.app import app

    for name, command in typer.main.get_command(app).commands.items():  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        if inner is None:
            yield name, command
        else:
            yield from ((f"{name} {below}", each) for below, each in inner.items())


def _link(name: str) -> str:
    return f"[`tuner {name}`](#tuner-{name.replace(' ', '-')})"


def _help(name: str, command: Any) -> str:
    context = command.make_context(
        f"tuner {name}", [], resilient_parsing=True, terminal_width=WIDTH
    )
    text = "\n".join(line.rstrip() for line in command.whole_help(context).splitlines())
    return f"## tuner {name}\n\n```text\n{text}\n```\n"


def api() -> str:
    """docs/api.md: every name that is for others, with its signature and docstring."""
    parts = [API_HEAD.format(made=MADE)]
    for module_name in MODULES:
        module = importlib.import_module(module_name)
        parts.append(f"## {module_name}\n\n{_prose(inspect.getdoc(module) or '')}\n")
        for name in sorted(module.__all__, key=str.lower):
            thing = getattr(module, name)
            if inspect.isclass(thing):
                parts += _class(module_name, name, thing)
            elif callable(thing):
                parts.append(
                    _entry("###", f"{module_name}.{name}", f"{name}{_signature(thing)}", thing)
                )
    return "\n".join(parts)


def _class(module_name: str, name: str, thing: type) -> list[str]:
    signature = f"{name}{_signature(thing)}"
    parts = [_entry("###", f"{module_name}.{name}", f"class {signature}", thing)]
    for member, found in vars(thing).items():
        if member.startswith("_") or not getattr(found, "__doc__", None):
            continue
        if isinstance(found, property):
            parts.append(
                _entry("####", f"{name}.{member}", f"{member}{_result(found.fget)}", found)
            )
        elif inspect.isfunction(found):
            parts.append(_entry("####", f"{name}.{member}", f"{member}{_signature(found)}", found))
        elif isinstance(found, classmethod | staticmethod):
            parts.append(
                _entry(
                    "####",
                    f"{name}.{member}",
                    f"{member}{_signature(getattr(thing, member))}",
                    found,
                )
            )
    return parts


def _entry(level: str, heading: str, signature: str, thing: Any) -> str:
    return (
        f"{level} {heading}\n\n```text\n{signature}\n```\n\n{_prose(inspect.getdoc(thing) or '')}\n"
    )


def _signature(thing: Any) -> str:
    """The signature as it is written in the code, an argument a line where it is long."""
    if inspect.isclass(thing) and issubclass(thing, BaseModel):
        thing.model_rebuild()  # one that nobody has used yet shows the fields of its parent
    signature = inspect.signature(thing)
    plain = [p.replace(annotation=_readable(p.annotation)) for p in signature.parameters.values()]
    signature = signature.replace(parameters=plain)
    if inspect.isclass(thing):
        signature = signature.replace(return_annotation=inspect.Signature.empty)
    written = re.sub(r" at 0x[0-9a-f]+", "", str(signature)).replace("'", "")
    if len(written) <= WIDTH - 20:
        return written
    result = written.rpartition(")")[2]
    arguments = "".join(f"    {argument},\n" for argument in _arguments(signature))
    return f"(\n{arguments}){result}"


def _readable(annotation: Any) -> Any:
    """Without the functions by which a value is checked."""
    checks = {type(each).__name__ for each in getattr(annotation, "__metadata__", ())}
    return annotation.__origin__ if checks & {"AfterValidator", "BeforeValidator"} else annotation


def _arguments(signature: inspect.Signature) -> Iterator[str]:
    starred = False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        yield re.sub(r" at 0x[0-9a-f]+", "", str(parameter)).replace("'", "")


def _result(function: Any) -> str:
    found = inspect.signature(function).return_annotation
    return f": {found}".replace("'", "")


def _prose(docstring: str) -> str:
    """A docstring as Markdown: its sections (Args, Raises) become lists."""
    lines: list[str] = []
    section = False
    for line in docstring.splitlines():
        if heading := re.fullmatch(r"(Args|Raises|Returns|Attributes):", line):
            lines += [f"{heading[1]}:", ""]
            section = True
        elif section and (item := re.fullmatch(r" {4}(\w[\w.*]*): (.*)", line)):
            lines.append(f"- `{item[1]}`: {item[2]}")
        elif section and line.strip():
            lines.append(f"  {line.strip()}")
        else:
            section = section and not line.strip()
            lines.append(line)
    return "\n".join(lines)


def with_demo(text: str, lines: Sequence[str]) -> str:
    """`text` with `lines`, as a block, between its markers.

    Raises:
        SystemExit: it has no markers.
    """
    pattern = re.compile(r"(<!-- demo -->\n).*?(<!-- /demo -->)", flags=re.DOTALL)
    if not pattern.search(text):
        raise SystemExit(
            "there is no <!-- demo --> with a <!-- /demo -->; put them where the output belongs"
        )
    block = "\n".join(["```text", *lines, "```", ""])
    return pattern.sub(lambda found: found[1] + block + found[2], text)


def documents() -> dict[Path, str]:
    """Every file that follows from the code, with what it should hold."""
    printed = (DOCS / "demo.txt").read_text(encoding="utf-8").splitlines()
    start = DOCS / "start.md"
    shown = with_demo(start.read_text(encoding="utf-8"), printed)
    return {DOCS / "cli.md": cli(), DOCS / "api.md": api(), start: shown}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="write nothing; exit with 1 when something is out of date",
    )
    options = parser.parse_args(arguments)
    stale = []
    for path, text in documents().items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(str(path.relative_to(REPOSITORY)))
        if not options.check:
            path.write_text(text, encoding="utf-8")
    if not stale:
        print("everything is up to date")
    elif options.check:
        sys.exit(f"out of date: {', '.join(stale)}; run python docs/reference.py")
    else:
        print(f"written: {', '.join(stale)}")


if __name__ == "__main__":
    main()
