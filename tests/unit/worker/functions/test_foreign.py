"""What somebody names as a finished study and is none gets one line that says what it is not."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from tuner.errors import UsageError
from tuner.worker.functions.foreign import EXPECTED, read_foreign

NO_STUDY = f"holds no study of Optuna's; expected {EXPECTED}"
FILES = {
    "notes.txt": (b"a line of text", NO_STUDY),
    "lines.txt": (b"several\nlines\nof text\n", NO_STUDY),
    "other.json": (b'{"op": 1}\n{"op": 2}\n', NO_STUDY),
    "list.json": (b"[1, 2]\n", NO_STUDY),
    "empty.db": (b"", NO_STUDY),
    "noise.bin": (bytes(range(256)) * 4, NO_STUDY),
    "one_line.bin": (b"\xff\xfe\x00\x80", NO_STUDY),
    "no_value.csv": (b"x,loss\n1,2\n", "one called 'value'"),
    "words.csv": (b"x,value\n1,much\n", "with numbers"),
    "empty.csv": (b"", "one called 'value'"),
    "heading.csv": (b"x,value\n", "no line with a finite 'value'"),
    "binary.csv": (bytes(range(256)), "one called 'value'"),
}


def test_a_source_that_is_no_study_is_named_with_what_is_expected(tmp_path: Path) -> None:
    for name, (content, _) in FILES.items():
        (tmp_path / name).write_bytes(content)
    with contextlib.closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("CREATE TABLE trials (value REAL)")
    JournalStorage(JournalFileBackend(str(tmp_path / "bare.log")))
    (tmp_path / "bare.log").touch()
    wrong = {name: said for name, (_, said) in FILES.items()}
    wrong |= {"other.db": NO_STUDY, "bare.log": NO_STUDY}
    wrong |= {".": f"is no file; expected {EXPECTED}", "missing.db": "is no file; expected"}
    before = sorted(each.name for each in tmp_path.iterdir())
    for name, said in wrong.items():
        with pytest.raises(UsageError) as refused:
            read_foreign(str(tmp_path / name), "x")
        assert said in str(refused.value), name
        assert str(tmp_path / name) in str(refused.value)
        assert len(str(refused.value).splitlines()) == 1
    assert sorted(each.name for each in tmp_path.iterdir()) == before, "nothing is made there"
