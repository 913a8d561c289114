"""Studies whose names, workers and attributes a stranger wrote: every command that reads shows them
as text."""

from __future__ import annotations

import csv
import html
import io
import json
import re
import sqlite3
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import optuna
import pytest

from tests.support.drawn_verifications import verify_all
from tests.support.recorded_studies import record_study
from tuner.cli.main import main
from tuner.display.text import shown
from tuner.report.dashboard.additions import Additions, without_tags
from tuner.report.dashboard.downloads import StudyFiles
from tuner.report.figures.draw import KINDS
from tuner.report.terminal.verification import print_verified
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.archive import archive_of
from tuner.study.open import open_study
from tuner.study.transfer import restore
from tuner.verdict.verification_plan import plan_verification

PRINTABLE = (
    "exp [/v2] :smile: [bold red]a[/bold red]",
    "x.json",
    'it\'s "quoted" \\ $(touch owned) `touch owned`; touch owned',
    "<img src=x onerror=alert(1)></script>",
    "| a | *b* | ![i](http://h/i.png) {0} %s %(x)s %{x}",
    "-rf",
    "=1+cmd|' /C calc'!A0",
    "group:x",
    "日本語",
)
"""Each holds what has a meaning somewhere: to rich, to HTML, to a shell, to Markdown, to a format,
to a spreadsheet, to our own flags. A name more costs every command that is tried here."""
UNPRINTABLE = (
    "\x1b[2J\x1b]0;owned\x07 \x9b31m",
    "red del\x7f abc\u202egnp.exe",
    "two\nlines\tand a tab",
)
LONG = "n" * 480 + "-end"
NAMES = (*PRINTABLE, *UNPRINTABLE, LONG)
ATTACK = "[/] :boom: <img src=x onerror=alert(1)> \x1b[31m$(touch owned)\n| `b` \u202e"
"""What a worker, a host, a device and a failure are called."""


@dataclass(frozen=True, slots=True)
class Ended:
    """A command that ran in this process."""

    code: int
    out: str
    err: str


@dataclass(frozen=True, slots=True)
class Hostile:
    """A database with studies of hostile names, and how to run commands on it."""

    url: str
    capture: pytest.CaptureFixture[str]

    def run(self, *arguments: str) -> Ended:
        with pytest.raises(SystemExit) as ended:
            main([*arguments, "--storage", self.url])
        out, err = self.capture.readouterr()
        return Ended(int(ended.value.code or 0), out, err)

    def reads(self, *arguments: str) -> str:
        """What a command prints that must succeed: nothing in it acts upon a terminal."""
        done = self.run(*arguments)
        assert done.code == 0, f"{arguments}: {done.err}"
        harmless(done.out + done.err)
        return done.out


def harmless(text: str) -> None:
    for line in text.split("\n"):
        assert line.isprintable(), repr(line)


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> str:
    """One study recorded and verified, then copied under every name; a worker of a hostile name is
    at each."""
    path = tmp_path_factory.mktemp("hostile") / "tuner.db"
    url = f"sqlite:///{path}"
    attributes = {"device_label": ATTACK, "host": ATTACK, "own [/b]": ATTACK, "failure": ATTACK}
    attributes |= {"=own": "@own"}
    record_study(
        url, variant="rmsnorm", name="plain", trials=6, worker=ATTACK[:100], said=attributes
    )
    database = open_database(parse_url(url))
    plain = open_study(database, "plain")
    plan_verification([plain], top=1, seeds=6)
    verify_all([plain])
    archive = archive_of(plain)
    for name in NAMES:
        copied = restore(database, archive, name)
        copied.roster.join(
            ATTACK[:100], host=ATTACK[:100], pid=1, device=ATTACK[:100], device_uuid="u"
        )
    database.close()
    with sqlite3.connect(path) as connection:
        connection.execute(
            "UPDATE tuner_studies SET device_model = ? WHERE study_id > 3", (ATTACK,)
        )
    connection.close()
    return url


