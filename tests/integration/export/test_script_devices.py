"""The exported script on a device that torch cannot use."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tuner.export import BestConfig, render


@pytest.mark.parametrize("name", ["cuda", "cuda:99", "gpu"])
def test_a_device_that_torch_cannot_use_is_one_line(
    name: str, best: BestConfig, tmp_path: Path
) -> None:
    script = tmp_path / "best.py"
    script.write_text(render(best, "python"), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script), "--device", name],
        cwd=tmp_path,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert f"error: --device '{name}': " in last
    assert last.endswith("; say cuda where torch sees a GPU, or leave it out")
