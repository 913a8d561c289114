"""What is no plain file in place of one: to read it could last for ever, so it is not begun."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tuner import load_model
from tuner.data.open_file import read_bytes
from tuner.data.proposal.sheet import Told, read_sheet
from tuner.data.recent_rows import read_frame
from tuner.data.sources import SHA256, read_etth
from tuner.errors import TunerError
from tuner.files.toml_file import read_toml
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.archive import read_archive

READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a task's data": ("data.csv", read_bytes),
    "rows": ("rows.csv", lambda path: read_frame(path, texts=[])),
    "a file to propose a task for": ("rows.csv", lambda path: read_sheet(path, Told())),
    "ETT": (next(iter(SHA256)), lambda path: read_etth(path.parent)),
    "a model": ("m.safetensors", load_model),
    "a TOML file": ("task.toml", read_toml),
    "an exported study": ("study.json.gz", read_archive),
    "a database": ("t.db", lambda path: open_database(parse_url(f"sqlite:///{path}"))),
}


@pytest.mark.parametrize("kind", ["pipe", "device"])
@pytest.mark.parametrize("what", READERS)
def test_no_reader_waits_for_a_pipe_or_a_device(what: str, kind: str, tmp_path: Path) -> None:
    name, read = READERS[what]
    if kind == "pipe":
        os.mkfifo(tmp_path / name)
    else:
        (tmp_path / name).symlink_to("/dev/null")
    with pytest.raises(TunerError, match=r"pipe or a device; name a|is not an SQLite") as said:
        read(tmp_path / name)
    assert name in str(said.value)


def test_of_a_command_that_feeds_it_a_toml_file_is_read_and_a_table_is_not(tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.write(writer, b"x = 1")
    os.close(writer)
    assert read_toml(f"/dev/fd/{reader}").data == {"x": 1}
    os.close(reader)
