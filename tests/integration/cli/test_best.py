"""`tuner best` on studies of the campaign, in SQLite and as files: what is recommended, what is
said of it, and what a script gets."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from tests.support.forked_cli import Done
from tests.support.forked_cli import run_here as run
from tests.support.paths import REPOSITORY
from tests.support.refusals import refused
from tuner.errors import TunerError, UsageError
from tuner.export import load_best
from tuner.export.train import read_recipe
from tuner.storage.database import open_database
from tuner.storage.url import parse_url
from tuner.study.archive import read_archive
from tuner.study.transfer import restore

CAMPAIGN = REPOSITORY / "benchmarks" / "campaign"
ESTIMATE = {
    "type": "object",
    "required": ["trial", "wall_clock_s", "test_mql", "chance", "runs"],
}
RECOMMENDATION = {
    "type": "object",
    "required": ["margin", "chance", "sure_enough", "default_stands", "default", "nearest"],
    "properties": {"default": ESTIMATE},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """storage/tuner.db with two studies of the campaign, and one that has too few trials."""
    found = tmp_path_factory.mktemp("campaign")
    (found / "storage").mkdir()
    database = open_database(parse_url(f"sqlite:///{found}/storage/tuner.db"))
    try:
        for name in ("rmsnorm", "layernorm"):
            restore(database, read_archive(CAMPAIGN / f"etth-{name}.json.gz"), f"etth-{name}")
        quick = REPOSITORY / "notebooks" / "data" / "original.json.gz"
        restore(database, read_archive(quick), "quick")
    finally:
        database.close()
    return found


def best(folder: Path, words: str, *, code: int = 0) -> Done:
    done = run("best", *shlex.split(words), folder=folder)
    assert done.code == code, done.err
    return done


def document(folder: Path, words: str) -> dict[str, Any]:
    found: dict[str, Any] = best(folder, f"{words} --json").json()
    return found


def test_a_recommendation_is_the_default_pick_and_says_how_sure_it_is(folder: Path) -> None:
    done = best(folder, "--variant rmsnorm --json")
    assert done.err == ""
    found = done.json()
    assert (found["pick"], found["chosen_on"]) == ("same-quality", "expected")
    jsonschema.validate(found["recommendation"], RECOMMENDATION)
    said = found["recommendation"]
    assert said["margin"] == 0.01
    assert 0.9 < said["sure_enough"] <= said["chance"] <= 1
    assert not said["default_stands"]
    assert said["default"]["trial"] == 0 != found["trial"]
    assert found["expected"]["wall_clock_s"] < said["default"]["wall_clock_s"]
    assert found["expected"]["test_mql"] <= 1.01 * said["default"]["test_mql"]
    assert found["values"].keys() == {"wall_clock_s", "test_mql"}
    assert "at most 1 % above the default's" in found["why"]
    assert document(folder, "--variant rmsnorm") == found, "the same answer when asked again"
    file = CAMPAIGN / "etth-rmsnorm.json.gz"
    assert document(folder, f"--storage {file}")["trial"] == found["trial"]


def test_the_default_stands_with_exit_code_0_and_a_line_on_stderr(folder: Path) -> None:
    done = best(folder, "--variant layernorm")
    (line,) = done.lines
    found = tomllib.loads(done.out)
    assert line == f"tuner: {found['why']}"
    assert line.startswith("tuner: The default stands: ")
    assert (found["trial"], found["recommendation"]["default_stands"]) == (0, True)
    nearest = found["recommendation"]["nearest"]
    assert f"the nearest is trial {nearest['trial']} " in line
    assert nearest["chance"] < found["recommendation"]["sure_enough"]


@pytest.mark.parametrize("form", ["toml", "python"])
def test_every_form_says_what_was_recommended(form: str, folder: Path, tmp_path: Path) -> None:
    done = best(folder, f"--variant rmsnorm --format {form}")
    assert "whose MQL is at most 1 % above the default's" in done.out
    assert "the chance is" in done.out
    if form == "toml":
        (tmp_path / "best.toml").write_text(done.out, encoding="utf-8")
        recipe = read_recipe(tmp_path / "best.toml")
        assert recipe.origin["why"] in done.out
        assert recipe.origin["recommendation"]["margin"] == 0.01
    head = done.out.splitlines()[1]
    assert head.startswith("# Recommended: what is expected to save most time once it is")


def test_two_files_are_written_and_only_over_those_of_this_command(
    folder: Path, tmp_path: Path
) -> None:
    words = f"--variant rmsnorm --format python --output {tmp_path}/best.py"
    for _ in range(2):
        done = best(folder, words)
        assert done.out == f"wrote {tmp_path}/best.py\nwrote {tmp_path}/best_network.py\n"
    assert "def build_network()" in (tmp_path / "best_network.py").read_text(encoding="utf-8")
    script = best(folder, "--variant rmsnorm --format python")
    assert script.out == (tmp_path / "best.py").read_text(encoding="utf-8")
    assert "--output best.py writes best_network.py too" in script.err
    (tmp_path / "best_network.py").write_text("mine", encoding="utf-8")
    assert "best_network.py: is there already" in best(folder, words, code=2).err
    assert "ends in .py" in best(folder, words.replace("best.py", "best"), code=2).err
    assert "--format json --output FILE" in best(folder, "--json --output b", code=2).err
    best(folder, f"--variant rmsnorm --format json --output {tmp_path}/best.json")
    assert json.loads((tmp_path / "best.json").read_text())["variant"] == "rmsnorm"


def test_a_margin_to_look_at_is_not_recorded(folder: Path) -> None:
    found = document(folder, "--variant layernorm --margin 8%")
    assert found["recommendation"]["margin"] == pytest.approx(0.08)
    assert not found["recommendation"]["default_stands"]
    assert document(folder, "--variant layernorm")["recommendation"]["margin"] == 0.01
    (study,) = run("status", "--study", "etth-layernorm", "--json", folder=folder).json()["studies"]
    assert study["policy"]["margin"] is None


def test_another_default_is_answered_beside_the_own_one(folder: Path) -> None:
    done = best(folder, "--variant rmsnorm --against layernorm --json")
    found, own = done.json(), document(folder, "--variant rmsnorm")
    said = found["recommendation"]
    assert said["against"]["study"] == "etth-layernorm"
    assert said["chance"] >= said["sure_enough"]
    assert said["own"]["trial"] == own["trial"]
    (line,) = done.lines
    assert "the default of etth-layernorm" in line
    assert f"For the quality of its own default: trial {own['trial']} " in line
    file = CAMPAIGN / "etth-layernorm.json.gz"
    from_file = document(folder, f"--variant rmsnorm --against {file}")
    assert from_file["trial"] == found["trial"]


def test_a_point_of_the_front_is_by_the_values_that_were_named(folder: Path) -> None:
    for values, words in (
        ("single", "single runs"),
        ("expected", "all runs of the study together"),
        ("verified", "medians over fresh seeds"),
    ):
        found = document(folder, f"--variant layernorm --pick time --values {values}")
        assert (found["pick"], found["chosen_on"]) == ("time", values)
        assert words in found["why"]
        assert found["recommendation"] is None
        assert (found["verified"] is None) <= (values != "verified")
    assert document(folder, "--variant layernorm --pick knee")["chosen_on"] == "expected"


def test_a_script_that_names_single_values_gets_what_it_got(folder: Path) -> None:
    """The knee of the front of single runs, as the comparison of this campaign has it."""
    committed = json.loads((CAMPAIGN / "compare.json").read_text())
    rows = [row for row in committed["rows"] if row["hyperparameters"] == "retuned (knee)"]
    found = {row["variant"]: row["trial"] for row in rows}
    for variant in ("rmsnorm", "layernorm"):
        got = document(folder, f"--variant {variant} --pick knee --values single")
        assert got["trial"] == found[variant]


def test_bounds_are_of_the_values_that_are_chosen_on(folder: Path) -> None:
    free = document(folder, "--variant layernorm --pick mql")
    limit = 0.9 * free["expected"]["wall_clock_s"]
    bounded = document(folder, f"--variant layernorm --pick mql --max-time {limit}")
    assert bounded["expected"]["wall_clock_s"] <= limit
    verified = document(
        folder, f"--variant layernorm --pick mql --values verified --max-time {limit}"
    )
    assert verified["verified"]["wall_clock_s"]["median"] <= limit
    single = document(folder, f"--variant layernorm --pick mql --values single --max-time {limit}")
    assert single["values"]["wall_clock_s"] <= limit
    error = best(folder, "--variant rmsnorm --max-time 0.3", code=1).error
    assert "is surely enough as good as its default with wall_clock_s <= 0.3" in error


def test_too_few_trials_are_said_and_never_passed_over(folder: Path) -> None:
    says = "7 configurations converged, and it takes 12"
    refused("best", "--study", "quick", folder=folder, code=1, says=(says, "--pick knee"))
    with pytest.raises(TunerError, match=f"{says} .* a point of the front: pick='knee'"):
        load_best(study="quick", storage=f"sqlite:///{folder}/storage/tuner.db")
    with pytest.raises(
        UsageError, match=r"^margin= goes with pick='same-quality', not with pick='"
    ):
        load_best(study="quick", pick="knee", margin=0.1)
    done = best(folder, "--study quick --pick knee --json")
    (line,) = done.lines
    assert "expected values take 12 configurations" in line
    assert "this is of the front of single runs" in line
    assert done.json()["chosen_on"] == "single"
    named = best(folder, "--study quick --pick knee --values single --json")
    assert named.lines == []
    assert named.json() == done.json()
    words = ("best", "--study", "quick", "--pick", "knee", "--values", "expected")
    refused(*words, folder=folder, code=1, says=("expected values take 12", "--values single"))


def test_a_file_is_held_against_a_file(folder: Path) -> None:
    words = ("best", "--storage", str(CAMPAIGN / "etth-rmsnorm.json.gz"), "--against", "simple")
    refused(*words, folder=folder, code=2, says=("name the file of the other exported study",))


def test_on_a_terminal_it_is_a_dozen_lines_and_elsewhere_what_a_program_reads(
    folder: Path,
) -> None:
    export = CAMPAIGN / "etth-rmsnorm.json.gz"
    command = [sys.executable, "-m", "tuner", "best", "--storage", str(export)]
    ours, theirs = os.openpty()
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL) as process:
        os.close(theirs)
        told = b""
        with contextlib.suppress(OSError):  # the other end is closed
            while read := os.read(ours, 4096):
                told += read
    os.close(ours)
    assert process.returncode == 0
    lines = told.decode().splitlines()
    assert len(lines) <= 12
    assert lines[0].startswith("rmsnorm on etth: trial ")
    assert any(line.startswith("  learning_rate = ") for line in lines)
    elsewhere = run("best", "--storage", str(export), folder=folder).out
    assert tomllib.loads(elsewhere)["variant"] == "rmsnorm"
