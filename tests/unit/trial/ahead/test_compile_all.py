"""The process that compiles an order, from inside: what it says, and what it leaves."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.collected_kernels import HOPPER, kernels, pretend_compiled, search
from tuner.errors import DataError
from tuner.trial.ahead import compile_all
from tuner.trial.ahead.compile_all import Compiling, _firsts_first
from tuner.trial.ahead.compile_order import (
    Capability,
    Order,
    Progress,
    Ready,
    read_stamp,
    stamp_path,
)

pytest.importorskip("triton", reason="Triton is not installed")


def compiling(cache: Path, capability: Capability = HOPPER, parent: int | None = None) -> Compiling:
    order = Order(capability=capability, searches=[search()], data_dir=None, jobs=1)
    return Compiling(order, cache, os.getppid() if parent is None else parent)


def last_said(capsys: pytest.CaptureFixture[str]) -> Progress:
    return Progress.from_line(capsys.readouterr().out.splitlines()[-1])


@pytest.fixture
def compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache in which all is there, as far as anybody can see."""
    monkeypatch.setattr(compile_all, "build_driver_module", lambda: None)
    for kernel in kernels().values():
        pretend_compiled(kernel, tmp_path)
    return tmp_path


def test_where_all_is_there_it_leaves_a_stamp_that_says_so(
    compiled: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = stamp_path(compiled, search(), HOPPER)
    assert read_stamp(path) is None
    assert compiling(compiled).run()
    n = len(kernels())
    assert last_said(capsys) == Progress(found=n, there=n, over=True)
    ready = read_stamp(path)
    assert ready is not None
    assert set(ready.kernels) == {kernel.marker for kernel in kernels().values()}
    assert path.stat().st_mode & 0o777 == 0o644  # whoever reads the cache reads it


def test_a_gpu_that_auto_has_not_been_measured_on_needs_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert compiling(tmp_path, (8, 0)).run()
    said = last_said(capsys)
    assert (said.found, said.over) == (0, True)
    (reason,) = said.reasons
    assert read_stamp(stamp_path(tmp_path, search(), (8, 0))) == Ready((), reason)


def test_without_a_c_compiler_it_says_so_and_leaves_no_stamp(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(compile_all, "why_nothing_is_built", lambda: "there is no gcc")
    assert compiling(tmp_path).run()
    assert last_said(capsys) == Progress(reasons=("there is no gcc",), over=True)
    assert list(tmp_path.iterdir()) == []


def test_other_data_than_the_search_s_is_refused(tmp_path: Path) -> None:
    """Its windows have other numbers, and so may its kernels."""
    meant = search()
    other = replace(meant, definition=replace(meant.definition, data_hash="0" * 64))
    order = Order(capability=HOPPER, searches=[other], data_dir=None, jobs=1)
    with pytest.raises(DataError, match="expected 000000000000"):
        Compiling(order, tmp_path, os.getppid()).run()


def test_it_ends_with_the_process_that_started_it(compiled: Path) -> None:
    with pytest.raises(SystemExit):
        compiling(compiled, parent=os.getpid()).run()


def test_the_defaults_of_all_searches_come_before_the_rest_of_any() -> None:
    searches = [iter([[f"{name} {n}"] for n in range(3)]) for name in "ab"]
    order = [kernel for each in _firsts_first(searches) for kernel in each]
    assert order == ["a 0", "b 0", "a 1", "a 2", "b 1", "b 2"]
