"""The stamp of a search whose kernels are compiled: what it stands for, and when it does not."""

from __future__ import annotations

import dataclasses
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.collected_kernels import HOPPER, search
from tests.support.spaces import with_range
from tuner.config import Precision
from tuner.trial.ahead import compile_order
from tuner.trial.ahead.compile_order import (
    Order,
    Ready,
    cache_folder,
    configurations,
    read_stamp,
    stamp_path,
    write_stamp,
)


def test_it_holds_as_long_as_all_that_it_names_is_there(tmp_path: Path) -> None:
    path = stamp_path(tmp_path / "cache", search(), HOPPER)
    assert read_stamp(path) is None
    ready = Ready(("A/one.json", "B/two.json"))
    write_stamp(path, ready)
    assert read_stamp(path) is None
    for name in ready.kernels:
        (path.parent / name).parent.mkdir()
        (path.parent / name).touch()
    assert read_stamp(path) == ready
    (path.parent / ready.kernels[1]).unlink()
    assert read_stamp(path) is None


@pytest.mark.parametrize("content", ["", "[]", '{"kernels": 3, "reason": ""}', "\x00\xff"])
def test_one_that_is_damaged_is_none(tmp_path: Path, content: str) -> None:
    (tmp_path / "stamp.json").write_text(content)
    assert read_stamp(tmp_path / "stamp.json") is None


def test_other_kernels_have_another_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [
        stamp_path(tmp_path, search(), HOPPER),
        stamp_path(tmp_path, search(), (10, 0)),
        stamp_path(tmp_path, search(precision=Precision.TF32), HOPPER),
    ]
    monkeypatch.setenv("DISABLE_PTXAS_OPT", "1")
    paths.append(stamp_path(tmp_path, search(), HOPPER))
    monkeypatch.delenv("DISABLE_PTXAS_OPT")
    monkeypatch.setattr(compile_order, "_code_digest", lambda: "of other code")
    paths.append(stamp_path(tmp_path, search(), HOPPER))
    assert len(set(paths)) == len(paths)


def test_what_no_kernel_follows_from_has_no_other_one(tmp_path: Path) -> None:
    longer = search(max_epochs=7)
    assert stamp_path(tmp_path, longer, HOPPER) == stamp_path(tmp_path, search(), HOPPER)


def test_the_cache_is_where_triton_has_it(tmp_path: Path) -> None:
    knobs = pytest.importorskip("triton", reason="Triton is not installed").knobs
    assert cache_folder(os.environ) == Path(knobs.cache.dir)
    assert cache_folder({"TRITON_HOME": str(tmp_path)}) == tmp_path / ".triton" / "cache"


def test_an_order_arrives_as_it_was_given(tmp_path: Path) -> None:
    order = Order(capability=HOPPER, searches=[search()], data_dir=tmp_path, jobs=3)
    assert pickle.loads(pickle.dumps(order)) == order


def test_the_default_comes_first_and_what_has_no_dropout_last() -> None:
    definition = search().definition
    space = definition.space
    wide = with_range(with_range(space, "hidden_size", high=32), "dropout", low=0.0)
    listed = list(configurations(dataclasses.replace(definition, space=wide)))
    assert listed[0] == definition.defaults
    sizes = [(each.hidden_size, each.dropout) for each in listed[1:]]
    assert sizes == [(32, 0.1), (16, 0.1), (32, 0.0), (16, 0.0)]


def test_whoever_launches_needs_no_torch_for_any_of_it() -> None:
    code = "import sys, tuner.launch, tuner.cli.warm; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
