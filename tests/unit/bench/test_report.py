from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tuner.bench.contender import Measurement, Round, Scope
from tuner.bench.report import Circumstances, results_of

Turn = Callable[..., Round]
Measured = Callable[..., Measurement]


@pytest.fixture
def circumstances() -> Circumstances:
    return Circumstances(
        date="2026-01-02T03:04:05+00:00",
        device="a device, with a comma",
        task="demo",
        precision="fp32",
        epochs_per_round=2,
        command="tuner bench --task demo",
        versions="torch 2",
        git_revision="",
        contamination="",
    )


def test_the_csv_reads_back_and_the_table_has_a_line_for_each_row(
    turn: Turn, measured: Measured, circumstances: Circumstances, tmp_path: Path
) -> None:
    found = [
        measured("darts", 1.0, turn(1.0, (1.0, 0.1), peak=3 * 2**20)),
        measured("neuralforecast", 1.0, turn(1.0, (0.5, 0.05)), scope=Scope.STEPS),
        measured("tuner", 2.0, failure='out of memory: "all" of it, gone'),
    ]
    table, document = results_of(found, circumstances).write(tmp_path / "new" / "folder")
    with table.open(encoding="utf-8", newline="") as file:
        read = list(csv.DictReader(file))
    assert [row["contender"] for row in read] == ["darts", "neuralforecast", "tuner"]
    assert float(read[0]["s_per_epoch"]) == 1.0
    assert int(read[0]["peak_memory_bytes"]) == 3 * 2**20
    assert read[1]["scope"] == "training steps only, without validation"
    assert (read[2]["failure"], read[2]["s_per_epoch"]) == ('out of memory: "all" of it, gone', "")
    assert {row["device"] for row in read} == {"a device, with a comma"}
    text = document.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 5
    assert len({line.count("|") for line in lines}) == 1
    assert "neuralforecast *" in text
    assert "* neuralforecast: training steps only, without validation; a note." in text
    assert 'tuner, hidden 64, batch 256: out of memory: "all" of it, gone' in text


def test_an_unfinished_run_says_how_far_it_came_until_the_whole_one_takes_its_place(
    turn: Turn, measured: Measured, circumstances: Circumstances, tmp_path: Path
) -> None:
    found = [measured("tuner", 1.0, turn(1.0, (1.0, 0.1)))]
    far = "1 of 3 rounds done"
    table, document = results_of(found, replace(circumstances, incomplete=far)).write(tmp_path)
    assert f"Incomplete: {far}." in document.read_text()
    assert far in table.read_text()
    assert results_of(found, circumstances).write(tmp_path) == (table, document)
    assert "ncomplete: " not in document.read_text()
    assert far not in table.read_text()
    assert set(tmp_path.iterdir()) == {table, document}


def test_the_screen_shows_ratios_and_failures(
    turn: Turn,
    measured: Measured,
    circumstances: Circumstances,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    found = [
        measured("darts", 1.0, turn(1.0, (1.0, 0.1))),
        measured("tuner", 1.0, turn(1.0, (0.05, 0.004))),
        measured("other", 1.0, failure="broken [bold]"),
    ]
    results_of(found, circumstances).show()
    shown = capsys.readouterr().out
    assert " 20.00 " in shown
    assert " 25.00 " in shown
    assert "other (failed)" in shown
    assert "broken [bold]" in shown
