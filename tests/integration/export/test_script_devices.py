"""The exported script on a device that torch cannot use."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tuner.export import BestConfig, render
from tuner.export.standalone.training import device_or_leave

SAYS = "; say cuda where torch sees a GPU, or leave it out"


def test_a_device_that_torch_cannot_use_is_one_line(best: BestConfig, tmp_path: Path) -> None:
    script = tmp_path / "best.py"
    script.write_text(render(best, "python"), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script), "--device", "cuda"],
        cwd=tmp_path,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert "error: --device 'cuda': " in last
    assert last.endswith(SAYS)


@pytest.mark.parametrize("name", ["cuda:99", "gpu", ""])
def test_so_is_one_that_there_is_not(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        device_or_leave(argparse.ArgumentParser(), name)
    assert ended.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert f"error: --device '{name}': " in last
    assert last.endswith(SAYS)


def test_one_that_there_is_is_taken() -> None:
    assert device_or_leave(argparse.ArgumentParser(), "cpu") == torch.device("cpu")
