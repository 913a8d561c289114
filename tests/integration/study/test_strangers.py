"""Exported studies of strangers: limits before anything is inflated, one line where one is broken,
no code unasked."""

from __future__ import annotations

import gzip
import time
import tracemalloc
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.changed_exports import EXPORT, export_with
from tests.support.forked_cli import run_here as run
from tuner.errors import StorageError, UsageError
from tuner.export import load_best, render
from tuner.spec.policy import SearchPolicy
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.archive import archive_of, read_archive, write_archive
from tuner.study.code import require_trust
from tuner.study.open import open_study
from tuner.study.transfer import restore


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (("budget",), "many"),
        (("budget",), 10**30),
        (("budget",), -5),
        (("budget",), True),
        (("device_model",), "\x1b[2J"),
        (("name",), 7),
        (("policy", "sampler"), "os"),
        (("policy", "max_time_s"), 0),
        (("definition", "task", "source", "rows"), "400); print(1"),
        (("definition", "variant"), "a\nb"),
        (("definition", "architecture", "model"), "x.py:a b"),
        (("definition", "architecture", "settings"), {"a b": 1}),
        (("definition", "training", "patience"), float("inf")),
        (("definition", "objectives"), ["wall_clock_s", "val_mql"]),
        (("trials", 0, "params", "hidden_size"), "64"),
        (("trials", 0, "params", "hidden_size"), 10**6),
        (("trials", 0, "values"), [1.0, float("nan")]),
        (("trials", 0, "values"), [0.0, 0.8]),
        (("trials", 0, "started"), "yesterday"),
        (("trials", 0, "attributes", "epochs"), "ten"),
        (("trials", 0, "attributes", "versions"), [1]),
        (("trials", 1, "number"), 0),
        (("curves", "0", "epoch", 1), 1),
        (("curves", "0", "val_loss", 0), {}),
        (("verifications", 0, "plan", "looks"), [3, 2]),
        (("verifications", 0, "trial_number"), 99),
        (("verifications", 0, "result", "values"), None),
    ],
    ids=str,
)
def test_a_field_of_a_wrong_kind_is_refused_in_one_line(
    field: tuple[Any, ...], value: Any, tmp_path: Path
) -> None:
    def change(study: dict[str, Any]) -> None:
        inner: Any = study
        for key in field[:-1]:
            inner = inner[key]
        inner[field[-1]] = value

    with pytest.raises(UsageError) as refused:
        read_archive(export_with(tmp_path / "x.json", change))
    assert str(refused.value).isprintable()