@pytest.fixture
def hostile(
    recorded: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Hostile:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    return Hostile(recorded, capsys)


def test_status_shows_every_study(hostile: Hostile) -> None:
    out = hostile.reads("status")
    for name in (*PRINTABLE, *map(shown, UNPRINTABLE)):
        assert name in out
    assert "n…n" in out  # one long name takes no room from the others
    assert max(map(len, out.splitlines())) <= 400
    found = json.loads(hostile.reads("status", "--json"))
    assert [each["name"] for each in found["studies"]] == [
        "plain",
        *NAMES,
    ]  # exact: a program reads it
    assert hostile.reads("status", f"--study={NAMES[0]}")


def test_a_trial_of_every_study_is_shown(hostile: Hostile) -> None:
    for index, name in enumerate(NAMES):
        number = (0, 5)[index % 2]  # one that converged, one that failed
        out = hostile.reads("trial", str(number), f"--study={name}")
        assert f"{shown(name)}, trial {number}" in out
        assert "own [/b]" in out
        assert ":boom:" in out
    assert (
        json.loads(hostile.reads("trial", "0", f"--study={NAMES[0]}", "--json"))["study"]
        == NAMES[0]
    )


FORMS = ("toml", "json", "python", "neuralforecast", "darts")


def test_the_best_of_every_study_is_printed_in_every_form(hostile: Hostile) -> None:
    for index, name in enumerate(NAMES):
        assert hostile.reads(
            *("best", f"--study={name}", "--pick", "knee"), "--format", FORMS[index % len(FORMS)]
        )


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - {"importances"}))  # which takes ten trials
def test_every_figure_takes_names_for_text(kind: str, hostile: Hostile, tmp_path: Path) -> None:
    studies = f"--study={NAMES[3]},{UNPRINTABLE[0]}"
    hostile.reads("plot", kind, studies, "--output", "all.html")
    page = (tmp_path / "all.html").read_text(encoding="utf-8")
    drawn = page[page.rindex("Plotly.newPlot(") :]
    drawn = re.sub(r'"legendgroup":"(?:[^"\\]|\\.)*"', "", drawn)
    assert "&lt;img src=x onerror=alert(1)&gt;" in drawn
    for words in ("<img", "\\u003cimg", "\\u003cscript", "\\u003ca ", "$("):
        assert words not in drawn
    assert not re.search(r"(?<!\\)\\u001b", drawn)  # JSON's own way to write the character
    assert [path.name for path in tmp_path.iterdir()] == ["all.html"]


def test_a_comparison_of_all_is_printed_and_written(hostile: Hostile, tmp_path: Path) -> None:
    studies = [f"study:{name}" for name in ("plain", *NAMES)]
    out = hostile.reads("compare", *studies, "--html", "all.html", "--csv", "all.csv")
    for name in (*PRINTABLE, *map(shown, UNPRINTABLE)):
        assert name in out
    page = (tmp_path / "all.html").read_text(encoding="utf-8")
    for name in PRINTABLE:
        assert name in html.unescape(page)
    for words in (*(name for name in NAMES if "<" in name), "<img", "\x1b[", "\u202e"):
        assert words not in page
    table = (tmp_path / "all.csv").read_text(encoding="utf-8")
    assert LONG in table
    assert {f"'{name}" for name in NAMES if name[0] in "-="} == formulas(table)


def formulas(table: str) -> set[str]:
    """The cells of a CSV that are marked as none; there are no others."""
    cells = {cell for row in csv.reader(io.StringIO(table)) for cell in row}
    assert not [each for each in cells if each[:1] in {*"=+-@"} and not re.match(r"-?[\d.]+", each)]
    return {each for each in cells if re.match("'[-=+@]", each)}


