"""Ctrl-C in a command that has nothing to finish first."""

from __future__ import annotations

import json

import pytest

from tuner import doctor
from tuner.cli import main


def interrupted(*_: object, **__: object) -> list[doctor.Check]:
    raise KeyboardInterrupt


@pytest.mark.parametrize("where", ["tuner.doctor.examine", "typer.core.TyperGroup.parse_args"])
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
