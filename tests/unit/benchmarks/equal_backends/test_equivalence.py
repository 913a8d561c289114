"""Whole trainings by backend: what is missing is trained, what is there is kept, and means are
compared."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest
import torch


@pytest.fixture(scope="module")
def equivalence() -> Any:
    return importlib.import_module("benchmarks.equal_backends.equivalence")


def here(equivalence: Any) -> dict[str, str]:
    return {"device": equivalence.device_model("cpu"), "torch": torch.__version__}


def run(backend: str, seed: int, mql: float, val_loss: float = 0.226) -> dict[str, Any]:
    figures = {"val_loss": val_loss, "test_mql": mql, "epochs": 45 + seed % 3}
    return {"backend": backend, "seed": seed, "stopped_by": "converged"} | figures


def test_only_what_is_missing_is_trained_in_as_many_processes_as_have_work(
    equivalence: Any,
) -> None:
    missing = equivalence.left([run("graph", 0, 0.8), run("eager", 2, 0.8)], ["graph", "eager"], 3)
    assert missing == {"graph": [1, 2], "eager": [0, 1]}
    assert equivalence.shares(missing, 4) == [
        ("graph", [1]),
        ("graph", [2]),
        ("eager", [0]),
        ("eager", [1]),
    ]
    assert equivalence.shares({"graph": [0, 1, 2], "eager": []}, 2) == [
        ("graph", [0, 2]),
        ("graph", [1]),
    ]


def test_a_backend_that_trains_another_model_is_told_from_one_that_does_not(
    equivalence: Any,
) -> None:
    spread = (-0.004, 0.004, -0.002, 0.002, 0.0, 0.003, -0.003)
    runs = [run("eager", seed, 0.805 + d) for seed, d in enumerate(spread)]
    runs += [run("graph", seed, 0.806 + d) for seed, d in enumerate(spread)]
    runs += [run("compile", seed, 0.830 + d) for seed, d in enumerate(spread)]
    found = equivalence.compare(runs, ["eager", "graph", "compile"])
    assert found["graph"]["difference"]["test_mql"]["mean"] == pytest.approx(0.001)
    _, _, eager, graph, compiled = equivalence.table(found)
    assert "within" not in eager
    assert "within a seed's" in graph
    assert "**not surely within" in compiled
    assert (
        equivalence.compare(runs[:1] + runs[7:8], ["eager", "graph"])["graph"]["difference"][
            "test_mql"
        ]
        is None
    )


def test_a_run_without_time_has_those_of_an_earlier_one_and_says_what_is_missing(
    equivalence: Any, tmp_path: Path
) -> None:
    earlier = tmp_path / "earlier.runs.jsonl"
    earlier.write_text(
        json.dumps(run("eager", 0, 0.5) | here(equivalence) | {"git_revision": "abc"}) + "\n"
    )
    over = tmp_path / "over"
    equivalence.main(
        ["--quick", "--minutes", "0", "--earlier", str(earlier), "--output", str(over)]
    )
    found = json.loads(Path(f"{over}.json").read_text())
    assert (found["missing"], found["revisions"]) == ({"eager": 1}, {"abc": {"eager": 1}})
    text = Path(f"{over}.md").read_text()
    assert "Still missing: 1 of eager." in text
    assert "| eager | 1 |" in text
    assert "Revision abc" in text


@pytest.mark.parametrize("other", [{"device": "Example 9000"}, {"torch": "1.0"}, {"torch": None}])
def test_runs_of_another_device_or_torch_are_refused(
    equivalence: Any, tmp_path: Path, other: dict[str, str | None]
) -> None:
    now = here(equivalence)
    file = tmp_path / "earlier.runs.jsonl"
    file.write_text(json.dumps(run("eager", 0, 0.5)) + "\n")
    beside = {"device": now["device"], "versions": {"torch": now["torch"]}}
    (tmp_path / "earlier.json").write_text(json.dumps(beside))
    assert equivalence.earlier_runs(file, now) == [run("eager", 0, 0.5) | now]
    assert equivalence.earlier_runs(tmp_path / "none", now) == []
    with file.open("a") as more:
        more.write(json.dumps(run("eager", 1, 0.5) | other) + "\n")
    (name, value), *_ = other.items()
    with pytest.raises(
        SystemExit, match=f"the {name} of its runs is {value or 'an unknown one'}, here it is"
    ):
        equivalence.earlier_runs(file, now)