def test_explain_says_of_every_study_what_it_teaches(hostile: Hostile) -> None:
    studies = [f"study:{name}" for name in NAMES]
    out = hostile.reads("explain", *studies)
    for name in (*PRINTABLE, *map(shown, UNPRINTABLE)):
        assert name in out.splitlines()


def test_a_check_of_the_database_and_a_look_at_verifications_name_them(hostile: Hostile) -> None:
    done = hostile.run("db", "check")
    harmless(done.out + done.err)
    assert "Traceback" not in done.err
    database = open_database(parse_url(hostile.url), create=False)
    for name in NAMES:
        print_verified([open_study(database, name)], ended="filled")
        out, err = hostile.capture.readouterr()
        harmless(out + err)
        assert shown(name) in out.replace("\n", "")
    database.close()


def test_the_dashboard_s_notes_and_figures_have_no_tags(hostile: Hostile) -> None:
    database = open_database(parse_url(hostile.url), create=False)
    files = StudyFiles()
    additions = Additions(database, optuna.storages.get_storage(database.optuna), files)
    for name in (NAMES[0], NAMES[3], LONG):
        made = additions(open_study(database, name).study_id)
        note = made["dashboard:note_str:0"]
        assert "<" not in note
        assert "\x1b" not in note
        assert "&lt;img src=x onerror=alert(1)&gt;" in note
        assert r"\`b\`" in note  # a worker's name, in a table's cell
        figures = "".join(
            text for key, text in made.items() if key.startswith("dashboard:plot_data:")
        )
        assert "<img" not in figures
        (trials,) = (key for key, text in made.items() if "trials.csv" in str(text))
        announced = files.find(trials.removeprefix("artifacts:"))
        assert announced is not None
        table = announced.content()
        assert formulas(table) == {"'=own", "'@own"}
    database.close()


def test_a_note_that_somebody_stored_has_neither_tags_nor_pictures_from_elsewhere() -> None:
    assert without_tags("a <iframe src=b> ![c](http://d)") == "a &lt;iframe src=b> !\\[c](http://d)"


def test_an_encoding_that_lacks_a_character_gets_its_escape(
    hostile: Hostile, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    with pytest.raises(SystemExit) as ended:
        main(["trial", "0", "--study=日本語", "--storage", hostile.url])
    assert not ended.value.code
    assert rb"\u65e5\u672c\u8a9e, trial 0" in stream.buffer.getvalue()


@pytest.mark.parametrize("arguments", [("status",), ("best",), ("trial", "0")])
def test_an_error_that_names_them_is_one_line(arguments: Sequence[str], hostile: Hostile) -> None:
    for name in (ATTACK, "nope"):
        done = hostile.run(*arguments, f"--study={name}")
        assert (done.code, done.out) == (2, "")
        harmless(done.err)
        assert len(done.err.splitlines()) == 1
    done = hostile.run("trial", "99", f"--study={UNPRINTABLE[0]}")
    assert done.code == 2
    harmless(done.err)


def test_a_study_that_is_called_like_a_file_is_a_study_where_there_is_no_such_file(
    hostile: Hostile, tmp_path: Path
) -> None:
    for study in ("x.json", "study:x.json"):
        hostile.reads("plot", "front", "--study", study, "--output", "x.html")
        hostile.reads("explain", study)
    hostile.reads("plot", "importances", "--output", "x.html")
    hostile.reads("compare", "x.json", "study:plain")
    assert hostile.reads("best", "--study", "x.json", "--pick", "knee")
    hostile.reads("study", "export", "plain", "--output", "x.json")
    hostile.reads("plot", "front", "--study", "x.json", "--output", "file.html")
    assert "plain: front" in (tmp_path / "file.html").read_text(encoding="utf-8")
    hostile.reads("plot", "front", "--study", "study:x.json", "--output", "study.html")
    assert "x.json: front" in (tmp_path / "study.html").read_text(encoding="utf-8")
    done = hostile.run("explain", "none.json")
    assert done.code == 2
    assert "there is no file none.json, and no study of that name either" in done.err
