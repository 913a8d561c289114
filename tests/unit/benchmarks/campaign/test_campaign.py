"""The campaign in calls: its state travels in one file, time is kept, and a dry run goes through
all of it."""

from __future__ import annotations

import json
import math
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import forked_cli
from tests.support.cli_parsing import parse
from tests.support.paths import BENCHMARKS, REPOSITORY
from tuner.verdict.compare.findings import compare
from tuner.verdict.compare.studies import read_studies
from tuner.verdict.stats.searches import compare_searches

CAMPAIGN = BENCHMARKS / "campaign"


class Script:
    """A call whose commands only advance a clock, and whose progress is told in advance."""

    def __init__(self, modules: Any, minutes: float, done: list[tuple[int, int, int]]) -> None:
        self.plan, self.clock = modules["plan"], 0.0
        self.commands: list[Any] = []
        self._done = iter(done)
        searches = tuple(
            self.plan.Search(variants=(name,), trials=10) for name in ("original", "rmsnorm")
        )
        campaign = replace(self.plan.FULL, searches=searches)
        outer = self

        class Call(modules["run"].Call):  # type: ignore[misc]
            def progress(self) -> Any:
                names = ("etth-original", "etth-rmsnorm", "verification runs")
                counts = zip(names, next(outer._done), strict=True)
                return outer.plan.Progress(
                    tuple(outer.plan.Item(name=n, done=d, wanted=10, each_s=2.0) for n, d in counts)
                )

        self.call = Call(
            campaign, Path("/nowhere"), (), 60 * minutes, self._run, lambda: self.clock
        )

    def _run(self, *command: str) -> str:
        assert command[-2] == "--timeout"
        self.commands.append((command[0], float(command[-1])))
        self.clock += float(command[-1])
        return ""


def test_a_call_ends_in_time_and_leaves_the_rest_to_the_next(modules: Any) -> None:
    cut = Script(modules, 9, [(0, 0, 0), (7, 0, 0)])
    assert not cut.call.work()
    # The second search needs the first's end.
    assert cut.commands == [("launch", 9 * 60 - modules["run"].STOPPING_S)]
    late = Script(modules, 0.8, [(0, 0, 0), (0, 0, 0)])
    assert not late.call.work()
    assert late.commands == []
    rest = Script(modules, 9, [(10, 10, 0), (10, 10, 0), (10, 10, 4), (10, 10, 10)])
    assert rest.call.work()
    assert [name for name, _ in rest.commands] == ["verify"]
    over = Script(modules, 9, [(10, 10, 10)] * 3)
    assert over.call.work()
    assert over.commands == []


