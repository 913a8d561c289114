"""A trial's record: typed where it is read, flat where it is stored, and nothing of it lost."""

from __future__ import annotations

import gzip
import math
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from tests.support.paths import BENCHMARKS, REPOSITORY
from tuner.files.kinds import In, OverSeeds
from tuner.record import MEANINGS, SCORES, Recorded, checked, names_in
from tuner.study.archive import read_archive, write_archive

SEARCH = re.compile(r"-[2-9]\.json")
"""The end of a name: of a second or later search of a group, which the same version wrote."""


def exports() -> list[Path]:
    found = []
    for path in [*BENCHMARKS.rglob("*.json.gz"), *(REPOSITORY / "notebooks").rglob("*.json.gz")]:
        with gzip.open(path) as file:
            if b'"tuner study"' in file.read(60):
                found.append(path)
    return found


def test_each_committed_export_reads_and_one_of_each_group_writes_back_the_same(
    tmp_path: Path,
) -> None:
    written = 0
    for path in exports():
        archive, plain = read_archive(path), gzip.decompress(path.read_bytes())
        assert f'"definition_hash":"{archive.definition.identity()}"'.encode() in plain, path
        if not SEARCH.search(path.name):
            write_archive(archive, tmp_path / "again.json")
            assert read_archive(tmp_path / "again.json") == archive, path
            written += 1
    assert written >= 11


FLAT: dict[str, Any] = {
    "warm_start": "etth-simple, trial 3",
    "test_mql/a b": 0.5,
    "epochs": 7,
    "git_revision": None,
    "val_mql/a b": None,
    "test_block_mql/1": 0.25,
    "note": {"of": ["a foreign client"]},
    "nothing": None,
    "order": "no field is meant",
    "versions": {"torch": "2", "cuda": None},
    "energy_j": 9000.5,
    "device_watch": {"throttle_reasons": 0},
}


def test_what_was_stored_is_written_back_as_it_was_whatever_it_is() -> None:
    recorded = Recorded.from_flat(FLAT)
    assert list(recorded.to_flat().items()) == list(FLAT.items())
    assert checked(FLAT) == recorded
    assert (recorded.epochs, recorded.git_revision) == (7, None)
    assert (recorded.series_test_mql, recorded.series_val_mql) == ({"a b": 0.5}, {"a b": None})
    assert recorded.block_test_mql == {"1": 0.25}
    assert set(recorded.other) == {"note", "nothing", "order"}


def test_what_is_added_comes_after_what_was_stored_and_what_is_taken_out_leaves_nothing() -> None:
    recorded = replace(Recorded.from_flat(FLAT), attempts=2, warm_start=None, git_revision="abc")
    flat = {name: value for name, value in FLAT.items() if name != "warm_start"}
    assert list(recorded.to_flat().items()) == [
        *(flat | {"git_revision": "abc"}).items(),
        ("attempts", 2),
    ]


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("wall_clock_s", "1.5", "a finite number"),
        ("wall_clock_s", math.nan, "a finite number"),
        ("val_loss", True, "a finite number"),
        ("s_per_epoch", -0.1, "a number from 0 on"),
        ("timed_from", 1e12, "a time in seconds since 1970"),
        ("energy_j", -1.0, "a number from 0 on"),
        ("epochs", 10**10, "a number of epochs"),
        ("peak_memory_bytes", 1.5, "a whole number from 0 on"),
        ("converged", 1, "true or false"),
        ("failure", ["no text"], "a text"),
        ("versions", {"torch": 2}, "a table of texts"),
        ("runs", [1], "a list of tables"),
        ("seeds", [-1], "a list of seeds"),
        ("test_mql/OT", "0.5", "a finite number"),
        ("own", math.inf, "plain data"),
    ],
)
def test_what_is_wrong_is_refused_in_a_file_and_left_out_of_a_shared_database(
    name: str, value: Any, expected: str
) -> None:
    with pytest.raises(ValueError, match=rf"^attribute '{name}' is .*; expected {expected}$"):
        checked({"epochs": 3} | {name: value})
    assert Recorded.from_flat({"seed": 3, name: value}) == Recorded(seed=3)


def test_texts_of_others_are_harmless_names_too() -> None:
    recorded = Recorded.from_flat({"failure": "\x1b]0;x", "own \x07": "\x9b", "test_mql/\x1b": 1.0})
    assert recorded.to_flat() == {
        "failure": "\ufffd]0;x",
        "own \ufffd": "\ufffd",
        "test_mql/\ufffd": 1.0,
    }


def test_a_training_that_ended_is_storable_as_json() -> None:
    recorded = Recorded(val_loss=math.nan, epochs=0, series_test_mql={"OT": math.inf}).storable()
    assert recorded.to_flat() == {
        "epochs": 0,
        "val_loss": None,
        "backend_fallback": None,
        "git_revision": None,
        "resumed_from_epoch": None,
        "test_mql/OT": None,
    }
    assert Recorded.from_flat(recorded.to_flat()) == recorded


def test_every_field_says_what_it_means() -> None:
    told = {*SCORES, "other", "order", "nulls"}
    assert {each.name for each in fields(Recorded)} == MEANINGS.keys() | told
    timed = {name for name in MEANINGS if name.endswith("_s") or name == "s_per_epoch"} - {
        "samples_per_s"
    }
    assert {name for name, each in MEANINGS.items() if each.kind.unit == "s"} == timed
    counted = {name for name in MEANINGS if name.endswith("_bytes")}
    assert {name for name, each in MEANINGS.items() if each.kind.unit == "bytes"} == counted


def test_a_record_says_where_else_its_things_are_kept() -> None:
    provenance = (
        "seed device versions git_revision epochs best_epoch s_per_epoch converged stopped_by "
        "contaminated backend precision val_loss val_mql default"
    )
    assert set(names_in(In.PROVENANCE)) == set(provenance.split())
    runs = (
        "seed wall_clock_s test_mql val_mql val_loss epochs best_epoch stopped_by converged "
        "time_to_best_s time_to_target_s setup_s total_s s_per_epoch resumed_from_epoch "
        "contaminated contamination timed_from timed_until timings failure slowed gpu_busy "
        "cpu_busy energy_j energy_unresolved"
    )
    assert set(names_in(In.RUNS)) == set(runs.split())
    timings = "wall_clock_s stopped_by contaminated contamination timed_from timed_until"
    assert set(names_in(In.TIMINGS)) == set(timings.split())
    over_seeds = {name: each.over_seeds for name, each in MEANINGS.items()}
    assert over_seeds["peak_memory_bytes"] is OverSeeds.MAX
    assert {name for name, each in over_seeds.items() if each is OverSeeds.ALL} == {"converged"}
