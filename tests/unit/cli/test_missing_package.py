"""What a command says where a package that it takes is not installed."""

import sys

import pytest

from tuner.cli.run import run


def test_a_missing_package_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tuner.cli.app", None)
    assert run(["variants"]) == 1
    assert capsys.readouterr().err == (
        "tuner: error: module tuner.cli.app is missing: install tuner again\n"
    )
    monkeypatch.delitem(sys.modules, "tuner.cli.app")
    monkeypatch.setattr("tuner.cli.run._call", lambda _: __import__("no_such_package.part"))
    assert run(["plot"]) == 1
    assert capsys.readouterr().err == (
        "tuner: error: package 'no_such_package' is not installed here, and this takes it: pip "
        "install no_such_package\n"
    )
