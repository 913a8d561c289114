"""The table of `tuner compare` at a terminal: whatever its width, no word and no figure is
broken."""

from __future__ import annotations

import pytest

from tests.support.paths import REPOSITORY
from tuner.report.terminal.comparison import print_report
from tuner.report.terminal.explanations import print_explanations
from tuner.verdict.compare.findings import Report, compare
from tuner.verdict.compare.studies import read_studies
from tuner.verdict.explain import explain_study

STUDIES = REPOSITORY / "notebooks" / "data"
FILES = [str(STUDIES / f"{name}.json.gz") for name in ("original", "rmsnorm")]


@pytest.fixture(scope="module")
def report() -> Report:
    return compare(read_studies(FILES, task="etth", storage="sqlite:///none.db"))


def table_of(
    report: Report, width: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    """What stands above the sentences."""
    monkeypatch.setenv("COLUMNS", str(width))
    print_report(report)
    return capsys.readouterr().out.partition("\n\n")[0]


def test_a_wide_terminal_shows_every_column_on_one_line_a_row(
    report: Report, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    table = table_of(report, 300, monkeypatch, capsys)
    assert "core change" in table
    assert "Left out" not in table
    variants = tuple(f"{row.variant} " for row in report.rows)
    assert len([line for line in table.splitlines() if line.startswith(variants)]) == len(
        report.rows
    )


def test_a_narrow_terminal_leaves_columns_out_and_says_which(
    report: Report, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    *table, left_out = table_of(report, 80, monkeypatch, capsys).split(
        "Left out for want of width: "
    )
    assert left_out.startswith("core change, verdict")
    rows = table[0].splitlines()
    assert max(len(line) for line in rows) <= 80
    assert [line.split()[0] for line in rows if line.startswith("small-")] == [
        row.variant for row in report.rows
    ]
    assert all("test MQL" in line for line in rows[:1])


def test_an_explanation_keeps_a_span_of_learning_rates_on_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    understood = explain_study(read_studies(FILES[:1], task="etth", storage="sqlite:///none.db")[0])
    print_explanations([understood])
    shown = capsys.readouterr().out
    assert all(f"{rate.low:.1e} to {rate.high:.1e} " in shown for rate in understood.learning_rates)
