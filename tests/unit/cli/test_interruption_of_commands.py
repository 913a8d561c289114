"""Ctrl-C in a command that has nothing to finish first."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tuner.cli import machine as doctor
from tuner.cli import main


def interrupted(*_: object, **__: object) -> list[doctor.Check]:
    raise KeyboardInterrupt


@pytest.mark.parametrize("where", ["tuner.cli.machine.examine", "typer.core.TyperGroup.parse_args"])
def test_it_ends_with_a_line_and_with_json_with_a_document(
    where: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the command, or before it begins: the command line is still read."""
    monkeypatch.setattr(where, interrupted)
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--json"])
    assert ended.value.code == 130
    shown = capsys.readouterr()
    assert json.loads(shown.out) == {"error": {"message": "interrupted", "exit_code": 130}}
    assert shown.err == "tuner: error: interrupted\n"


START = """
import signal, sys
from tuner.cli import main
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            signal.raise_signal(signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
sys.modules.pop(sys.argv[1], None)
main(["doctor", "--json"])
"""


@pytest.mark.parametrize("imported", ["tuner.cli.run", "tuner.errors", "typer", "tuner.cli.launch"])
def test_it_is_a_line_also_while_the_command_line_is_imported(imported: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", START, imported], capture_output=True, text=True, check=False
    )
    assert done.returncode == 130, done.stderr
    assert json.loads(done.stdout) == {"error": {"message": "interrupted", "exit_code": 130}}
    assert done.stderr == "tuner: error: interrupted\n"
