"""Parsing tuner command lines without running them: do the command and its flags exist, do the
values fit?"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import typer

from tuner.cli.app import app
from tuner.settings import flags
from tuner.spec.policy import SearchPolicy


def parse(arguments: Sequence[str]) -> str:
    """The command that `arguments` name, e.g. `data fetch`, after parsing them all.

    Raises:
        Exception: whatever the parser says of an unknown command, an unknown flag or a wrong value.
    """
    group = _tool()
    rest = list(arguments)
    names: list[str] = []
    context = None
    while True:
        # `resilient_parsing` would ignore mistakes; leaf commands are parsed for real and never
        # invoked.
        context = group.make_context(names[-1] if names else "tuner", rest, parent=context)
        if not hasattr(group, "commands"):
            if names == ["launch"]:  # which reads these values by itself
                for flag in flags(SearchPolicy).values():
                    typed = context.params.get(flag.name.removeprefix("--").replace("-", "_"))
                    if typed is not None:
                        flag.read(typed)
            return " ".join(names)
        name, command, rest = group.resolve_command(
            context, [*context._protected_args, *context.args]
        )
        assert command is not None, f"no command {name}"
        names.append(name)
        group = command


def commands() -> Iterator[str]:
    """Every command, nested ones with their group's name before them."""

    def below(group: Any, prefix: str) -> Iterator[str]:
        for name, command in group.commands.items():
            if hasattr(command, "commands"):
                yield from below(command, f"{prefix}{name} ")
            else:
                yield prefix + name

    yield from below(_tool(), "")


@functools.cache
def _tool() -> Any:
    """All of its commands, put together once: that takes longer than to parse a line."""
    return typer.main.get_command(app)
