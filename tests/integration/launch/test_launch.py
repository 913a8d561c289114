"""`tuner launch` from an empty folder to a filled study: exact, resumable, and content when there
is nothing to do."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.cli_processes import STUDY, Bench
from tests.support.forked_cli import Done
from tuner.config import OBJECTIVES
from tuner.study.results import read_results

EPOCHS = 3
WORKERS = 2


class Filled:
    """A study filled by two workers, and what its launch printed."""

    def __init__(self, bench: Bench, first: Done) -> None:
        self.bench = bench
        self.first = first


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Filled:
    folder = tmp_path_factory.mktemp("launch")
    bench = Bench(folder, f"sqlite:///{folder}/storage/tuner.db")
    before = bench.run("status", "--json", TUNER_STORAGE=None)  # nobody named a database
    assert (before.code, before.json()["studies"]) == (0, [])
    assert not (folder / "storage").exists()
    return Filled(bench, bench.launch(4, "--json", workers=WORKERS, epochs=EPOCHS))


def test_two_workers_finish_exactly_the_trials_asked_for(filled: Filled) -> None:
    assert filled.first.code == 0, filled.first.err
    (status,) = filled.first.json()["studies"]
    assert filled.first.json()["outcome"] == "filled"
    assert status["trials"] == {"complete": 4, "running": 0, "waiting": 0, "pruned": 0, "failed": 0}
    assert (status["name"], status["variant"], status["task"], status["budget"]) == (
        STUDY,
        "small",
        "tiny",
        4,
    )
    assert status["workers"] == []
    assert filled.bench.trials() == [(number, "COMPLETE") for number in range(4)]
    assert sorted(filled.bench.claims(), key=str) == [("finished", number) for number in range(4)]


def test_the_first_trial_is_the_default(filled: Filled) -> None:
    with filled.bench.opened() as study:
        first, *others = read_results(study).records
        assert first.is_default
        assert first.params == study.definition.defaults.as_dict()
        assert not any(record.is_default for record in others)


def test_every_record_says_what_it_was_measured_on(filled: Filled) -> None:
    with filled.bench.opened() as study:
        for record in read_results(study).records:
            assert record.values is not None
            assert all(value > 0 for value in record.values)
            a = record.recorded.to_flat()
            assert (a["epochs"], a["stopped_by"], a["converged"]) == (EPOCHS, "epoch_limit", False)
            assert a["device"] == study.device_model()
            assert a["total_s"] >= record.values[OBJECTIVES.index("wall_clock_s")]
            assert {
                "seed",
                "backend",
                "precision",
                "versions",
                "peak_memory_bytes",
                "samples_per_s",
            } <= a.keys()
            assert [row.epoch for row in study.epochs.of_trial(record.number)] == list(
                range(1, EPOCHS + 1)
            )
            assert json.loads(json.dumps(a, allow_nan=False)) == a


def test_each_worker_has_a_log_of_its_own(filled: Filled) -> None:
    assert len(list((filled.bench.folder / "storage" / "logs").glob("worker-*.log"))) == WORKERS


def test_the_status_is_one_valid_document(filled: Filled) -> None:
    status = filled.bench.run("status", "--json")
    assert status.code == 0
    (launched,) = filled.first.json()["studies"]
    assert [each | {"changed": {}} for each in status.json()["studies"]] == [launched]
    table = filled.bench.run("status")
    assert table.code == 0
    assert STUDY in table.out


def test_an_unknown_study_is_a_valid_document_too(filled: Filled) -> None:
    status = filled.bench.run("status", "--json", "--study", "tiny-smal")
    assert status.code == 2
    assert "tiny-small" in status.json()["error"]["message"]


def test_a_second_launch_finds_nothing_to_do(filled: Filled) -> None:
    again = filled.bench.launch(4, workers=WORKERS, epochs=EPOCHS)
    assert again.code == 0
    assert f"nothing to do: {STUDY} holds 4 of 4 finished trials" in again.err
    assert len(filled.bench.claims()) == 4


def test_another_definition_is_refused_and_changes_nothing(filled: Filled) -> None:
    stale = filled.bench.launch(9, "--json", workers=WORKERS, epochs=EPOCHS - 1)
    assert stale.code == 2
    assert (
        f"training.max_epochs: {EPOCHS} there, {EPOCHS - 1} asked"
        in stale.json()["error"]["message"]
    )
    assert len(stale.lines) == 1
    assert "Traceback" not in stale.err
    with filled.bench.opened() as study:
        assert study.ledger.counts().budget == 4


def test_another_device_model_is_refused_while_trials_are_left(filled: Filled) -> None:
    """One worker has all the cores, two have half of them each: another clock."""
    arguments = filled.bench.launch_arguments(9, workers=1, epochs=EPOCHS)
    other = filled.bench.run(*arguments)
    assert other.code == 2
    (line,) = other.lines
    assert "do not compare" in line
    assert "--study" in line
    with filled.bench.opened() as study:
        assert study.ledger.counts().budget == 4
    assert filled.bench.run(*arguments, "--trials", "4").code == 0


def test_a_stale_study_keeps_its_sisters_from_being_made(filled: Filled) -> None:
    text = (filled.bench.folder / "small.toml").read_text().replace('"small"', '"sister"')
    (filled.bench.folder / "sister.toml").write_text(text)
    both = filled.bench.launch(
        9, "--variant", "sister.toml,small.toml", workers=WORKERS, epochs=EPOCHS - 1
    )
    assert both.code == 2
    assert [each["name"] for each in filled.bench.run("status", "--json").json()["studies"]] == [
        STUDY
    ]


def test_more_trials_resume(filled: Filled) -> None:
    """It fills the shared study further, and the next test goes on."""
    more = filled.bench.launch(6, workers=WORKERS, epochs=EPOCHS)
    assert more.code == 0, more.err
    assert "6/6" in more.err
    assert filled.bench.trials() == [(number, "COMPLETE") for number in range(6)]
    assert len(filled.bench.claims()) == 6


def test_a_higher_limit_of_epochs_goes_on_with_what_the_old_one_cut_off(filled: Filled) -> None:
    with filled.bench.opened() as study:
        before = read_results(study).records
        losses = {each.number: study.epochs.of_trial(each.number) for each in before}
    more = filled.bench.launch(6, workers=WORKERS, epochs=EPOCHS + 1)
    assert more.code == 0, more.err
    assert (
        sorted(state for state, _ in filled.bench.claims()) == ["finished"] * 6 + ["returned"] * 6
    )
    with filled.bench.opened() as study:
        assert study.definition.training.max_epochs == EPOCHS + 1
        for old, new in zip(before, read_results(study).records, strict=True):
            assert (new.number, new.params) == (old.number, old.params)
            assert (new.recorded.epochs, new.recorded.seed) == (EPOCHS + 1, old.recorded.seed)
            curve = study.epochs.of_trial(new.number)
            assert [row.val_loss for row in curve[:EPOCHS]] == [
                row.val_loss for row in losses[old.number]
            ]
    less = filled.bench.launch(6, workers=WORKERS, epochs=EPOCHS)
    assert less.code == 2
    assert f"{EPOCHS + 1} there, {EPOCHS} asked" in less.err


def test_status_with_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "notes.db").write_text("no database, " * 100)
    bench = Bench(tmp_path, f"sqlite:///{tmp_path}/notes.db")
    status = bench.run("status", "--json")
    assert status.code == 1
    assert "not an SQLite database" in status.json()["error"]["message"]
    assert len(status.lines) == 1
