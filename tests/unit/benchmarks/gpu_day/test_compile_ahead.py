"""Compiling ahead of a search: every size in a process of its own, and one that fails is told."""

from __future__ import annotations

import importlib
from typing import Any

import pytest


@pytest.fixture
def script() -> Any:
    return importlib.import_module("benchmarks.gpu_day.compile_ahead")


def test_wide_networks_of_all_variants_come_first(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    met: list[tuple[str, int]] = []

    def meet(sizes: Any, options: object) -> int:
        met.append((sizes.variant, sizes.hidden))
        return 0

    monkeypatch.setattr(script, "in_a_process", meet)
    script.main(["--variants", "original,rmsnorm", "--hidden", "256,32", "--processes", "1"])
    assert met == [("original", 256), ("rmsnorm", 256), ("original", 32), ("rmsnorm", 32)]


def test_a_size_that_cannot_be_set_up_fails_the_whole(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script, "in_a_process", lambda sizes, _: int(sizes.hidden == 32))
    with pytest.raises(SystemExit, match="1 of 2 failed"):
        script.main(["--variants", "original", "--hidden", "64,32"])


def test_what_a_child_is_told_is_what_it_compiles(
    script: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    met: list[tuple[str, tuple[int, ...]]] = []
    monkeypatch.setattr(
        script, "compile_all", lambda sizes, options: met.append((sizes.label, options.batch))
    )
    script.main(["--batch", "64,128", "--child", "original", "128"])
    assert met == [("original, hidden 128", (64, 128))]
