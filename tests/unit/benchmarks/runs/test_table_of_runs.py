"""The table of recorded runs holds what the exports held that simulations and reports read."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from benchmarks.runs import collect, export, same_truths, table
from benchmarks.verdict.recordings import recordings, recordings_of
from tests.support.paths import BENCHMARKS
from tuner.study.archive import Archive, read_archive, write_archive
from tuner.study.snapshot import snapshot
from tuner.verdict.confirmation import confirmation_of
from tuner.verdict.known_runs import runs_of

EXPORT = "campaign/etth-rmsnorm"
"""One of which the export is in the repository, too."""
CONFIRMED = "neuralforecast_classes/h200/etth-nf-patchtst"
NEWEST = BENCHMARKS / "runs" / "newest.json.gz"
OLDEST = BENCHMARKS / "pruning" / "small-demo-small.json.gz"


@pytest.fixture(scope="module")
def exported() -> Archive:
    return read_archive(BENCHMARKS / f"{EXPORT}.json.gz")


def test_what_a_truth_is_fitted_from_is_that_of_the_export_to_the_last_bit(
    exported: Archive,
) -> None:
    before, now = recordings_of("rmsnorm", [snapshot(exported)]), recordings("rmsnorm")
    assert same_truths.equal(before, now)
    assert len(now.mql) == 226
    assert not same_truths.equal(before, dataclasses.replace(now, mql=now.mql + 1e-15))


def test_every_training_is_a_typed_row(exported: Archive) -> None:
    rows = list(table.runs(EXPORT))
    assert len(rows) == len(exported.records) + len(exported.verifications) == 260
    first, last = rows[0], rows[-1]
    record, run = exported.records[0], exported.verifications[-1]
    assert (first.study, first.variant, first.stage) == ("etth-rmsnorm", "rmsnorm", "search")
    assert (first.params, first.seed) == (record.params, record.recorded.seed)
    assert (first.seconds, first.mql) == record.values
    assert first.converged
    assert run.result is not None
    assert (last.stage, last.seed, last.params) == ("verification", run.seed, run.params)
    assert (last.seconds, last.mql) == run.result.values
    for name in ("val_loss", "val_mql"):
        told, known = getattr(last, name), getattr(run.result.recorded, name)
        assert told == pytest.approx(known, rel=1e-6)
    assert last.series_test_mql == pytest.approx(run.result.recorded.series_test_mql, rel=1e-5)


def test_the_table_holds_all_studies_and_their_stages() -> None:
    names = table.exports()
    assert len(names) == len(set(names)) == 118
    assert {each.stage for each in table.runs("retune/h100/etth-original")} == {
        "search",
        "confirmation",
        "ablation",
    }
    with pytest.raises(KeyError, match="has no study 'nothing'"):
        table.archive("nothing")


def test_the_same_studies_give_the_same_bytes_and_read_back(
    exported: Archive, tmp_path: Path
) -> None:
    one, other = tmp_path / "one.xz", tmp_path / "other.xz"
    table.write({EXPORT: exported}, one)
    table.write({EXPORT: table.archive(EXPORT, one)}, other)
    assert one.read_bytes() == other.read_bytes()
    assert table.archive(EXPORT, one) == table.archive(EXPORT)


def test_a_run_that_another_search_made_is_no_training_of_its_own(
    exported: Archive, tmp_path: Path
) -> None:
    first, *others = exported.verifications
    assert first.result is not None
    recorded = dataclasses.replace(first.result.recorded, copied_from="etth-rmsnorm-2, trial 0")
    shared = dataclasses.replace(first, result=dataclasses.replace(first.result, recorded=recorded))
    path = tmp_path / "one.xz"
    table.write({EXPORT: dataclasses.replace(exported, verifications=(shared, *others))}, path)
    told, *_ = table.archive(EXPORT, path).verifications
    assert told.copied
    assert told.result is not None
    assert told.result.recorded.wall_clock_s == recorded.wall_clock_s
    assert len(list(table.runs(EXPORT, path))) == 259


def test_a_table_is_made_of_files_and_folders(
    exported: Archive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, output = tmp_path / "studies", tmp_path / "table.xz"
    folder.mkdir()
    write_archive(exported, folder / "etth-rmsnorm.json.gz")
    monkeypatch.setattr("sys.argv", ["collect.py", str(folder), "--output", str(output)])
    collect.main()
    name = str(folder / "etth-rmsnorm")
    assert table.exports(path=output) == [name]
    assert collect.name_of(BENCHMARKS / f"{EXPORT}.json.gz") == EXPORT
    given = ["collect.py", str(NEWEST), "--output", str(output)]
    monkeypatch.setattr("sys.argv", given)
    with pytest.raises(SystemExit, match="has 1 studies that are not given"):
        collect.main()
    monkeypatch.setattr("sys.argv", [*given, "--add"])
    collect.main()
    assert table.exports(path=output) == sorted([name, "runs/newest"])


def test_a_study_comes_out_of_it_as_an_exported_one(tmp_path: Path) -> None:
    path = tmp_path / "patchtst.json.gz"
    write_archive(export.numbered(table.archive(CONFIRMED)), path)
    compact, whole = snapshot(read_archive(path)), snapshot(read_archive(NEWEST))
    assert runs_of(compact) == runs_of(whole)
    told = [confirmation_of(each) for each in (compact, whole)]
    assert told[0] is not None
    assert told[1] is not None
    assert told[0].trial == told[1].trial
    assert path.stat().st_size < NEWEST.stat().st_size / 2


@pytest.mark.parametrize(("path", "trials"), [(OLDEST, 60), (NEWEST, 40)])
def test_the_oldest_and_the_newest_export_are_read(path: Path, trials: int) -> None:
    found = read_archive(path)
    assert len(found.records) == trials
    assert found.curves
