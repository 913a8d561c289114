"""Prepared data is kept, never served stale, and never a reason to fail."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.small_csv import csv_lines
from tuner.data import prepare as module
from tuner.data.prepare import PreparedData, prepare
from tuner.data.task import load_task

Prepare = Callable[..., PreparedData]


def arrays(prepared: PreparedData) -> list[npt.NDArray[np.generic]]:
    splits = (prepared.train, prepared.val, prepared.test)
    found: list[npt.NDArray[np.generic]] = [prepared.static, prepared.minimum, prepared.scale]
    for split in splits:
        found += [split.targets, split.past, split.future, split.starts, split.series_index]
    return found


def same(one: PreparedData, other: PreparedData) -> bool:
    pairs = zip(arrays(one), arrays(other), strict=True)
    return one.data_hash == other.data_hash and all(np.array_equal(a, b) for a, b in pairs)


def test_the_second_time_comes_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = prepare(load_task("demo"), cache_dir=tmp_path)
    assert len(list(tmp_path.iterdir())) == 1

    def never(*_: object) -> None:
        raise AssertionError("built again")

    monkeypatch.setattr(module, "_build", never)
    assert same(first, prepare(load_task("demo"), cache_dir=tmp_path))


def test_a_changed_cell_is_not_served_from_the_cache(prepare_small: Prepare) -> None:
    lines = csv_lines(60)
    first = prepare_small(lines)
    lines[1] = lines[1].rsplit(",", 1)[0] + ",7"
    assert not same(first, prepare_small(lines))


@pytest.mark.parametrize("damage", ["cut", "empty", "flipped", "garbage"])
def test_a_damaged_cache_file_is_built_again(
    tmp_path: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    first = prepare(load_task("demo"), cache_dir=tmp_path)
    (file,) = tmp_path.iterdir()
    content = file.read_bytes()
    flipped = bytearray(content)
    flipped[len(content) // 2] ^= 1
    file.write_bytes(
        {"cut": content[:-100], "empty": b"", "flipped": bytes(flipped), "garbage": b"x" * 999}[
            damage
        ]
    )
    with caplog.at_level(logging.WARNING):
        assert same(first, prepare(load_task("demo"), cache_dir=tmp_path))
    assert "is damaged; preparing the data again" in caplog.text
    assert file.read_bytes() == content


def test_a_cache_that_cannot_be_written_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    with caplog.at_level(logging.WARNING):
        prepared = prepare(load_task("demo"), cache_dir=tmp_path / "file" / "cache")
    assert len(prepared.train.starts) > 0
    assert f"prepared data is not kept: cannot write to {tmp_path}/file/cache" in caplog.text


def test_cached_data_needs_neither_pandas_nor_torch(etth_dir: Path, tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from tuner.data.task import load_task\n"
        "from tuner.data.prepare import prepare\n"
        f"prepare(load_task('etth'), data_dir=Path({str(etth_dir)!r}), "
        f"cache_dir=Path({str(tmp_path)!r}))\n"
        "print('pandas' in sys.modules, 'torch' in sys.modules)"
    )
    runs = [
        subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        for _ in range(2)
    ]
    assert [run.stdout.strip() for run in runs] == ["True False", "False False"]
