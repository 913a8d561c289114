"""The campaign in calls: its state travels in one file, time is kept, and a dry run goes through
all of it."""

from __future__ import annotations

import contextlib
import importlib
import json
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from tests.support import forked_cli
from tests.support.cli_parsing import parse
from tests.support.paths import BENCHMARKS
from tuner.storage.database import open_database
from tuner.storage.schema import SCHEMA_VERSION
from tuner.storage.url import parse_url
from tuner.study.open import open_study
from tuner.verdict.compare.findings import compare
from tuner.verdict.compare.studies import read_studies
from tuner.verdict.queue import verifications_of
from tuner.verdict.stats.searches import compare_searches

CAMPAIGN = BENCHMARKS / "campaign"
REPOSITORY = CAMPAIGN.parents[1]
MODULES = ("plan", "state", "answer", "report_tables", "readme", "run", "report")


@pytest.fixture(scope="module", autouse=True)
def modules() -> Iterator[dict[str, ModuleType]]:
    """Their names are common ones: nobody else is to find them."""
    path = list(sys.path)
    sys.path.insert(0, str(CAMPAIGN))
    yield {name: importlib.import_module(name) for name in MODULES}
    sys.path[:] = path
    for name in MODULES:
        sys.modules.pop(name, None)


def fill(path: Path, rows: int) -> sqlite3.Connection:
    """A database that stays open, with its rows in the write-ahead log."""
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("CREATE TABLE t (x)")
    connection.executemany("INSERT INTO t VALUES (?)", [(n,) for n in range(rows)])
    connection.commit()
    return connection


def rows_in(path: Path) -> int:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        (count,) = connection.execute("SELECT count(*) FROM t").fetchone()
    return int(count)


def test_the_state_of_a_database_in_use_comes_back_with_logs_and_calls(
    modules: Any, tmp_path: Path
) -> None:
    state, work, again = modules["state"], tmp_path / "work", tmp_path / "again"
    (work / "logs").mkdir(parents=True)
    again.mkdir()
    (work / "logs" / "worker-a.log").write_bytes(b"early" + b"x" * state.LOG_BYTES)
    (work / "calls.jsonl").write_text("{}\n")
    archive = tmp_path / "out" / state.NAME
    with contextlib.closing(fill(work / state.DATABASE, 1000)):
        state.save(work, archive)
    assert state.restore(archive, again)
    assert rows_in(again / state.DATABASE) == 1000
    assert (again / "logs" / "worker-a.log").read_bytes() == b"x" * state.LOG_BYTES
    assert (again / "calls.jsonl").read_text() == "{}\n"
    assert [path.name for path in archive.parent.iterdir()] == [state.NAME]


def test_no_state_is_a_beginning_and_a_damaged_one_an_error(modules: Any, tmp_path: Path) -> None:
    state = modules["state"]
    assert not state.restore(tmp_path / state.NAME, tmp_path)
    (tmp_path / state.NAME).write_bytes(b"\x1f\x8bno such thing")
    with pytest.raises(SystemExit, match="cannot be read"):
        state.restore(tmp_path / state.NAME, tmp_path)


def test_exported_studies_are_a_state_to_go_on_from(modules: Any, tmp_path: Path) -> None:
    state, again = modules["state"], tmp_path / "again"
    again.mkdir()
    assert not state.restore_exports(tmp_path, again, ["quick-small-original"])
    assert not list(again.iterdir())
    shutil.copy(
        REPOSITORY / "notebooks" / "data" / "original.json.gz",
        tmp_path / "quick-small-original.json.gz",
    )
    (tmp_path / state.CALLS).write_text("{}\n")
    assert state.restore_exports(tmp_path, again, ["quick-small-original", "quick-small-rmsnorm"])
    database = open_database(parse_url(f"sqlite:///{again / state.DATABASE}"), create=False)
    try:
        study = open_study(database, "quick-small-original")
        assert study.ledger.counts().finished == study.ledger.counts().budget == 14
        assert len(verifications_of([study]).runs()) > 0
    finally:
        database.close()
    assert state.calls_in(again) == "{}\n"
    (tmp_path / "quick-small-original.json.gz").write_bytes(b"\x1f\x8bno such thing")
    with pytest.raises(SystemExit, match=r"quick-small-original\.json\.gz"):
        state.restore_exports(tmp_path, tmp_path / "third", ["quick-small-original"])


