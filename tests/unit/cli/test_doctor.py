"""What the doctor says of a machine's GPUs, on one that has none."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from tuner.cli import machine


@pytest.mark.parametrize(("compiler", "level"), [("gcc", "ok"), ("", "notice")])
def test_where_there_are_gpus_a_missing_c_compiler_is_worth_a_notice(
    compiler: str, level: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        machine, "list_gpus", lambda environment: [SimpleNamespace(index=0, name="a GPU")]
    )
    monkeypatch.setenv("CC", compiler)
    monkeypatch.setenv("PATH", str(tmp_path))
    checks = {
        check.name: check
        for check in machine.examine(storage="sqlite:///no.db", data_dir=None, environment={})
    }
    assert checks["C compiler"].level == level


@pytest.mark.parametrize(("mode", "level"), [(0o700, "ok"), (0o777, "notice")])
def test_compiled_kernels_that_others_can_replace_are_worth_a_notice(
    mode: int, level: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(
        machine, "list_gpus", lambda environment: [SimpleNamespace(index=0, name="a GPU")]
    )
    cache = tmp_path / "cache"
    cache.mkdir()
    cache.chmod(mode)
    checks = machine.examine(
        storage="sqlite:///no.db", data_dir=None, environment={"TRITON_CACHE_DIR": str(cache)}
    )
    (check,) = [check for check in checks if check.name == "compiled kernels"]
    assert check.level == level
    assert str(cache) in check.detail


def test_without_gpus_nobody_asks_for_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "list_gpus", lambda environment: [])
    assert "C compiler" not in {
        check.name
        for check in machine.examine(storage="sqlite:///no.db", data_dir=None, environment={})
    }
