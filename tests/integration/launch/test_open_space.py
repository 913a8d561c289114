"""A network whose depth, norm and kernel are searched, from its study file to a model on disk."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.forked_cli import run
from tests.support.open_spaces import STUDY, write_stack
from tests.support.small_study import TASK_TOML
from tuner import load_model
from tuner.errors import UsageError
from tuner.export import load_best

DEFAULT = "[defaults]\naccumulate = 2"
SEARCHED = """validate_every = 2

[space.accumulate]
type = "int"
low = 2
high = 3
"""
STACK = STUDY.replace("[defaults]", DEFAULT) + SEARCHED


def trained_as_said(found: dict[str, Any], trial: str) -> dict[str, Any]:
    """In updates of several batches, validated at every other epoch and the last one."""
    assert found["params"]["accumulate"] in (2, 3)
    assert found["training"]["validate_every"] == 2
    rows = json.loads(trial)["curve"]["rows"]
    assert [row["val_loss"] is None for row in rows] == [True, False, False]
    return found


def test_from_the_study_file_to_a_model_and_a_script_that_stands_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_stack(tmp_path, STACK)
    (tmp_path / "tiny.toml").write_text(TASK_TOML, encoding="utf-8")
    study = ["--variant=stack.toml", "--task=tiny.toml"]

    def tuner(*words: str) -> str:
        done = run(*words, folder=tmp_path, environment={"TMPDIR": str(tmp_path)})
        assert done.code == 0, done.err
        return done.out

    assert "works" in tuner("variants", "--check=stack.toml", "--task=tiny.toml")
    tuner("launch", *study, "--cpu", "--trials=6", "--reruns=0")
    found = trained_as_said(
        json.loads(tuner("best", *study, "--pick=mql", "--format=json")),
        tuner("trial", "0", "--study=tiny-stack", "--json"),
    )
    assert {"learning_rate", "weight_decay", "depth", "norm"} <= found["params"].keys()
    assert "hidden_size" not in found["params"]

    (tmp_path / "best.toml").write_text(tuner("best", *study, "--pick=mql", "--format=toml"))
    tuner("train", "--config=best.toml", "--cpu", "--task=tiny.toml", "--output=m.safetensors")
    model = load_model(tmp_path / "m.safetensors", trust=True).model
    storage = f"sqlite:///{tmp_path}/storage/tuner.db"
    best = load_best(study="tiny-stack", pick="mql", storage=storage)
    fresh = best.build_model()
    assert [p.shape for p in model.parameters()] == [p.shape for p in fresh.parameters()]

    tuner("best", *study, "--pick=mql", "--format=python", "--output=best.py")
    alone = runpy.run_path(str(tmp_path / "best_network.py"))["build_network"]()
    assert [p.shape for p in alone.parameters()] == [p.shape for p in fresh.parameters()]
    alone.load_state_dict(model.state_dict())
    shapes = best.shapes
    assert shapes.input_size == best.params["input_size"]
    torch.manual_seed(0)
    past = torch.rand(2, shapes.input_size, shapes.n_targets + shapes.n_past + shapes.n_future)
    with torch.no_grad():
        assert torch.equal(alone.eval()(past, None, None), model(past, None, None))

    # On a host that lacks the class's file, the database has it; it runs where somebody trusts it.
    (tmp_path / "stack.py").rename(tmp_path / "moved.py")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "another host"))
    elsewhere = load_best(study="tiny-stack", pick="mql", storage=storage)
    assert elsewhere.as_dict()["params"] == best.params
    with pytest.raises(UsageError, match=r"code that only the database has here: stack\.py"):
        elsewhere.build_model()
    trusted = load_best(study="tiny-stack", pick="mql", storage=storage, trust=True).build_model()
    assert [p.shape for p in trusted.parameters()] == [p.shape for p in fresh.parameters()]
    (tmp_path / "stack.py").write_text("class Stack: ...")
    changed = load_best(study="tiny-stack", pick="mql", storage=storage, trust=True)
    with pytest.raises(UsageError, match="is not the file that study 'tiny-stack' was made with"):
        changed.build_model()


def test_the_check_refuses_a_space_that_goes_beyond_the_tasks_windows(tmp_path: Path) -> None:
    """As a launch does: its windows are of 12 rows."""
    write_stack(tmp_path, STUDY.replace("choices = [6, 9, 12]", "choices = [6, 48]"))
    (tmp_path / "tiny.toml").write_text(TASK_TOML, encoding="utf-8")
    study = ["stack.toml", "--task=tiny.toml"]
    for words in (["variants", "--check", *study], ["launch", "--cpu", "--variant", *study]):
        done = run(*words, folder=tmp_path, environment={"TMPDIR": str(tmp_path)})
        assert done.code == 2
        assert "[space.input_size] holds 6 or 48; task 'tiny' has input_size = 12" in done.err
