"""`tuner warm`: what it says, what it leaves, and its exit codes, on a machine without a GPU."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.collected_kernels import (
    CHEAPEST,
    HOPPER,
    kernels_elsewhere,
    pretend_compiled,
    search,
)
from tuner.cli.run import run
from tuner.cli.warm import NOBODY_TOLD
from tuner.launch import background
from tuner.trial.ahead.compile_order import Progress, Ready, stamp_path, write_stamp

TASK_TOML = """
name = "tiny"
target_columns = ["a"]
frequency = "h"
input_size = 12
horizon = 4
quantiles = [0.1, 0.5, 0.9]
eval_quantiles = [0.1, 0.5, 0.9]
source = { kind = "demo", rows = 200 }
"""
STUDY_TOML = """
name = "small"
core_change = "small enough for a test"
model = "rmsnorm"
model_settings = { n_blocks = 1 }

[defaults]
learning_rate = 1e-3
weight_decay = 0.0
dropout = 0.1
hidden_size = 16
batch_size = 64

[space]
learning_rate = { low = 1e-4, high = 1e-2, scale = "log" }
weight_decay = { low = 1e-6, high = 1e-2, scale = "log", zero = true }
dropout = { low = 0.1, high = 0.3 }
hidden_size = { low = 16, high = 16 }
batch_size = { low = 64, high = 64 }
"""

ONE_FAILED = Progress(found=3, compiled=2, failed=1, over=True)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Triton's, empty; the files that the commands name lie in the present folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TUNER_DATA_DIR", raising=False)
    Path("tiny.toml").write_text(TASK_TOML)
    Path("small.toml").write_text(STUDY_TOML)
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("TRITON_CACHE_DIR", str(folder))
    return folder


def warm(*more: str) -> int:
    return run(["warm", "--variant", "small.toml", "--task", "tiny.toml", *more])


def test_what_is_missing_is_compiled_in_another_process_and_the_second_run_finds_it(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All but one kernel are there already, as far as anybody can see: one takes no time."""
    pytest.importorskip("triton", reason="Triton is not installed")
    found = kernels_elsewhere()
    for kernel in found:
        if kernel.name != CHEAPEST or kernel is not found[0]:
            pretend_compiled(kernel, cache)
    assert warm("--capability", "9.0") == 0
    shown = capsys.readouterr()
    assert f"{len(found)} kernels for compute capability 9.0 are ready: 1 compiled" in shown.out
    assert f" {len(found) - 1} were there; in {cache}" in shown.out
    assert f" of {len(found)} kernels" in shown.err
    assert list((cache / found[0].folder).glob("*.cubin"))
    assert warm("--capability", "9.0", "--json") == 0
    assert json.loads(capsys.readouterr().out) == {
        "capability": "9.0",
        "cache": str(cache),
        "kernels": len(found),
        "compiled": 0,
        "were_there": len(found),
        "seconds": 0.0,
        "nothing_because": [],
    }


def test_where_a_search_has_no_kernels_it_says_why(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert warm("--capability", "9.0", "--backend", "graph") == 0
    assert (
        capsys.readouterr().out == "nothing to compile: backend graph has no kernels of its own\n"
    )
    reason = "auto chooses other backends for these sizes on this GPU"
    write_stamp(stamp_path(cache, search(), (8, 0)), Ready((), reason))
    assert warm("--capability", "8.0") == 0
    assert capsys.readouterr().out == f"nothing to compile: {reason}\n"


@pytest.mark.parametrize("wrong", ["hopper", "9", "9.", "-9.0", "9.0.1", "90.000"])
def test_a_capability_that_is_none_is_refused(
    cache: Path, wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert warm("--capability", wrong) == 2
    assert f"--capability: '{wrong}' is none; expected e.g. 9.0" in capsys.readouterr().err


def test_without_a_gpu_somebody_has_to_name_one(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("tuner.devices.gpu.list_gpus", lambda environment: ())
    assert warm() == 2
    assert NOBODY_TOLD in capsys.readouterr().err


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (
            f"echo '{ONE_FAILED.to_line()}'; echo 'ptxas: no such GPU' >&2; exit 1",
            "1 of 3 kernels do not compile: ptxas: no such GPU",
        ),
        ("echo 'out of memory' >&2; kill -9 $$", "compiling ended early: out of memory"),
    ],
)
def test_a_failure_is_one_line_and_exit_code_1(
    cache: Path,
    script: str,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    start, command = background.CompilingProcess.start, ["/bin/sh", "-c", script]
    monkeypatch.setattr(
        background.CompilingProcess,
        "start",
        lambda order, environment, log: start(order, environment, log, command),
    )
    assert warm("--capability", "9.0") == 1
    assert f"tuner: error: {says}" in capsys.readouterr().err


def test_a_cache_that_others_can_write_is_worth_a_line(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_stamp(stamp_path(cache, search(), HOPPER), Ready((), "nothing"))
    warm("--capability", "9.0")
    assert "can be written by others" not in capsys.readouterr().err
    cache.chmod(0o777)
    warm("--capability", "9.0")
    (line,) = capsys.readouterr().err.splitlines()
    assert f"{cache} can be written by others (mode 0777)" in line