def test_a_state_of_an_older_revision_goes_on_with_this_one_s_tables(
    modules: Any, tmp_path: Path
) -> None:
    state = modules["state"]
    old = REPOSITORY / "tests" / "integration" / "storage" / "version-1" / "sqlite.sql"
    with contextlib.closing(sqlite3.connect(tmp_path / state.DATABASE)) as database:
        database.executescript(old.read_text(encoding="utf-8"))
        seen = {"seen_at": time.time(), "stopped": 0}  # of a call that was killed a moment ago
        database.execute("UPDATE tuner_workers SET seen_at = :seen_at, stopped = :stopped", seen)
        database.commit()
        assert database.execute("SELECT count(*) FROM tuner_workers").fetchone()[0] > 0
    state.modernise(tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / state.DATABASE)) as database:
        assert database.execute("SELECT version FROM tuner_schema").fetchone()[0] == SCHEMA_VERSION
        database.execute("UPDATE tuner_schema SET version = 1000")
        database.commit()
    with pytest.raises(SystemExit, match="cannot be used with this revision"):
        state.modernise(tmp_path)


@pytest.mark.parametrize("at", [0.2, 0.5, 0.9])
def test_a_state_that_changed_on_its_way_is_not_taken_for_the_one_written(
    modules: Any, tmp_path: Path, at: float
) -> None:
    state, archive = modules["state"], tmp_path / "campaign.tar.gz"
    with contextlib.closing(fill(tmp_path / state.DATABASE, 5000)):
        state.save(tmp_path, archive)
    content = bytearray(archive.read_bytes())
    content[int(at * len(content))] ^= 0x5A
    archive.write_bytes(content)
    with pytest.raises(SystemExit, match="cannot be read"):
        state.restore(archive, tmp_path / "again")


def test_the_state_of_a_first_call_that_was_killed_lists_no_calls(
    modules: Any, tmp_path: Path
) -> None:
    state, archive, again = modules["state"], tmp_path / "campaign.tar.gz", tmp_path / "again"
    with contextlib.closing(fill(tmp_path / state.DATABASE, 3)):
        state.save(tmp_path, archive)
    assert state.restore(archive, again)
    assert state.calls_in(again) == ""
    assert modules["report"].calls_in is state.calls_in


def test_the_state_is_written_meanwhile_too(modules: Any, tmp_path: Path) -> None:
    state, archive = modules["state"], tmp_path / "campaign.tar.gz"
    with (
        contextlib.closing(fill(tmp_path / state.DATABASE, 3)),
        state.saved_regularly(tmp_path, archive, every_s=0.01),
    ):
        deadline = time.monotonic() + 60
        while not archive.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)


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
    text = (REPOSITORY / "docs" / "campaign.md").read_text(encoding="utf-8")
    emptied = readme.replaced(text, "campaign", [])
    assert len(emptied) < len(text)
    assert readme.written(emptied, CAMPAIGN) == text


def test_the_committed_comparison_says_all_that_tuner_compare_says(modules: Any) -> None:
    paths = [str(path) for path in modules["readme"].exports(CAMPAIGN)]
    said = compare(read_studies(paths, task="etth", storage="sqlite:///none.db")).as_dict()
    committed = json.loads((CAMPAIGN / "compare.json").read_text())
    assert committed.keys() == said.keys()
    assert [answer.keys() for answer in committed["comparisons"]] == [
        answer.keys() for answer in said["comparisons"]
    ]
    assert committed["resolution"] == said["resolution"]
    assert [level["test_mql_at_most"] for level in committed["time_at_equal_quality"]] == [
        level["test_mql_at_most"] for level in said["time_at_equal_quality"]
    ]


def test_the_report_answers_the_question_first(modules: Any) -> None:
    """Of the small studies: what a report holds, whether the campaign's own studies are there or
    not."""
    readme, data = modules["readme"], REPOSITORY / "notebooks" / "data"
    paths = [data / "original.json.gz", data / "rmsnorm.json.gz"]
    call = {"date": "2026-11-22T01:00:00+00:00", "took_s": 90.0, "workers": 2}
    lines = readme.campaign_lines(paths, f"{json.dumps(call)}\n" * 2)
    text = "\n".join(lines)
    told = [line for line in lines if line.startswith("- ")]
    # Each against its own default: as that was not verified often enough, there is no level yet.
    assert len(told) == 2
    assert told[0].startswith("- retuned small-original against default small-original: ")
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