def test_what_a_terminal_obeys_is_taken_out_of_texts(tmp_path: Path) -> None:
    def change(study: dict[str, Any]) -> None:
        study["definition"]["core_change"] = "a\x1b[31mb\u202e"
        study["trials"][0]["attributes"]["failure"] = "\x1b]0;x\x07\x9b"

    archive = read_archive(export_with(tmp_path / "x.json", change))
    assert archive.definition.core_change == "a\ufffd[31mb\ufffd"
    assert archive.records[0].recorded.failure == "\ufffd]0;x\ufffd\ufffd"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (EXPORT.read_bytes()[:2000], "is no exported study"),
        (
            EXPORT.read_bytes()[:100] + b"\xff" * 50 + EXPORT.read_bytes()[150:],
            "is no exported study",
        ),
        (b"[" * 100_000, "nested more than 32 deep"),
        (b"[[]," + b"[]," * 1_100_000 + b"[]]", "more than 1,000,000 tables and lists"),
        (b'{"a": NaN}', "no finite number"),
        (b'{"a": ' + b"9" * 5000 + b"}", "beyond 64 bits"),
    ],
    ids=["cut", "damaged", "deep", "many lists", "nan", "long number"],
)
def test_a_broken_export_is_refused(content: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json.gz"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=says):
        read_archive(path)


def test_a_small_file_that_inflates_to_gigabytes_is_refused_before_it_does(tmp_path: Path) -> None:
    path = tmp_path / "x.json.gz"
    with gzip.open(path, "wb", compresslevel=1) as file:
        for _ in range(256):
            file.write(b" " * (1 << 20))
    tracemalloc.start()
    try:
        with pytest.raises(UsageError, match="holds more than 64 MiB of JSON"):
            read_archive(path)
        assert tracemalloc.get_traced_memory()[1] < 200 << 20
    finally:
        tracemalloc.stop()


def test_a_configuration_is_printed_in_every_form_without_importing_its_class(
    exports: Path,
) -> None:
    best = load_best(pick="knee", storage="x.json")
    for form in ("json", "toml", "python", "neuralforecast", "darts"):
        assert "net.py" in render(best, form)
    assert not (exports / "ran").exists()


def test_a_class_that_an_export_names_is_built_only_where_somebody_trusts_it(exports: Path) -> None:
    best = load_best(pick="knee", storage="x.json")
    for build in (best.build_model, best.to_neuralforecast):
        with pytest.raises(
            UsageError, match=r"x\.json names the network net\.py:Net, whose code would run here"
        ):
            build()
    assert not (exports / "ran").exists()
    with pytest.raises(UsageError, match="is not a subclass"):
        load_best(pick="knee", storage="x.json", trust=True).build_model()
    assert (exports / "ran").exists()


def test_train_says_which_code_runs_and_asks_for_trust(exports: Path) -> None:
    asked = (
        "train",
        "--study",
        "quick-small-original",
        "--pick",
        "knee",
        "--storage",
        "x.json",
        "--cpu",
        "--output",
        "m.safetensors",
    )
    refused = run(*asked, folder=exports)
    assert (refused.code, (exports / "ran").exists()) == (2, False)
    assert "net.py:Net" in refused.error
    assert "--trust" in refused.error


def test_what_was_imported_is_built_only_where_somebody_trusts_it(exports: Path) -> None:
    url = f"sqlite:///{exports}/t.db"
    with closing(open_database(parse_url(url))) as database:
        restore(database, read_archive(exports / "x.json"), "s", origin="x.json")
    best = load_best(study="s", pick="knee", storage=url)
    for build in (best.build_model, best.to_neuralforecast):
        with pytest.raises(
            UsageError, match=r"study 's', which came from x\.json, names the network net\.py:Net"
        ):
            build()
    asked = f"train --study s --pick knee --storage {url} --cpu --output m.safetensors"
    refused = run(*asked.split(), folder=exports)
    assert (refused.code, (exports / "ran").exists()) == (2, False)
    assert "say --trust" in refused.error
    with pytest.raises(UsageError, match="is not a subclass"):
        load_best(study="s", pick="knee", storage=url, trust=True).build_model()
    assert (exports / "ran").exists()


def test_an_imported_study_is_trusted_once_by_whoever_trains_it_first(exports: Path) -> None:
    database = open_database(parse_url(f"sqlite:///{exports}/t.db"))
    try:
        opened = restore(database, read_archive(exports / "x.json"), "s", origin="x.json")
        with pytest.raises(
            UsageError, match=r"came from x\.json, and to train it runs the code of net\.py:Net"
        ):
            require_trust(opened, trust=False)
        said = require_trust(opened, trust=True)
        assert said == "study s runs the code of net.py:Net"
        assert require_trust(open_study(database, "s"), trust=False) == said
        ours = restore(database, read_archive(EXPORT), "u", origin=str(EXPORT))
        assert require_trust(ours, trust=False) is None
        write_archive(archive_of(opened), exports / "again.json")
        assert not (exports / "ran").exists()
    finally:
        database.close()


@pytest.mark.parametrize(
    "text", ['{"sampler": 5}', '{"max_time_s": 0}', '{"reruns": -1}', "[", "[]", '{"seed": 1e999}']
)
def test_a_policy_that_is_none_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(StorageError, match="the study's policy"):
        SearchPolicy.from_json(text)


def test_a_toml_file_of_many_keys_is_read_in_seconds_and_a_larger_one_refused(
    tmp_path: Path,
) -> None:
    from tuner.files.toml_file import read_toml

    path = tmp_path / "x.toml"
    path.write_text("\n".join(f"k{number} = 1" for number in range(40_000)), encoding="utf-8")
    began = time.process_time()
    assert read_toml(path).line(("k39999",)) == 40_000
    assert time.process_time() - began < 10
    path.write_text("\n".join(f"k{number} = 1" for number in range(300_000)), encoding="utf-8")
    with pytest.raises(UsageError, match="holds more than 1 MiB"):
        read_toml(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a = " + "[" * 5000 + "]" * 5000, "nested more than 32 deep"),
        ("a = " + "[" * 40 + "]" * 40, "nested more than 32 deep"),
        ("a" + ".a" * 200_000 + " = 1", "line 1: a key of more than 32 parts"),
        ("a = " + "9" * 5000, "cannot be used"),
        ("a = 9223372036854775808", "beyond 64 bits"),
        ("a = nan", "no finite number"),
    ],
    ids=["very deep", "deep", "long key", "long number", "large number", "nan"],
)
def test_toml_beyond_all_measure_is_refused_in_one_line(
    text: str, says: str, tmp_path: Path
) -> None:
    from tuner.files.toml_file import read_toml

    (tmp_path / "x.toml").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=says) as refused:
        read_toml(tmp_path / "x.toml")
    assert "\n" not in str(refused.value)