def test_a_first_call_without_time_says_so_and_leaves_no_state(
    modules: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    modules["run"].main(["--quick", "--state", str(tmp_path)], age_s=9 * 60)
    assert "Nothing has finished yet" in capsys.readouterr().out
    assert not (tmp_path / modules["state"].NAME).exists()


def test_a_state_that_was_not_handed_on_is_not_written_over(modules: Any, tmp_path: Path) -> None:
    state, run, given, output = (
        modules["state"],
        modules["run"],
        tmp_path / "given",
        tmp_path / "output",
    )
    output.mkdir()
    (output / state.NAME).write_bytes(b"of the last call")
    for old in (None, b"of the call before"):
        if old is not None:
            given.mkdir()
            (given / state.NAME).write_bytes(old)
        with pytest.raises(SystemExit, match="would be written over"):
            run.main(["--quick", "--state", str(given), "--output", str(output)])
    (given / state.NAME).write_bytes(b"of the last call")
    state.refuse_to_lose(output / state.NAME, given / state.NAME)
    state.refuse_to_lose(given / state.NAME, given / state.NAME)


def test_a_plan_without_seeds_ends_with_its_searches(modules: Any) -> None:
    over = Script(modules, 9, [(10, 10, 0)] * 2)
    over.call = replace(over.call, campaign=replace(over.call.campaign, seeds=0))
    assert over.call.work()
    assert over.commands == []
    plan = modules["plan"]
    assert [item.name for item in plan.progress(plan.TABLE, None).items] == ["etth-original"]


def test_the_options_of_every_plan_are_options_of_a_launch(modules: Any) -> None:
    for plan in modules["plan"].PLANS.values():
        parse(["launch", "--variant", ",".join(plan.variants), "--task", plan.task, *plan.options])


def test_what_is_left_is_told_in_minutes_and_calls(modules: Any) -> None:
    plan, run = modules["plan"], modules["run"]
    assert plan.progress(plan.FULL, None).left_s(1) is None
    begun = plan.Progress(
        (
            plan.Item(name="a", done=100, wanted=200, each_s=5.0),
            plan.Item(name="b", done=0, wanted=300, each_s=None),  # taken to be like the others
        )
    )
    assert begun.left_s(1) == 2000
    assert (
        "about 17 minutes on 2 at once, 2 calls of 9"
        in run.summary(begun, workers=2, minutes=9, done=False)[-1]
    )


def test_the_whole_campaign_in_dry_run_goes_on_where_it_stopped(
    modules: Any, tmp_path: Path, one_core: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(subprocess, "Popen", forked_cli.popen())
    run, report = modules["run"], modules["report"]
    first, second, kept = tmp_path / "first", tmp_path / "second", tmp_path / "kept"
    run.main(["--quick", "--minutes", "60", "--state", str(first)])
    assert sorted(path.name for path in first.iterdir()) == [
        "campaign.json",
        "campaign.md",
        "campaign.tar.gz",
    ]
    found = json.loads((first / "campaign.json").read_text())
    assert found["done"]
    assert list(found["before"].values()) == [0, 0]
    assert found["device"] in (first / "campaign.md").read_text()
    run.main(["--quick", "--state", str(first), "--output", str(second)])
    again = json.loads((second / "campaign.json").read_text())
    assert again["before"] == again["after"] == found["after"]
    report.main(["--quick", "--state", str(second), "--output", str(kept)])
    names = {path.name for path in kept.iterdir()}
    assert {
        "table.md",
        "results.csv",
        "report.html",
        "compare.json",
        "explain.json",
        "front.html",
    } <= names
    table = (kept / "table.md").read_text()
    assert "| quick-original | default, trial 0 |" in table
    assert "in 2 calls" in table
    calls = [json.loads(line) for line in (kept / "calls.jsonl").read_text().splitlines()]
    assert [("took_s" in call, "command" in call) for call in calls] == [(True, False)] * 2


def test_what_the_docs_say_of_the_campaign_is_what_its_command_makes_of_the_exports(
    modules: Any,
) -> None:
    readme = modules["readme"]
    text = (CAMPAIGN / "report.md").read_text(encoding="utf-8")
    emptied = readme.replaced(text, "campaign", [])
    assert len(emptied) < len(text)
    assert readme.written(emptied, CAMPAIGN) == text


def test_the_committed_comparison_says_all_that_tuner_compare_says(modules: Any) -> None:
    paths = [str(path) for path in modules["readme"].exports(CAMPAIGN)]
    said = compare(read_studies(paths, task="etth", storage="sqlite:///none.db")).as_dict()
    committed = json.loads((CAMPAIGN / "compare.json").read_text())
    assert committed.keys() == said.keys()
    assert committed["notes"] == json.loads(json.dumps(said["notes"]))


def test_the_report_answers_the_question_first(modules: Any) -> None:
    """Of the small studies: what a report holds, whether the campaign's own studies are there or
    not."""
    readme, data = modules["readme"], REPOSITORY / "notebooks" / "data"
    paths = [data / "original.json.gz", data / "rmsnorm.json.gz"]
    call = {"date": "2026-11-22T01:00:00+00:00", "took_s": 90.0, "workers": 2}
    lines = readme.campaign_lines(paths, f"{json.dumps(call)}\n" * 2)
    text = "\n".join(lines)
    assert "\nA front holds the lucky seeds." in text
    # Default, retuned, its hyperparameters.
    assert sum(line.startswith("| small-original |") for line in lines) == 3
    assert "up to 2 of each front again, on 6 seeds" in text
    assert "6 GPU minutes in 2 calls" in text
    assert max(len(line) for line in lines if line[:1] not in ("|", "-")) <= 120


@pytest.mark.parametrize(
    ("ratio", "claimed", "why_not", "said"),
    [
        (0.6, True, "", "**Yes.**"),
        (1.6, True, "", "**No: slower.**"),
        (math.inf, True, "", "**No: not reached.**"),
        (0.9, False, "", "**Undecided.**"),
        (0.6, False, "too few searches", "**No claim follows yet.**"),
    ],
)
def test_the_conclusion_is_what_is_claimed(
    modules: Any, ratio: float, claimed: bool, why_not: str, said: str
) -> None:
    found = replace(compare_searches([ratio], [1.0]), low=0.99 * ratio, high=1.01 * ratio)
    standing = SimpleNamespace(found=found, claimed=claimed, why_not=why_not)
    assert modules["answer"].conclusion((standing,)) == said


def test_a_report_is_written_between_its_markers_and_nowhere_else(
    modules: Any, tmp_path: Path
) -> None:
    readme = modules["readme"]
    text = "a\n<!-- front -->\nold\n<!-- /front -->\nb\n"
    once = readme.replaced(text, "front", ["x", r"\1"])
    assert once == "a\n<!-- front -->\nx\n\\1\n<!-- /front -->\nb\n"
    assert readme.replaced(once, "front", ["old"]) == text
    with pytest.raises(SystemExit, match="<!-- campaign -->"):
        readme.replaced(text, "campaign", [])
    assert readme.written(text, tmp_path) == text  # no exports, no report
