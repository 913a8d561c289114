"""`tuner retune --max-gpu-hours`: a search that its hours cut goes on with more of them, and what
comes after a search waits for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cli_processes import STUDY, Bench
from tests.support.forked_cli import Done
from tuner.report.terminal.tables import stopped_in_words

RETUNE = [
    "retune", "--variant", "small.toml", "--task", "tiny.toml", "--cpu", "--workers=1",
    "--searches=1", "--trials=6", "--confirm-seeds=2", "--reruns=0", "--sampler=random",
    "--no-estimate", "--json",
]  # fmt: skip


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path, f"sqlite:///{tmp_path}/storage/tuner.db")
    # No epoch is ever better by this much than the first: each run converges with its second.
    file = tmp_path / "small.toml"
    text = file.read_text().replace("patience = 100000", "patience = 1\nmin_delta = 1e6")
    file.write_text(text, encoding="utf-8")
    return bench


def trials_and_runs(bench: Bench) -> tuple[int, int]:
    """Finished ones, and those that are planned."""
    with bench.opened() as study:
        return study.ledger.counts().finished, len(study.verifications.runs())


@pytest.mark.slow
def test_a_search_that_its_hours_cut_goes_on_with_more_of_them(bench: Bench) -> None:
    def retuned(hours: str) -> Done:
        return bench.run(*RETUNE, "--max-gpu-hours", hours, cores=1)

    first = retuned("1e-5")  # 36 ms: less than the second trial takes
    assert first.json()["outcome"] == "gpu_hours_spent", first.err
    done, runs = trials_and_runs(bench)
    assert 0 < done < 6
    assert runs == 0

    (status,) = bench.run("status", "--json").json()["studies"]
    assert (status["hours_are_spent"], status["time_is_up"]) == (True, False)
    assert f"{done}/6, hours are spent" in bench.run("status", COLUMNS="200").out
    assert "the same command with a larger --max-gpu-hours continues" in stopped_in_words(
        first.json()["outcome"]
    )

    again = retuned("1e-5")
    assert (again.code, again.json()["outcome"]) == (0, "gpu_hours_spent")
    assert [each["over"] for each in again.json()["stages"]] == [False]
    assert f"the 1e-05 device hours of {STUDY} are spent" in again.err
    assert "the same command with a larger --max-gpu-hours goes on" in again.err
    assert trials_and_runs(bench) == (done, 0), "nothing that follows a search was begun"

    more = retuned("1")
    assert more.json()["outcome"] == "filled", more.err
    assert "--max-gpu-hours 1e-05 to --max-gpu-hours 1" in more.err
    assert trials_and_runs(bench)[0] == 6
