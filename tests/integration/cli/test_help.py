"""What helps at the command line: a screen of help for each command, its examples, completion."""

from __future__ import annotations

import os
import pty
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.forked_cli import python_path, run_here
from tests.support.paths import REPOSITORY
from tuner.cli.app import whole
from tuner.cli.help import ALL, RARE, SECTIONS, examples_of

SCREEN = 45
"""Lines, of eighty columns."""


def commands() -> Iterator[tuple[str, Any]]:
    """Every command, with the words before its options."""
    for name, command in whole().commands.items():
        for below, each in getattr(command, "commands", {"": command}).items():
            yield f"{name} {below}".strip(), each


@pytest.mark.parametrize(("name", "command"), list(commands()), ids=str)
def test_each_help_is_a_screen_with_two_examples_and_a_page(
    name: str, command: Any, tmp_path: Path
) -> None:
    narrow = {"COLUMNS": "80"}
    short = run_here(*name.split(), "-h", folder=tmp_path, environment=narrow)
    assert (short.code, short.err) == (0, "")
    lines = short.out.splitlines()
    assert len(lines) <= SCREEN
    examples = examples_of(f"tuner {name}")
    assert len(examples) == 2
    for example in examples:
        assert f"  {example}" in lines
        words = shlex.split(example.removeprefix(f"tuner {name}"))
        command.make_context(name, words).close()  # refuses what it does not take
    last = lines[-1].removeprefix("More: docs/").partition(";")
    assert (REPOSITORY / "docs" / last[0]).is_file()
    named = [each.opts[0] for each in command.params if each.param_type_name == "option"]
    visible = [each for each, p in zip(named, _options(command), strict=True) if not p.hidden]
    whole_help = run_here(*name.split(), ALL, folder=tmp_path, environment=narrow)
    shown = whole_help if last[2] else short
    assert shown.code == 0
    assert [each for each in visible if f"{each} " not in shown.out] == []
    assert bool(last[2]) == any(f"  {each} " not in short.out for each in visible)


def _options(command: Any) -> list[Any]:
    return [each for each in command.params if each.param_type_name == "option"]


def test_every_name_in_a_section_is_an_option_of_some_command() -> None:
    there = {each.name for _, command in commands() for each in command.params}
    placed = {name for names in SECTIONS.values() for name in names.split()}
    assert placed | set(RARE.split()) <= there


def test_rare_settings_are_said_as_in_a_study_file(tmp_path: Path) -> None:
    for said, why in (
        ("accumulate=0", "--set accumulate=0: accumulate: should be greater than 0, got 0"),
        ("compile_mode=fast", "should be 'default', 'reduce-overhead' or 'max-autotune'"),
        ("patience=3", "unknown setting of --set 'patience'; there are: accumulate"),
    ):
        refused = run_here("launch", "--variant=rmsnorm", "--set", said, folder=tmp_path)
        assert refused.code == 2
        assert why in refused.error


@pytest.mark.parametrize("shell", ["bash --norc -i", "zsh -f -i"])
def test_a_real_shell_completes_commands_and_options(shell: str, tmp_path: Path) -> None:
    name = shell.split(maxsplit=1)[0]
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    (tmp_path / "tuner").write_text(f'#!/bin/sh\nexec {sys.executable} -m tuner "$@"\n')
    (tmp_path / "tuner").chmod(0o755)
    mine, theirs = pty.openpty()
    path = f"{tmp_path}:{os.environ['PATH']}"
    environment = {"PATH": path, "PYTHONPATH": python_path(), "TERM": "dumb", "HOME": str(tmp_path)}
    process = subprocess.Popen(
        shell.split(),
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment,
        start_new_session=True,
    )
    os.close(theirs)
    try:
        loads = f'eval "$(_TUNER_COMPLETE=source_{name} tuner)"'
        ready = "autoload -Uz compinit; compinit -u; " if name == "zsh" else ""
        os.write(mine, f"{ready}{loads}; echo rea''dy\n".encode())
        said_within(mine, "ready\r")
        os.write(mine, b"tuner verif\t")
        said_within(mine, "verify ")
        os.write(mine, b"--conf\t")
        said_within(mine, "--confirm")
    finally:
        process.kill()
        process.wait()
        os.close(mine)


def said_within(terminal: int, text: str, patience_s: float = 60.0) -> None:
    """Reads the terminal until it has shown `text`."""
    shown, until = "", time.monotonic() + patience_s
    os.set_blocking(terminal, False)
    while text not in shown:
        assert time.monotonic() < until, shown
        try:
            shown += os.read(terminal, 1 << 16).decode("utf-8", "replace")
        except BlockingIOError:
            time.sleep(0.05)
