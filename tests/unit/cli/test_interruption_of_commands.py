"""Ctrl-C or SIGTERM in a command that has nothing to finish first."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from tuner.cli import machine, main

ENDS = {signal.SIGINT: ("interrupted", 130), signal.SIGTERM: ("terminated", 143)}


@pytest.mark.parametrize("where", ["tuner.cli.machine.examine", "typer.core.TyperGroup.parse_args"])
@pytest.mark.parametrize("number", ENDS)
def test_it_ends_with_a_line_and_with_json_with_a_document(
    number: signal.Signals,
    where: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In the command, or before it begins: the command line is still read."""

    def interrupted(*_: object, **__: object) -> list[machine.Check]:
        try:
            os.kill(os.getpid(), number)
        finally:
            if number == signal.SIGTERM:  # again, as `timeout` or a cluster passes it on
                os.kill(os.getpid(), number)
        return []

    monkeypatch.setattr(where, interrupted)
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--json"])
    said, code = ENDS[number]
    assert ended.value.code == code
    shown = capsys.readouterr()
    assert json.loads(shown.out) == {"error": {"message": said, "exit_code": code}}
    assert shown.err == f"tuner: error: {said}\n"
    assert signal.getsignal(signal.SIGTERM) == before


START = """
import signal, sys
from tuner.cli import main
class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            signal.raise_signal(int(sys.argv[2]))
sys.meta_path.insert(0, Interrupting())
sys.modules.pop(sys.argv[1], None)
main(["doctor", "--json"])
"""


@pytest.mark.parametrize(
    ("imported", "number"),
    [
        ("tuner.cli.run", signal.SIGINT),
        ("tuner.cli.run", signal.SIGTERM),
        ("tuner.errors", signal.SIGINT),
        ("tuner.cli.doctor", signal.SIGTERM),
    ],
)
def test_it_is_a_line_also_while_the_command_line_is_imported(
    imported: str, number: signal.Signals
) -> None:
    command = [sys.executable, "-c", START, imported, str(int(number))]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said, code = ENDS[number]
    assert done.returncode == code, done.stderr
    assert json.loads(done.stdout) == {"error": {"message": said, "exit_code": code}}
    assert done.stderr == f"tuner: error: {said}\n"
