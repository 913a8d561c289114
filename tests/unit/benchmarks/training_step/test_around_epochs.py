"""What stands around epochs: the dry run."""

from __future__ import annotations

import importlib
import json
from pathlib import Path


def test_a_dry_run_leaves_its_files_with_every_figure(tmp_path: Path) -> None:
    script = importlib.import_module("benchmarks.training_step.around_epochs")
    script.main(["--quick", "--output", str(tmp_path / "around")])
    (found,) = json.loads((tmp_path / "around.json").read_text())["sizes"]
    assert 0 < found["share"] < 1
    assert min(found["first_setup_ms"], found["reused_setup_ms"], found["evaluation_ms"]) > 0
    assert f"| {found['hidden_size']} | eager |" in (tmp_path / "around.md").read_text()
