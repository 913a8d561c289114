"""Studies of before keep their identity: the hashes that their databases hold were made when task
files had fewer keys."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from tests.support.documentation import blocks
from tuner.data.prepare import prepare
from tuner.data.task import load_task, task_of

BEFORE = {
    "bakery": "fabb7670c220287e85cfb109b8692ff517937849086c092dca105f0b43615835",
    "shops": "4a87075400383d516d2089fa9af497183e5f33a8c60b050e0ba5396a75d85b29",
    "kraftwerk": "713cc0cddc2066acaa078e364b36916da8e77e4e6ea0876490396f5dd2e8ead4",
}
"""Of the documented tasks, on the rows below."""
DEMO = "b11a790cd50a359d8c6c3dc0a5f0edc19f485529eb84f78dcb0393c0d1e8ff7e"


def times(rows: int, step: datetime.timedelta, form: str) -> list[str]:
    first = datetime.datetime(2024, 1, 1, tzinfo=datetime.UTC)
    return [(first + i * step).strftime(form) for i in range(rows)]


def rows_of(name: str) -> str:
    hour, day, quarter = (datetime.timedelta(minutes=n) for n in (60, 1440, 15))
    if name == "bakery":
        return "ds,bread,cake,visitors,price\n" + "".join(
            f"{t},{i % 24 + 0.5},{i % 7},{i * 7 % 31},{2 + i % 3 / 10:.1f}\n"
            for i, t in enumerate(times(1000, hour, "%Y-%m-%d %H:%M:%S"))
        )
    if name == "shops":
        return "unique_id,ds,y\n" + "".join(
            f"{shop},{t},{i * k % 17}\n"
            for k, shop in ((3, "north"), (5, "south"))
            for i, t in enumerate(times(400, day, "%Y-%m-%d"))
        )
    return "Zeit;Leistung\n" + "".join(
        f"{t};{i % 96},{i % 10}\n" for i, t in enumerate(times(700, quarter, "%d.%m.%Y %H:%M"))
    )


@pytest.mark.parametrize("name", BEFORE)
def test_a_documented_task_keeps_its_hash(name: str, tmp_path: Path) -> None:
    (text,) = (
        block.text
        for block in blocks("toml")
        if block.document == "docs/own-data.md" and f'name = "{name}"' in block.text
    )
    (tmp_path / f"{name}.toml").write_text(text, encoding="utf-8")
    (tmp_path / f"{name}.csv").write_text(rows_of(name), encoding="cp1252")
    task = load_task(str(tmp_path / f"{name}.toml"))
    assert prepare(task, cache_dir=tmp_path / "cache").data_hash == BEFORE[name]
    assert set(task.definition()["source"]) == {"kind", "time_column", "id_column"}


def test_the_demo_keeps_its_hash(tmp_path: Path) -> None:
    assert prepare(load_task("demo"), cache_dir=tmp_path).data_hash == DEMO


def test_a_key_that_changes_what_a_task_is_is_part_of_it(tmp_path: Path) -> None:
    text = (
        'name = "x"\ntarget_columns = ["y"]\nfrequency = "h"\ninput_size = 2\nhorizon = 1\n'
        '[source]\nkind = "csv"\npath = "x.csv"\n'
    )
    seen = []
    for more in (
        "",
        'gaps = "fill"\n',
        'gaps = "fill"\nfill = "interpolate"\n',
        'gaps = "skip"\n',
        "index = true\n",
        'index = true\nstart = "1990-01-01"\n',
        'timezone = "Europe/Berlin"\n',
    ):
        (tmp_path / "x.toml").write_text(text + more, encoding="utf-8")
        definition = load_task(str(tmp_path / "x.toml")).definition()
        assert task_of(definition).definition() == definition
        seen.append(definition)
    assert all(seen.count(each) == 1 for each in seen)


def test_how_a_file_is_written_is_no_part_of_a_task(tmp_path: Path) -> None:
    text = (
        'name = "x"\ntarget_columns = ["y"]\nfrequency = "h"\ninput_size = 2\nhorizon = 1\n'
        '[source]\nkind = "csv"\npath = "x.csv"\nindex = true\n'
    )
    (tmp_path / "x.toml").write_text(text, encoding="utf-8")
    (tmp_path / "z.toml").write_text(text + "header = false\n", encoding="utf-8")
    one, two = (load_task(str(tmp_path / name)) for name in ("x.toml", "z.toml"))
    assert one.definition() == two.definition()
