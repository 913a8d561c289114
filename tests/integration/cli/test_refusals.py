"""Every refusal of the command line, and the help of every command: the exit code and the one line.

`tests/fixtures/refusals.txt` holds commands, the folder of `tests/support/wrong_files.py` that each
runs in, and what each says. Where a line is to change, or a command is added to the file, this
writes what is said now, to be read before it is committed:

    TUNER_TEST_WRITE=1 .venv/bin/python -m pytest tests/integration/cli/test_refusals.py
"""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path

import pytest

from tests.support.cli_parsing import commands
from tests.support.forked_cli import run_here
from tests.support.paths import REPOSITORY
from tests.support.wrong_files import write_wrong_files

SNAPSHOT = REPOSITORY / "tests" / "fixtures" / "refusals.txt"
MANY = r"(\d)\1{39,}"
"""Of a digit that often, one is kept, and how many there were: `9{40}`."""
OF_THIS_MACHINE = {
    r"(no GPU \d+): .*": r"\1: ...",
    r"(no core \d+; there are) .*": r"\1 ...",
    r"(this device is) '.*?'": r"\1 '...'",
    r"(is not valid TOML): .*": r"\1: ...",
}
"""What is left out of a line: devices that are here, and words of a version of Python."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("wrong")
    write_wrong_files(made)
    (made / "empty").mkdir()
    return made


def there(folder: Path) -> dict[Path, int]:
    """Each file with the time it was written; but for what SQLite and Python keep beside theirs."""
    return {
        path: path.stat().st_mtime_ns
        for path in folder.rglob("*")
        if path.is_file() and not re.search(r"__pycache__|\.db-|\.lock$", str(path))
    }


def words(line: str) -> list[str]:
    return [
        re.sub(r"(\d)\{(\d+)\}", lambda m: m[1] * int(m[2]), word) for word in shlex.split(line)
    ]


def said(line: str, place: Path) -> str:
    """The exit code and the line of a command, which changes nothing."""
    before = there(place)
    done = run_here(*words(line), folder=place)
    assert there(place) == before, line
    if line.endswith("--help"):
        usage, _, about, *_ = (each.strip() for each in done.out.strip().splitlines())
        return f"{done.code} {usage} {about}"
    error = {"message": done.error, "exit_code": done.code}
    assert done.code in (1, 2), (line, done)
    assert json.loads(done.out or "{}") == ({"error": error} if "--json" in line else {}), line
    told = done.error.replace(str(place.parent), "FOLDER")
    for pattern, said_as in OF_THIS_MACHINE.items():
        told = re.sub(pattern, said_as, told)
    return f"{done.code} {re.sub(MANY, lambda m: f'{m[1]}{{{len(m[0])}}}', told)}"


def test_every_refusal_is_one_line_and_writes_nothing(folder: Path) -> None:
    recorded = SNAPSHOT.read_text(encoding="utf-8").splitlines()
    place = folder
    found = []
    for line in recorded:
        if line.startswith("@ "):
            place = folder / line[2:]
        if line.startswith(("@", "#")) or not line:
            found.append(line)
        elif line.startswith("$ tuner"):
            found += [line, said(line.removeprefix("$ tuner"), place)]
    if os.environ.get("TUNER_TEST_WRITE"):
        SNAPSHOT.write_text("\n".join(found) + "\n", encoding="utf-8")
    else:
        assert found == recorded
    assert not (folder / "models" / "ran").exists(), "the code of a card that nobody trusts"
    helped = {line.removeprefix("$ tuner ")[:-7] for line in found if line.endswith(" --help")}
    assert helped == set(commands())


def test_no_command_at_all_is_greeted(tmp_path: Path) -> None:
    done = run_here(folder=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert "tuner retune --variant rmsnorm --against original" in done.out


def test_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    done = run_here("status", "--storage", "sqlite:///\udce4.db", folder=tmp_path)
    assert (done.code, "no text" in done.error) == (2, True)
